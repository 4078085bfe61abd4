"""Stacks as a tree, and which spans were open around a sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.stack_tree import NONE, Fusion, StackNodes, chains_of, innermost
from tests.ingest.without_library import without_library


@st.composite
def nested_spans(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Spans (start, end, parent's row) of one thread, by start and then from the outside in."""
    spans: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(-1, len(spans) - 1))
        low, high = (spans[parent][0], spans[parent][1]) if parent >= 0 else (0, 40)
        # Behind its elder siblings, as one thread has them.
        low = max([low, *(end for _, end, of in spans if of == parent)])
        if low > high:
            continue
        start = draw(st.integers(low, high))
        spans.append((start, draw(st.integers(start, high)), parent))
    depth = [0] * len(spans)
    for row, (_, _, parent) in enumerate(spans):
        depth[row] = depth[parent] + 1 if parent >= 0 else 0
    order = sorted(range(len(spans)), key=lambda row: (spans[row][0], depth[row], row))
    place = {row: at for at, row in enumerate(order)} | {-1: -1}
    return [(spans[row][0], spans[row][1], place[spans[row][2]]) for row in order]


def is_open(span: tuple[int, int, int], at: int) -> bool:
    return span[0] <= at < span[1]


@given(nested_spans(), st.lists(st.integers(-2, 42), max_size=20))
def test_the_innermost_open_span_is_open_and_has_no_open_child(
    spans: list[tuple[int, int, int]], times: list[int]
) -> None:
    start, end, parent = (np.array(column, np.int64) for column in zip(*spans, strict=True)) if spans else [
        np.zeros(0, np.int64)
    ] * 3  # fmt: skip

    found = innermost(start, end, parent, np.array(times, np.int64)).tolist()

    for at, row in zip(times, found, strict=True):
        if row == NONE:
            assert not any(is_open(span, at) for span in spans)
        else:
            assert is_open(spans[row], at)
            assert not any(is_open(span, at) for span in spans if span[2] == row)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=12))
def test_a_tree_gives_each_stack_once_and_its_frames_back(stacks: list[list[int]]) -> None:
    tree, number = StackNodes(), {}
    for frames in stacks:
        stack = NONE
        for frame in frames:
            stack = tree.push(stack, frame)
        number[tuple(frames)] = stack

    assert len(set(number.values())) == len(number)
    for frames, stack in number.items():
        assert tree.frames(stack) == list(frames)
        assert tree.depth[stack] == len(frames) - 1
    assert all(parent < stack for stack, parent in enumerate(tree.parent))


# Which earlier row each is a frame more of, or a stack that there was before, -1: neither; and the
# frame, of which 4 is merged.
ROWS = st.lists(st.tuples(st.integers(-1, 9), st.booleans(), st.integers(0, 4)), max_size=20)


def pushed(tree: StackNodes, rows: list[tuple[int, bool, int]]) -> list[int]:
    """The stacks of these rows."""
    around = [
        min(of, tree.count - 1) if is_old else -2 - of if 0 <= of < row else NONE
        for row, (of, is_old, _) in enumerate(rows)
    ]
    frame = [frame for _, _, frame in rows]
    found = tree.push_rows(np.array(around, np.int64), np.array(frame, np.int64), 4)
    return [int(stack) for stack in found]


@given(st.lists(ROWS, max_size=4))
def test_trees_are_the_same_without_a_library(batches: list[list[tuple[int, bool, int]]]) -> None:
    tree = StackNodes()
    found = [pushed(tree, rows) for rows in batches]
    with without_library():
        other = StackNodes()
        assert [pushed(other, rows) for rows in batches] == found

    assert tree.parent.tolist() == other.parent.tolist()
    assert tree.frame.tolist() == other.frame.tolist()
    assert tree.depth.tolist() == other.depth.tolist()


def fused(
    adopted: list[int], sampled: list[list[int]], chains: list[list[int]], outer: list[int]
) -> tuple[list[int], list[list[int]]]:
    """Fused stacks of all pairs of these, and all of their frames."""
    # Frames below 10 are of functions, the others of spans.
    fusion = Fusion(anchors={2: 1, 3: 2, 4: 1, 12: 1, 13: 2, 14: 3})
    depth = np.arange(len(adopted))
    fusion.adopt(depth - 1, np.array(adopted, np.int64), depth)
    stacks = [fusion.sampled.push_all(len(adopted) - 1, frames) for frames in sampled]
    opened = [fusion.chains.push_all(NONE, frames) for frames in chains]
    count = fusion.sampled.count
    fusion.outer = np.minimum(np.resize(np.array([NONE, *outer]), count), np.arange(count)).astype(
        np.int32
    )
    pairs = [(stack, chain) for stack in [NONE, *stacks] for chain in [NONE, *opened]]
    one, other = np.array(pairs, np.int64).T
    found = fusion.stacks(one, other).tolist()
    return found, [fusion.fused.frames(stack) for stack in range(fusion.fused.count)]


