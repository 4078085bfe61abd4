"""The module of the backward pass, and the operator that each backward function belongs to: laws on
random threads.
"""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.autograd_links import key_of, link
from layerscope.ingest.module_attribution import inherit

TRACK = 3
NO_MODULE = -1
NOT_LINKED = -2


class Stretch:
    """A backward function, told apart by its key; `own` is the module of its forward operator."""

    def __init__(
        self, key: int, start: int, end: int, own: int = NOT_LINKED, accumulates: bool = False
    ) -> None:
        self.key, self.start, self.end, self.own, self.accumulates = (
            key,
            start,
            end,
            own,
            accumulates,
        )


def inherited(
    stretches: list[Stretch], starts: list[int], recorded: list[int] | int = NO_MODULE
) -> list[int]:
    """The modules of spans that start then, of which nothing but `recorded` was open, beside these
    stretches.
    """
    linked = [one for one in stretches if one.own != NOT_LINKED]
    own = [recorded] * len(starts) if isinstance(recorded, int) else recorded
    # Columns of the spans asked about, of the backward functions, and of their operators on another
    # track.
    track = [TRACK] * (len(starts) + len(stretches)) + [TRACK + 1] * len(linked)
    start_ns = [*starts, *(one.start for one in stretches), *(0 for _ in linked)]
    end_ns = [*starts, *(one.end for one in stretches), *(1 for _ in linked)]
    module = np.array(
        [*own, *(NO_MODULE for _ in stretches), *(one.own for one in linked)], np.int32
    )
    places = {id(one): len(starts) + len(stretches) + at for at, one in enumerate(linked)}
    inherit(
        np.array(track, np.int32), np.array(start_ns, np.int64), np.array(end_ns, np.int64), module,
        np.arange(len(starts), len(starts) + len(stretches)),
        np.array([places.get(id(one), -1) for one in stretches], np.intp),
        np.array([one.accumulates for one in stretches], np.bool_),
    )  # fmt: skip
    found: list[int] = module[: len(starts)].tolist()
    return found


def test_what_lies_in_a_backward_function_belongs_to_the_module_of_its_operator() -> None:
    # An engine's function (no operator of its own) around the linked one.
    stretches = [Stretch(1, 10, 30), Stretch(2, 12, 28, own=7)]

    assert inherited(stretches, [5, 10, 12, 20, 29, 30, 31]) == [
        NO_MODULE,
        7,
        7,
        7,
        7,
        7,
        NO_MODULE,
    ]


def test_adding_up_a_gradient_belongs_to_the_function_before_it() -> None:
    stretches = [
        Stretch(0, 1, 2, accumulates=True), Stretch(1, 10, 20, own=7), Stretch(2, 21, 22, accumulates=True),
        Stretch(3, 23, 24, accumulates=True), Stretch(4, 30, 40), Stretch(5, 41, 42, accumulates=True),
    ]  # fmt: skip

    assert inherited(stretches, [1, 15, 21, 23, 35, 41]) == [
        NO_MODULE,
        7,
        7,
        7,
        NO_MODULE,
        NO_MODULE,
    ]


def test_a_module_that_is_called_in_the_backward_pass_keeps_what_ran_in_it() -> None:
    stretches = [Stretch(1, 10, 100, own=7)]

    assert inherited(stretches, [11, 20, 30], [NO_MODULE, 4, NO_MODULE]) == [7, 4, 7]


def test_a_backward_pass_in_another_one_has_its_own_modules() -> None:
    stretches = [Stretch(1, 10, 100, own=7), Stretch(2, 20, 40, own=8), Stretch(3, 41, 42, accumulates=True),
                       Stretch(4, 50, 60, own=NO_MODULE), Stretch(5, 70, 80)]  # fmt: skip

    # The fourth belongs to an operator outside of any module, of the fifth nothing is known.
    assert inherited(stretches, [15, 25, 41, 45, 55, 75]) == [7, 8, 8, 7, NO_MODULE, 7]


def test_recordings_without_a_backward_pass_stay_as_they_are() -> None:
    assert inherited([], [1, 2], [4, NO_MODULE]) == [4, NO_MODULE]
    assert inherited([], []) == []


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


@given(passes())
def test_the_innermost_function_with_a_known_operator_decides(stretches: list[Stretch]) -> None:
    starts = [one.start for one in stretches]

    def truth(at: int) -> int:
        around = [one for one in stretches if one.start <= at <= one.end]
        for one in sorted(around, key=lambda one: -one.start):
            inside = [
                inner for inner in stretches if one.start <= inner.start and inner.end <= one.end
            ]
            linked = [
                inner.own for inner in inside if inner.own != NOT_LINKED
            ]  # in the order of their starts
            if linked:
                return linked[0]
        return NO_MODULE

    assert inherited(stretches, starts) == [truth(at) for at in starts]


def linked(
    operators: list[tuple[int, int, int, int]], wanted: list[tuple[int, int]]
) -> dict[int, int]:
    """{number of the backward function: span}; operators (span, seq, start, end), wanted (seq,
    start).
    """
    span, seq, start, end = (np.array(column, np.int64) for column in zip(*operators, strict=True))
    wanted_seq, wanted_start = (np.array(column, np.int64) for column in zip(*wanted, strict=True))
    one = np.ones(1, np.int64)
    found = link(key_of(one, seq), start, end, key_of(one, wanted_seq), wanted_start)
    return {number: int(span[place]) for number, place in enumerate(found.tolist()) if place >= 0}


def test_the_operator_that_made_the_node_is_found_at_any_depth() -> None:
    # Two that made no node, at depth 0; then, deep in modules, one around another that made it.
    operators = [(0, 5, 0, 10), (1, 5, 20, 30), (2, 5, 40, 90), (3, 5, 50, 60), (4, 6, 70, 80)]

    assert linked(operators, [(5, 200), (6, 150), (7, 300)]) == {0: 2, 1: 4}
    # A recording has the outer one last, because it ends last.
    assert linked([*operators[:2], *operators[3:], operators[2]], [(5, 200), (6, 150)]) == {
        0: 2,
        1: 4,
    }


def test_a_backward_function_before_its_operator_is_linked_to_nothing() -> None:
    assert linked([(0, 5, 40, 60)], [(5, 30), (5, 70)]) == {1: 0}
