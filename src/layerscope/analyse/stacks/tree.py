"""Stacks as a tree of arrays: merged, turned round, added up. Loops run over its levels, never over
stacks or samples.

A node is a stack; its parent is the stack without the innermost frame. Weights are integers in
columns (time and number of samples, or those of two recordings), so that sums are exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.model.distinct import distinct

# Whole numbers: places in 32 bits where there are many, weights in 64.
Ints = NDArray[Any]
Bools = NDArray[np.bool_]
# The parent of the outermost.
NONE = -1


class FrameTree(Struct, frozen=True):
    """Nodes level by level, each level in the order of (parent, frame), no two children of a node
    with one frame.

    parent: place of the parent, NONE of the outermost. frame: number of the frame. own: (nodes,
    columns), weights of the stacks that end here. levels: place of the first node of each level,
    and the number of nodes.
    """

    parent: Ints
    frame: Ints
    own: Ints
    levels: list[int]

    def __len__(self) -> int:
        return len(self.parent)

    def depth(self) -> Ints:
        """How many frames are around each."""
        return np.repeat(np.arange(len(self.levels) - 1), np.diff(self.levels))

    def depth_of(self, nodes: Ints) -> Ints:
        """The same of some nodes."""
        next_level = np.searchsorted(self.levels, nodes, side="right")
        return next_level - 1

    def totals(self) -> Ints:
        """Weights of the stacks that end in each node or below it: (nodes, columns)."""
        totals = self.own.copy()
        for below in reversed(_slices(self.levels)[1:]):
            # Children of one node stand together.
            parent = self.parent[below]
            first = np.flatnonzero(np.append(True, parent[1:] != parent[:-1]))
            totals[parent[first]] += np.add.reduceat(totals[below], first, axis=0)
        return totals

    def whole(self) -> Ints:
        """The weights of all stacks."""
        whole: Ints = self.own.sum(axis=0)
        return whole


def depths(up: Ints) -> Ints:
    """How many nodes are above each, `up` being the one above (NONE: none)."""
    depth: Ints = (up >= 0).astype(np.int32)
    above = up
    # Twice as far in each round.
    is_below = above >= 0
    while is_below.any():
        depth = depth + np.where(is_below, depth[above], 0)
        above = np.where(is_below, above[above], NONE)
        is_below = above >= 0
    return depth


def by_level(up: Ints, depth: Ints | None = None) -> list[Ints]:
    """The nodes of each level, the outermost first. `depth`: how many are above each, if that is
    known.
    """
    if depth is None:
        depth = depths(up)
    most = int(depth.max(initial=-1))
    if most < 0:
        return []
    if most < 1 << 16:
        # NumPy sorts short integers by radix.
        depth = depth.astype(np.uint16)
    order = np.argsort(depth, kind="stable").astype(up.dtype)
    levels = np.arange(1, most + 1)
    begins = np.searchsorted(depth[order], levels)
    return np.split(order, begins)


def extended(values: Ints, *more: Ints | int) -> Ints:
    """`values` with `more` behind them, in the type of `values`."""
    parts = [values]
    for part in more:
        array = np.asarray(part, values.dtype)
        parts.append(np.atleast_1d(array))
    return np.concatenate(parts)


def summed(rows: int, places: Ints, weights: Ints) -> Ints:
    """A table of so many rows to which each of `weights` was added at its place."""
    columns = weights.shape[1]
    table = np.zeros((rows, columns), np.int64)
    for column in range(columns):
        np.add.at(table[:, column], places, weights[:, column])
    return table


def added_up(up: Ints, own: Ints, levels: list[Any]) -> Ints:
    """`own` of each node and of all below it; `levels` as `by_level` gives them."""
    totals = own.copy()
    for nodes in reversed(levels[1:]):
        for column in range(own.shape[1]):
            np.add.at(totals[:, column], up[nodes], totals[nodes, column])
    return totals


def nearest(up: Ints, chosen: Bools, levels: list[Ints]) -> Ints:
    """Of each node the nearest one of those `chosen`, itself or above it; NONE where there is
    none.
    """
    found = np.where(chosen, np.arange(len(up), dtype=np.int32), np.int32(NONE))
    for nodes in levels[1:]:
        missing = nodes[found[nodes] < 0]
        found[missing] = found[up[missing]]
    return found


def has_above(up: Ints, chosen: Bools) -> Bools:
    """Whether a node is one of those `chosen` or lies below one."""
    found = nearest(up, chosen, by_level(up))
    return found >= 0


def merged(up: Ints, frame: Ints, own: Ints, frames: int) -> tuple[FrameTree, Ints]:
    """The nodes as a tree in which children with the same frame are one; `frame` < `frames`. What
    has no weight is left out. Also the place of each given node in the tree, NONE of those left
    out.
    """
    given = by_level(up)
    weighty = _has_weight(own)
    alive = _and_above(up, weighty, given)
    place = np.full(len(up) + 1, NONE, np.int32)  # the last one is where -1 leads
    parent = np.empty(len(up), np.int32)
    frame_of = np.empty(len(up), np.int32)
    levels = [0]
    for nodes in given:
        nodes = nodes[alive[nodes]]
        if not len(nodes):
            break
        parents = place[up[nodes]].astype(np.int64)
        code = (parents + 1) * frames + frame[nodes]
        known, at = np.unique(code, return_inverse=True)
        first = levels[-1]
        last = first + len(known)
        levels.append(last)
        place[nodes] = first + at
        parent[first:last] = known // frames - 1
        frame_of[first:last] = known % frames
    del given, alive, weighty
    # So far most of it is holes, where it is the C library that keeps them (`let_arrow_give_back`).
    pa.default_memory_pool().release_unused()
    place, size = place[:-1], levels[-1]
    # Where there is no place there is no weight either, and nothing is added to the last one.
    weights = summed(size, place, own) if size else own[:0]
    return FrameTree(parent[:size], frame_of[:size], weights, levels), place


def without(up: Ints, chosen: Bools, levels: list[Ints]) -> Ints:
    """`up` past the nodes that are not `chosen`."""
    above = nearest(up, chosen, levels)
    return np.where(up >= 0, above[up], NONE)


def grouped(
    tree: FrameTree, node: Ints, group: Ints, weights: Ints, groups: int
) -> tuple[FrameTree, Ints]:
    """The tree once for each group: of weights of `group` at `node`. Also the group of each node of
    it.
    """
    size = len(tree)
    pairs, at = np.unique(group * size + node, return_inverse=True)
    own = summed(len(pairs), at, weights)
    depth = tree.depth()[pairs % size]
    levels = _levels_of_pairs(tree.parent, pairs, depth, len(tree.levels) - 1)
    return _of_pairs(tree, levels[::-1], pairs, own)


def _levels_of_pairs(up: Ints, pairs: Ints, depth: Ints, levels: int) -> list[Ints]:
    """The pairs (group * nodes + node) of each level and what lies above them, from the innermost
    level outwards. `depth` is that of each pair.
    """
    size = len(up)
    found = []
    parents = np.zeros(0, np.int64)
    for level in reversed(range(levels)):
        own = pairs[depth == level]
        here = distinct(np.concatenate([own, parents]))
        found.append(here)
        group, node = np.divmod(here, size)
        above = up[node]
        in_group = group * size + above
        has_above = above >= 0
        parents = distinct(in_group[has_above])
    return found


def _of_pairs(
    tree: FrameTree, levels: list[Ints], pairs: Ints, own: Ints
) -> tuple[FrameTree, Ints]:
    """The tree whose nodes are (group, node), level by level."""
    size = max(len(tree), 1)
    every = _joined(levels)
    group, node = np.divmod(every, size)
    nodes_of_levels = [len(level) for level in levels]
    starts = [0, *np.cumsum(nodes_of_levels, dtype=np.int64).tolist()]
    order = np.argsort(every)
    in_order = every[order]
    above = tree.parent[node]
    wanted = group * size + above
    place = np.searchsorted(in_order, wanted).clip(max=len(every) - 1)
    parent = np.where(above >= 0, order[place], NONE)
    weights = np.zeros((len(every), own.shape[1]), np.int64)
    weights[order[np.searchsorted(in_order, pairs)]] = own
    return FrameTree(parent, tree.frame[node], weights, starts), group


class NodeColumns(NamedTuple):
    """Nodes that are no tree yet: the node above each, its frame, its weights, and how many nodes
    are above it.
    """

    up: Ints
    frame: Ints
    own: Ints
    depth: Ints


class GroupWeights(NamedTuple):
    """Weights of groups at nodes."""

    node: Ints
    group: Ints
    weights: Ints


def apart(up: Ints, frame: Ints, depth: Ints, weighed: GroupWeights, roots: Ints) -> NodeColumns:
    """The nodes once for each group that has weight in them, below a node of the group.

    roots: the frame of each group.
    """
    size, count = len(up), len(roots)
    code = weighed.group.astype(np.int64) * size + weighed.node
    pairs, at = np.unique(code, return_inverse=True)
    deep = depth[pairs % size] if size else pairs
    levels = _levels_of_pairs(up, pairs, deep, int(deep.max(initial=-1)) + 1)
    every = np.sort(_joined(levels)).astype(np.int64)
    group, node = np.divmod(every, size)
    above = up[node].astype(np.int64)
    inside = np.searchsorted(every, group * size + above) + count
    parents = np.where(above >= 0, inside, group)
    own = np.zeros((count + len(every), weighed.weights.shape[1]), np.int64)
    place = count + np.searchsorted(every, pairs)
    own[place] = summed(len(pairs), at, weighed.weights)
    return NodeColumns(
        np.append(np.full(count, NONE), parents),
        np.append(roots, frame[node]),
        own,
        np.append(np.zeros(count, np.int64), depth[node] + 1),
    )


def inverted(tree: FrameTree, frames: int, least: float = 0.0) -> FrameTree:
    """The stacks with the innermost frame first: what lies below a frame called it.

    Where a frame has less than `least` of the whole in every even column, what called it is not
    looked for: its weight ends there.
    """
    node = np.flatnonzero(_has_weight(tree.own))
    origin = node
    place = np.full(len(node), NONE)
    parents, codes, owns, levels = [], [], [], [0]
    enough = tree.whole()[::2] * least
    while len(node):
        code = (place + 1) * frames + tree.frame[node]
        known, at = np.unique(code, return_inverse=True)
        parents.append(known // frames - 1)
        codes.append(known % frames)
        goes_on = tree.parent[node] >= 0
        if least:
            totals = summed(len(known), at, tree.own[origin, ::2])
            has_enough = np.any(totals >= enough, axis=1)
            goes_on &= has_enough[at]
        ends = ~goes_on
        owns.append(summed(len(known), at[ends], tree.own[origin[ends]]))
        place = levels[-1] + at[goes_on]
        node = tree.parent[node[goes_on]]
        origin = origin[goes_on]
        levels.append(levels[-1] + len(known))
    own = np.concatenate(owns) if owns else tree.own[:0]
    return FrameTree(_joined(parents), _joined(codes), own, levels)


def outermost(tree: FrameTree) -> Bools:
    """The nodes with no node of their frame above them: what recursion counts once."""
    enter, leave = _visits(tree)
    order = np.lexsort((enter, tree.frame))
    # Visits of a frame come behind those of the frame before. The furthest end so far tells what is
    # inside of another.
    shift = tree.frame[order].astype(np.int64) * (2 * len(tree) + 2)
    ends = np.maximum.accumulate(leave[order] + shift)
    first = np.ones(len(tree), np.bool_)
    first[order[1:]] = (enter[order] + shift)[1:] > ends[:-1]
    return first


def of_frames(tree: FrameTree, frames: int) -> tuple[Ints, Ints]:
    """By frame: the weights of the stacks that end in it, and of those that it is in: (frames,
    columns) each.
    """
    once = outermost(tree)
    return summed(frames, tree.frame, tree.own), summed(
        frames, tree.frame[once], tree.totals()[once]
    )


def offsets(tree: FrameTree, sizes: Ints, order: Ints) -> Ints:
    """Where each node begins when its children stand beside each other from its own beginning on.

    `order` has the nodes so that siblings follow each other.
    """
    parent = tree.parent[order]
    before = np.cumsum(sizes[order]) - sizes[order]
    starts = (
        np.flatnonzero(np.concatenate(([True], parent[1:] != parent[:-1]))) if len(order) else order
    )
    first = np.repeat(before[starts], np.diff(np.append(starts, len(order))))
    place = np.empty(len(order), np.int64)
    place[order] = before - first
    for nodes in _slices(tree.levels)[1:]:
        place[nodes] += place[tree.parent[nodes]]
    return place


def walk(tree: FrameTree) -> Ints:
    """The nodes in the order of a walk: each before what lies below it, and that before its next
    sibling.
    """
    return np.argsort(_visits(tree)[0])


def _visits(tree: FrameTree) -> tuple[Ints, Ints]:
    """When a walk enters each node, and when it leaves the last one below."""
    one_each = np.ones((len(tree), 1), np.int64)
    sizes = added_up(tree.parent, one_each, _slices(tree.levels))[:, 0]
    place = offsets(tree, sizes, np.arange(len(tree)))
    # Behind its parent: one step for the node itself.
    enter = place + tree.depth()
    leave = enter + sizes - 1
    return enter, leave


def _has_weight(own: Ints) -> Bools:
    has: Bools = own[:, 0] != 0
    for column in range(1, own.shape[1]):
        has |= own[:, column] != 0
    return has


def _and_above(up: Ints, chosen: Bools, levels: list[Ints]) -> Bools:
    """Those `chosen`, and all that are above one."""
    alive = chosen.copy()
    for nodes in reversed(levels[1:]):
        alive[up[nodes[alive[nodes]]]] = True
    return alive


def _slices(levels: list[int]) -> list[slice]:
    """The nodes of each level."""
    bounds = pairwise(levels)
    return [slice(first, last) for first, last in bounds]


def _joined(parts: list[Ints]) -> Ints:
    if not parts:
        return np.zeros(0, np.int64)
    return np.concatenate(parts)