FRAMES = st.lists(st.integers(0, 5), max_size=6)
SPANS = st.lists(st.integers(10, 14), max_size=4)


@given(
    st.lists(st.integers(0, 5), max_size=2),
    st.lists(FRAMES, max_size=4),
    st.lists(SPANS, max_size=4),
    st.lists(st.integers(-1, 5), max_size=5),
)
def test_fused_stacks_are_the_same_without_a_library(
    adopted: list[int], sampled: list[list[int]], chains: list[list[int]], outer: list[int]
) -> None:
    found = fused(adopted, sampled, chains, outer)
    with without_library():
        assert fused(adopted, sampled, chains, outer) == found


def test_spans_lie_between_the_last_outer_frame_and_what_is_inside_of_it() -> None:
    fusion = Fusion()
    python = fusion.sampled.push(NONE, 10)
    native = fusion.sampled.push(python, 11)
    leaf = fusion.sampled.push(native, 12)
    fusion.outer = np.array([python, python, python], np.int32)
    chain = fusion.chains.push(fusion.chains.push(NONE, 20), 21)

    assert fusion.fused.frames(fusion.stack(leaf, chain)) == [10, 20, 21, 11, 12]
    assert fusion.fused.frames(fusion.stack(leaf, NONE)) == [10, 11, 12]
    assert fusion.fused.frames(fusion.stack(python, chain)) == [10, 20, 21]
    assert fusion.fused.frames(fusion.stack(NONE, chain)) == [20, 21]
    assert fusion.stack(NONE, NONE) == NONE
    assert fusion.stack(leaf, chain) == fusion.stack(leaf, chain)


def test_a_span_lies_inside_of_the_function_that_begins_it() -> None:
    fusion = Fusion(anchors={11: 1, 13: 1, 15: 2, 20: 1, 21: 1, 22: 2, 23: 2})
    stack = NONE
    for frame in (10, 11, 12, 13, 14, 15, 16):
        stack = fusion.sampled.push(stack, frame)
    fusion.outer = np.array([0] * 7, np.int32)
    chain = NONE
    for frame in (
        30,
        20,
        21,
        22,
        23,
    ):  # 30 is begun by no function, and for 23 there is no function left
        chain = fusion.chains.push(chain, frame)

    assert fusion.fused.frames(fusion.stack(stack, chain)) == [
        10,
        30,
        11,
        20,
        12,
        13,
        21,
        14,
        15,
        22,
        23,
        16,
    ]


def test_modules_lie_where_python_calls_them_and_what_is_around_just_outside() -> None:
    fusion = Fusion(anchors={2: 5, 4: 5, 40: 5, 41: 5})
    stack = NONE
    for frame in (1, 2, 3, 4, 6, 7):  # 6 is the last of Python
        stack = fusion.sampled.push(stack, frame)
    fusion.outer = np.array([0, 1, 2, 3, 4, 4], np.int32)
    chain = NONE
    for frame in (30, 40, 41, 31):
        chain = fusion.chains.push(chain, frame)

    assert fusion.fused.frames(fusion.stack(stack, chain)) == [1, 30, 2, 40, 3, 4, 41, 6, 31, 7]


def test_without_an_outer_frame_the_spans_are_outermost() -> None:
    fusion = Fusion()
    leaf = fusion.sampled.push(NONE, 1)
    fusion.outer = np.array([NONE], np.int32)

    assert fusion.fused.frames(fusion.stack(leaf, fusion.chains.push(NONE, 2))) == [2, 1]


def test_chains_leave_out_what_has_no_frame() -> None:
    chains = StackNodes()
    parent = np.array([NONE, 0, 1, 1])
    around, own = np.array([NONE, NONE, 99, NONE]), np.array([100, NONE, 102, 103])

    found = chains_of(
        np.array([2, 3, NONE, 2, 0]), parent, lambda rows: (around[rows], own[rows]), chains
    )

    assert [chains.frames(int(chain)) for chain in found] == [
        [100, 99, 102], [100, 103], [], [100, 99, 102], [100],
    ]  # fmt: skip
