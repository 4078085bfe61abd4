"""Laws of stacks as trees, on random ones: weights are kept, recursion counts once, turning round
twice is nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.stacks.tree import (
    NONE,
    FrameTree,
    Ints,
    by_level,
    depths,
    grouped,
    has_above,
    inverted,
    merged,
    nearest,
    of_frames,
    offsets,
    outermost,
    walk,
    without,
)

FRAMES = 4
Stack = tuple[int, ...]
STACKS = st.dictionaries(
    st.lists(st.integers(0, FRAMES - 1), min_size=1, max_size=8).map(tuple),
    st.integers(0, 1000),
    max_size=30,
)


def nodes(stacks: dict[Stack, int], doubled: bool = False) -> tuple[Ints, Ints, Ints]:
    """(up, frame, own) of stacks as a recording has them; `doubled`: nothing is merged, every stack
    is by itself.
    """
    up: list[int] = []
    frame: list[int] = []
    own: list[list[int]] = []
    known: dict[Any, int] = {}
    for number, (stack, weight) in enumerate(stacks.items()):
        above = NONE
        for depth in range(len(stack)):
            key = (number if doubled else 0, stack[: depth + 1])
            if key not in known:
                known[key] = len(up)
                up.append(above)
                frame.append(stack[depth])
                own.append([0, 0])
            above = known[key]
        own[above][0] += weight
        own[above][1] += 1
    return np.array(up, np.int64), np.array(frame, np.int64), np.array(own, np.int64).reshape(-1, 2)


def tree_of(stacks: dict[Stack, int], doubled: bool = False) -> FrameTree:
    return merged(*nodes(stacks, doubled), FRAMES)[0]


def path(tree: FrameTree, node: int) -> Stack:
    found = []
    while node >= 0:
        found.append(int(tree.frame[node]))
        node = int(tree.parent[node])
    return tuple(reversed(found))


def stacks_of(tree: FrameTree, column: int = 0) -> dict[Stack, int]:
    return {
        path(tree, node): int(tree.own[node, column])
        for node in np.flatnonzero(tree.own[:, column])
    }


def with_weight(stacks: dict[Stack, int]) -> dict[Stack, int]:
    return {stack: weight for stack, weight in stacks.items() if weight}


@given(STACKS, st.booleans())
def test_merging_keeps_every_stack_and_makes_each_once(
    stacks: dict[Stack, int], doubled: bool
) -> None:
    tree = tree_of(stacks, doubled)

    assert stacks_of(tree) == with_weight(stacks)
    assert stacks_of(tree, 1) == dict.fromkeys(stacks, 1)
    every = [path(tree, node) for node in range(len(tree))]
    assert len(set(every)) == len(every)
    assert (
        [len(one) - 1 for one in every]
        == tree.depth().tolist()
        == tree.depth_of(np.arange(len(tree))).tolist()
    )
    assert (tree.parent < np.arange(len(tree))).all()


@given(STACKS)
def test_roots_add_up_to_the_whole_and_nothing_is_more_than_its_parent(
    stacks: dict[Stack, int],
) -> None:
    tree = tree_of(stacks)
    totals = tree.totals()

    assert totals[tree.parent < 0].sum(axis=0).tolist() == [sum(stacks.values()), len(stacks)]
    assert (tree.own <= totals).all()
    below = tree.parent >= 0
    assert (totals[below] <= totals[tree.parent[below]]).all()


@given(STACKS)
def test_nodes_without_weight_are_left_out(stacks: dict[Stack, int]) -> None:
    up, frame, own = nodes(stacks)
    own[:, 1] = 0

    tree, place = merged(up, frame, own, FRAMES)

    wanted = {
        stack[:length]
        for stack, weight in stacks.items()
        if weight
        for length in range(1, len(stack) + 1)
    }
    assert {path(tree, node) for node in range(len(tree))} == wanted
    assert np.count_nonzero(place >= 0) == len(wanted)


@given(STACKS, st.data())
def test_a_choice_and_the_rest_are_all(stacks: dict[Stack, int], data: st.DataObject) -> None:
    up, frame, own = nodes(stacks)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(up), max_size=len(up))), bool
    ).reshape(-1, 1)

    some, rest = (merged(up, frame, own * part, FRAMES)[0] for part in (chosen, ~chosen))

    both = Counter(stacks_of(some)) + Counter(stacks_of(rest))
    assert both == Counter(with_weight(stacks))
    assert (some.whole() + rest.whole() == own.sum(axis=0)).all()


def expected_of_frames(stacks: dict[Stack, int]) -> dict[int, tuple[int, int]]:
    own: dict[int, int] = defaultdict(int)
    total: dict[int, int] = defaultdict(int)
    for stack, weight in stacks.items():
        own[stack[-1]] += weight
        for frame in set(stack):
            total[frame] += weight
    return {frame: (own[frame], total[frame]) for frame in range(FRAMES)}


@given(STACKS, st.booleans())
def test_recursion_counts_once(stacks: dict[Stack, int], doubled: bool) -> None:
    own, totals = of_frames(tree_of(stacks, doubled), FRAMES)

    found = {frame: (int(own[frame, 0]), int(totals[frame, 0])) for frame in range(FRAMES)}
    assert found == expected_of_frames(stacks)


@given(STACKS)
def test_the_outermost_of_a_frame_have_none_of_it_above(stacks: dict[Stack, int]) -> None:
    tree = tree_of(stacks)

    paths = [path(tree, node) for node in range(len(tree))]
    assert outermost(tree).tolist() == [one[-1] not in one[:-1] for one in paths]


@given(STACKS)
def test_inverted_twice_is_the_same(stacks: dict[Stack, int]) -> None:
    tree = tree_of(stacks)
    turned = inverted(tree, FRAMES)

    assert stacks_of(turned) == {
        stack[::-1]: weight for stack, weight in with_weight(stacks).items()
    }
    again = inverted(turned, FRAMES)
    assert stacks_of(again) == stacks_of(tree)
    assert stacks_of(again, 1) == stacks_of(tree, 1)
    for one, other in zip(of_frames(tree, FRAMES), of_frames(again, FRAMES), strict=True):
        assert (one == other).all()
    roots = turned.parent < 0
    by_root = dict(
        zip(turned.frame[roots].tolist(), turned.totals()[roots, 0].tolist(), strict=True)
    )
    assert {
        f: weight for f, (weight, _) in expected_of_frames(stacks).items() if f in by_root
    } == by_root


@given(STACKS, st.floats(0, 0.5))
def test_what_is_heavy_enough_is_the_same_when_the_rest_is_not_looked_into(
    stacks: dict[Stack, int], least: float
) -> None:
    tree = tree_of(stacks)
    whole, cut = inverted(tree, FRAMES), inverted(tree, FRAMES, least)

    assert (whole.whole() == cut.whole()).all()

    def heavy(one: FrameTree) -> dict[Stack, tuple[int, int]]:
        totals = one.totals()[:, 0]
        return {
            path(one, node): (int(totals[node]), int(one.own[node, 0]))
            for node in np.flatnonzero(totals >= max(1, least * int(one.whole()[0])))
        }

    assert heavy(whole) == heavy(cut)


@given(STACKS, st.lists(st.booleans(), min_size=FRAMES, max_size=FRAMES))
def test_the_nearest_chosen_frame(stacks: dict[Stack, int], chosen: list[bool]) -> None:
    tree = tree_of(stacks)
    wanted = np.array(chosen)[tree.frame]
    found = nearest(tree.parent, wanted, by_level(tree.parent))
    past = without(tree.parent, wanted, by_level(tree.parent))

    for node in range(len(tree)):
        place = node
        while place >= 0 and not wanted[place]:
            place = int(tree.parent[place])
        assert found[node] == place
        assert past[node] == (found[tree.parent[node]] if tree.parent[node] >= 0 else NONE)
    assert has_above(tree.parent, wanted).tolist() == (found >= 0).tolist()


@given(
    STACKS,
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 9)), max_size=30),
)
def test_groups_add_up_to_the_tree(
    stacks: dict[Stack, int], samples: list[tuple[int, int, int]]
) -> None:
    tree = tree_of(stacks)
    samples = (
        [(group, node % len(tree), weight) for group, node, weight in samples] if len(tree) else []
    )
    group, node, weight = np.array(samples, np.int64).reshape(-1, 3).T

    forest, of_node = grouped(tree, node, group, weight[:, None], 3)

    wanted: Counter[tuple[int, Stack]] = Counter()
    for one, place, value in samples:
        wanted[one, path(tree, place)] += value
    found = {
        (int(of_node[place]), path(forest, place)): int(forest.own[place, 0])
        for place in np.flatnonzero(forest.own[:, 0])
    }
    assert found == dict(wanted)
    below = forest.parent >= 0
    assert (of_node[forest.parent[below]] == of_node[below]).all()


@given(STACKS)
def test_siblings_stand_beside_each_other_inside_of_their_parent(stacks: dict[Stack, int]) -> None:
    tree = tree_of(stacks)
    sizes = tree.totals()[:, 0]
    start = offsets(tree, sizes, np.lexsort((-sizes, tree.parent)))

    for place in range(len(tree)):
        above = tree.parent[place]
        low, high = (
            (start[above], start[above] + sizes[above])
            if above >= 0
            else (0, sizes[tree.parent < 0].sum())
        )
        assert low <= start[place]
        assert start[place] + sizes[place] <= high
        beside = [
            other
            for other in np.flatnonzero(tree.parent == above)
            if other != place and sizes[other]
        ]
        assert all(
            start[other] + sizes[other] <= start[place] or start[place] + sizes[place] <= start[other]
            for other in beside if sizes[place]
        )  # fmt: skip


@given(STACKS)
def test_a_walk_enters_what_lies_below_before_the_next_sibling(stacks: dict[Stack, int]) -> None:
    tree = tree_of(stacks)

    paths = [path(tree, node) for node in walk(tree)]
    assert paths == sorted(paths)


@pytest.mark.parametrize("length", [1, 2, 3, 1000])
def test_depths_of_a_chain(length: int) -> None:
    assert depths(np.arange(length) - 1).tolist() == list(range(length))


def test_weights_beyond_what_floats_count_are_exact() -> None:
    big = 2**53
    tree = tree_of({(0,): big, (0, 1): 1, (0, 2): 1})

    assert int(tree.totals()[0, 0]) == big + 2
    assert int(tree.whole()[0]) == big + 2
