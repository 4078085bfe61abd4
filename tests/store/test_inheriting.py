"""The module of the backward pass, and the operator that each backward function belongs to: laws on random threads."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.store.inheriting import NO_MODULE, BackwardModules
from layerscope.store.linking import ForwardBackward

TRACK = 3
NOT_LINKED = -2


class Stretch:
    """A backward function, told apart by its key; `own` is the module of its forward operator."""

    def __init__(self, key: int, start: int, end: int, own: int = NOT_LINKED, accumulates: bool = False) -> None:
        self.key, self.start, self.end, self.own, self.accumulates = key, start, end, own, accumulates


def settled(stretches: list[Stretch], recorded: int = NO_MODULE, parts: int = 1) -> BackwardModules:
    """What is known of them when they came in so many parts."""
    modules = BackwardModules()
    for part in range(parts):
        mine = stretches[part::parts]
        modules.add(
            TRACK,
            np.array([one.key for one in mine], np.int64),
            np.array([one.start for one in mine], np.int64),
            np.array([one.end for one in mine], np.int64),
            np.full(len(mine), recorded, np.int32),
            np.array([one.accumulates for one in mine], np.bool_),
        )
    linked = [one for one in stretches if one.own != NOT_LINKED]
    modules.settle(np.array([one.key for one in linked], np.int64), np.array([one.own for one in linked], np.int32))
    return modules


def inherited(modules: BackwardModules, starts: list[int], recorded: list[int] | int = NO_MODULE) -> list[int]:
    """The modules of spans that start then."""
    columns = {
        "track": np.full(len(starts), TRACK, np.int32),
        "start_ns": np.array(starts, np.int64),
        "module": np.array([recorded] * len(starts) if isinstance(recorded, int) else recorded, np.int32),
    }
    modules.inherit(columns)
    found: list[int] = columns["module"].tolist()
    return found


def test_what_lies_in_a_backward_function_belongs_to_the_module_of_its_operator() -> None:
    # An engine's function (no operator of its own) around the linked one.
    modules = settled([Stretch(1, 10, 30), Stretch(2, 12, 28, own=7)])

    assert inherited(modules, [5, 10, 12, 20, 29, 30, 31]) == [NO_MODULE, 7, 7, 7, 7, 7, NO_MODULE]


def test_adding_up_a_gradient_belongs_to_the_function_before_it() -> None:
    modules = settled(
        [
            Stretch(0, 1, 2, accumulates=True), Stretch(1, 10, 20, own=7), Stretch(2, 21, 22, accumulates=True),
            Stretch(3, 23, 24, accumulates=True), Stretch(4, 30, 40), Stretch(5, 41, 42, accumulates=True),
        ]
    )  # fmt: skip

    assert inherited(modules, [1, 15, 21, 23, 35, 41]) == [NO_MODULE, 7, 7, 7, NO_MODULE, NO_MODULE]


def test_a_module_that_is_called_in_the_backward_pass_keeps_what_ran_in_it() -> None:
    modules = settled([Stretch(1, 10, 100, own=7)])

    assert inherited(modules, [11, 20, 30], [NO_MODULE, 4, NO_MODULE]) == [7, 4, 7]


def test_a_backward_pass_in_another_one_has_its_own_modules() -> None:
    modules = settled([Stretch(1, 10, 100, own=7), Stretch(2, 20, 40, own=8), Stretch(3, 41, 42, accumulates=True),
                       Stretch(4, 50, 60, own=NO_MODULE), Stretch(5, 70, 80)])  # fmt: skip

    # The fourth belongs to an operator outside of any module, of the fifth nothing is known.
    assert inherited(modules, [15, 25, 41, 45, 55, 75]) == [7, 8, 8, 7, NO_MODULE, 7]


def test_other_tracks_and_recordings_without_a_backward_pass_stay_as_they_are() -> None:
    modules = settled([Stretch(1, 10, 100, own=7)])
    columns = {"track": np.zeros(1, np.int32), "start_ns": np.array([50]), "module": np.array([2], np.int32)}
    modules.inherit(columns)
    assert columns["module"].tolist() == [2]

    empty = BackwardModules()
    empty.settle(np.zeros(0, np.int64), np.zeros(0, np.int32))
    assert not empty
    assert inherited(empty, [1, 2]) == [NO_MODULE] * 2
    assert inherited(BackwardModules(), []) == []


@st.composite
def passes(draw: st.DrawFn) -> list[Stretch]:
    """Backward functions that nest at random."""
    random = Random(draw(st.integers(0, 1 << 30)))
    found: list[Stretch] = []
    now = 0

    def some(depth: int) -> None:
        nonlocal now
        for _ in range(random.randrange(1, 4)):
            now += random.randrange(1, 5)
            one = Stretch(len(found), now, 0, random.choice([NOT_LINKED, NO_MODULE, 1, 2, 3]))
            found.append(one)
            if depth < 3 and random.random() < 0.6:
                some(depth + 1)
            now += random.randrange(1, 5)
            one.end = now

    some(0)
    return found


@given(passes(), st.integers(1, 4))
def test_the_innermost_function_with_a_known_operator_decides(stretches: list[Stretch], parts: int) -> None:
    modules = settled(stretches, parts=parts)
    starts = [one.start for one in stretches]

    def truth(at: int) -> int:
        around = [one for one in stretches if one.start <= at <= one.end]
        for one in sorted(around, key=lambda one: -one.start):
            inside = [inner for inner in stretches if one.start <= inner.start and inner.end <= one.end]
            linked = [inner.own for inner in inside if inner.own != NOT_LINKED]  # in the order of their starts
            if linked:
                return linked[0]
        return NO_MODULE

    assert inherited(modules, starts) == [truth(at) for at in starts]


def linked(pieces: list[list[tuple[int, int, int, int, int]]], wanted: list[tuple[int, int]]) -> dict[int, int]:
    """{number of the backward function: span}; pieces of (span, seq, start, end, module), wanted (seq, start)."""
    pairs = ForwardBackward()
    for piece in pieces:
        span, seq, start, end, module = (np.array(column, np.int64) for column in zip(*piece, strict=True))
        pairs.add_forward(span, np.ones(len(piece), np.int64), seq, start, end - start, module.astype(np.int32))
    seq, start = (np.array(column, np.int64) for column in zip(*wanted, strict=True))
    pairs.add_backward(np.arange(len(wanted)), np.ones(len(wanted), np.int64), seq, start)
    forward, backward, module = pairs.links()
    assert module.tolist() == [100 + span for span in forward.tolist()]
    return dict(zip(backward.tolist(), forward.tolist(), strict=True))


def test_the_operator_that_made_the_node_is_found_at_any_depth() -> None:
    # Two that made no node, at depth 0; then, deep in modules, one around another that made it.
    piece = [(0, 5, 0, 10, 100), (1, 5, 20, 30, 101), (2, 5, 40, 90, 102), (3, 5, 50, 60, 103), (4, 6, 70, 80, 104)]

    assert linked([piece], [(5, 200), (6, 150), (7, 300)]) == {0: 2, 1: 4}
    # The pieces of a recording hold what ended by then: the outer one comes last.
    assert linked([piece[:2], piece[3:], piece[2:3]], [(5, 200), (6, 150)]) == {0: 2, 1: 4}


def test_a_backward_function_before_its_operator_is_linked_to_nothing() -> None:
    assert linked([[(0, 5, 40, 60, 100)]], [(5, 30), (5, 70)]) == {1: 0}
