"""Stacks as a tree in which each is known by its parent and its innermost frame, and the fusion of
what was sampled with the spans that were open.

A *fused* stack has what was sampled with the modules, operators, ranges and primitives that were
open at the time: each inside of the function that begins such a span. A span that no function there
begins lies just outside of the one that begins the next span in it; without such a one behind all
frames of Python (or, without Python, behind those that every thread begins with) and outside of the
native frames below.

Stacks are given out in the order in which they are first seen, so a parent's number is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from layerscope.model.compiled import Compiled, compiled
from layerscope.model.distinct import distinct

NONE = -1
Int64s = np.ndarray
Int32s = np.ndarray


def _no_stacks() -> Int32s:
    return np.zeros(0, np.int32)


class StackNodes(Struct):
    """Stacks by number: `parent` (NONE: outermost), `frame` and `depth` of each, int32."""

    count: int = 0
    _nodes: Int32s = field(default_factory=lambda: np.zeros((3, 0), np.int32))
    # Which stack a parent and a frame make: where there is a library a table of its own, else this.
    _places: Int32s = field(default_factory=_no_stacks)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _adopted: int = 0

    @property
    def parent(self) -> Int32s:
        """The stack that each has one frame more than."""
        return self._nodes[0, : self.count]

    @property
    def frame(self) -> Int32s:
        """The innermost frame of each."""
        return self._nodes[1, : self.count]

    @property
    def depth(self) -> Int32s:
        """How many frames lie around that."""
        return self._nodes[2, : self.count]

    def push(self, stack: int, frame: int) -> int:
        """The stack with one frame more."""
        return self.push_all(stack, [frame])

    def push_all(self, stack: int, frames: Sequence[int]) -> int:
        """The stack with these frames more, from the outside in."""
        if not frames:
            return stack
        around = -1 - np.arange(len(frames))
        around[0] = stack
        return int(self.push_rows(around, np.array(frames))[-1])

    def push_rows(self, around: np.ndarray, frame: np.ndarray, merged: int = NONE) -> Int32s:
        """For each row the stack `around`, or that of an earlier row, -2 less its number, with one
        frame more. Frames `merged` inside of each other are one.
        """
        self.make_room(len(around))
        library = compiled()
        if library is None:
            return self._push_each(around.tolist(), frame.tolist(), merged)
        found = np.empty(len(around), np.int32)
        rows = (around.astype(np.int32), frame.astype(np.int32), len(around))
        self.count = library.call("push", *self.tree(self.count), *rows, merged, found)
        return found

    def _push_each(self, arounds: list[int], frames: list[int], merged: int) -> Int32s:
        parent, innermost_frame, depth = self._nodes
        found: list[int] = []
        for row, frame in zip(arounds, frames, strict=True):
            around = found[-2 - row] if row < NONE else row
            if around >= 0 and frame == merged == innermost_frame[around]:
                found.append(around)
                continue
            stack = self._known.setdefault((around, frame), self.count)
            if stack == self.count:
                parent[stack] = around
                innermost_frame[stack] = frame
                depth[stack] = depth[around] + 1 if around >= 0 else 0
                self.count += 1
            found.append(stack)
        return np.array(found, np.int32)

    def tree(self, used: int | np.ndarray) -> tuple[np.ndarray | int, ...]:
        """These stacks as native/tables/stacks.c takes them."""
        nodes, room = self.nodes
        places = self._places
        bits = len(places).bit_length() - 1
        return nodes, room, used, places, bits

    @property
    def nodes(self) -> tuple[np.ndarray, int]:
        """The same without finding any."""
        return self._nodes, self._nodes.shape[1]

    def make_room(self, more: int) -> None:
        """Have room for so many stacks more."""
        room = self._nodes.shape[1]
        if self.count + more <= room:
            return
        grown = np.empty((3, 2 * (self.count + more)), np.int32)
        grown[:, : self.count] = self._nodes[:, : self.count]
        self._nodes = grown
        library = compiled()
        if library is not None:
            room = grown.shape[1]
            bits = (2 * room).bit_length()
            self._places = np.zeros(1 << bits, np.int32)
            library.call("index", grown, room, self._adopted, self.count, self._places, bits)

    def adopt(self, parent: Int64s, frame: Int64s, depth: Int64s) -> None:
        """Take over a whole tree, whose numbers become those of these stacks; there are none so
        far. `push` does not find them again.
        """
        self.count = self._adopted = len(parent)
        self._nodes = np.array([parent, frame, depth], np.int32)

    def frames(self, stack: int) -> list[int]:
        """The frames of a stack from the outside in."""
        parent, frame, _ = self._nodes
        found = []
        while stack != NONE:
            found.append(int(frame[stack]))
            stack = int(parent[stack])
        return found[::-1]


class Fusion(Struct):
    """Makes fused stacks in `fused` of sampled ones in `sampled` and of chains of open spans in
    `chains`.

    `outer` says of each sampled stack where it is cut: the last of it that stays outside of the
    spans. `anchors`: frames of functions that begin spans, and frames of spans; those that belong
    together have the same number.
    """

    sampled: StackNodes = field(default_factory=StackNodes)
    chains: StackNodes = field(default_factory=StackNodes)
    fused: StackNodes = field(default_factory=StackNodes)
    outer: Int32s = field(default_factory=_no_stacks)
    anchors: dict[int, int] = field(default_factory=dict)
    # The frames of spans by what `chains` has for them.
    of_spans: Callable[[Sequence[int]], list[int]] = list
    adopted: int = 0  # so many stacks of `sampled` are the same in `fused`

    def adopt(self, parent: Int64s, frame: Int64s, depth: Int64s) -> None:
        """Begin with a whole tree of sampled stacks (`StackNodes.adopt`)."""
        for tree in (self.sampled, self.fused):
            tree.adopt(parent, frame, depth)
        self.adopted = len(parent)
        self.outer = np.full(self.adopted, NONE, np.int32)

    def stack(self, sampled: int, chain: int) -> int:
        """The fused stack of a sampled one (NONE: not known) with these spans open (NONE: none)."""
        return int(self.stacks(np.array([sampled]), np.array([chain]))[0])

    def stacks(self, sampled: np.ndarray, chain: np.ndarray) -> Int32s:
        """Those of several pairs."""
        known: dict[int, list[int]] = {NONE: []}
        spans = []
        for one in chain.tolist():
            if one not in known:
                known[one] = self.of_spans(self.chains.frames(one))
            spans.append(known[one])
        library = compiled()
        if library is not None:
            return self._with_library(library, sampled.astype(np.int32), spans)
        pairs = zip(sampled.tolist(), spans, strict=True)
        fused = [
            self._interleaved(open_, one) if open_ else self._alone(one) for one, open_ in pairs
        ]
        return np.array(fused, np.int32)

    def _with_library(self, library: Compiled, sampled: Int32s, spans: list[list[int]]) -> Int32s:
        """The fused stacks of sampled ones with the frames of the spans that are open in each."""
        frames = np.array([frame for opened in spans for frame in opened], np.int32)
        counts = list(map(len, spans))
        bounds = np.cumsum([0, *counts])
        tree, fused = self.sampled, self.fused
        deepest = int(tree.depth.max(initial=0)) + 1
        of = (*tree.nodes, self.outer, self.adopted, self._anchors_of(frames))
        path = np.empty(deepest, np.int32)
        found = np.empty(len(sampled), np.int32)
        used = np.zeros(1, np.int64)
        done = 0
        while done < len(sampled):
            fused.make_room(deepest + max(counts))
            used[0] = fused.count
            into = fused.tree(used)
            left = len(sampled) - done
            pairs = (sampled[done:], frames, bounds[done:], left)
            done += library.call("fuse", *into, *of, *pairs, path, found[done:])
            fused.count = int(used[0])
        return found

    def _anchors_of(self, frames: Int32s) -> Int32s:
        """By frame the number of its anchor, NONE where it has none; `frames`: those that are on no
        sampled stack.
        """
        sampled = self.sampled.frame
        most = max(int(sampled.max(initial=0)), int(frames.max(initial=0)), *self.anchors, 0)
        anchor_of = np.full(most + 1, NONE, np.int32)
        numbers = list(self.anchors.values())
        anchor_of[list(self.anchors)] = numbers
        return anchor_of

    def _alone(self, sampled: int) -> int:
        """The fused stack of a sampled one with no span open: it is the same."""
        frames = []
        while sampled >= self.adopted:
            frames.append(int(self.sampled.frame[sampled]))
            sampled = int(self.sampled.parent[sampled])
        return self.fused.push_all(sampled, frames[::-1])

    def _interleaved(self, spans: list[int], sampled: int) -> int:
        """The fused stack of these frames of open spans, from the outside in, among those of a
        sampled stack.
        """
        frames = self.sampled.frames(sampled)
        outer = self.outer[sampled] if sampled >= 0 else NONE
        cut = int(self.sampled.depth[outer]) + 1 if outer >= 0 else 0
        found: list[int] = []
        waiting: list[int] = []  # spans that nothing there begins
        at = 0
        for span in spans:
            begins = self._begins(span, frames, at)
            if begins < 0:
                waiting.append(span)
                continue
            found += [*frames[at:begins], *waiting, frames[begins], span]
            waiting, at = [], begins + 1
        cut = max(cut, at)
        return self.fused.push_all(NONE, [*found, *frames[at:cut], *waiting, *frames[cut:]])

    def _begins(self, span: int, frames: list[int], at: int) -> int:
        """The place of the next frame that begins such a span; NONE: there is none."""
        wanted = self.anchors.get(span)
        if wanted is None:
            return NONE
        return next(
            (i for i in range(at, len(frames)) if self.anchors.get(frames[i]) == wanted), NONE
        )


def innermost(start_ns: Int64s, end_ns: Int64s, parent: Int64s, at_ns: Int64s) -> Int64s:
    """The row of the innermost span that is open at each of these times; NONE: none is.

    The spans are those of one thread, by start and then from the outside in; `parent` is the row of
    the span that each lies in, NONE for none. One that begins at that time is open, one that ends
    then is not.
    """
    ever_open = np.flatnonzero(end_ns > start_ns)
    place = np.searchsorted(start_ns[ever_open], at_ns, side="right") - 1
    found: Int64s = np.append(ever_open, NONE)[place]
    over = np.flatnonzero(found >= 0)
    over = over[end_ns[found[over]] <= at_ns[over]]
    while len(over):
        found[over] = parent[found[over]]
        over = over[found[over] >= 0]
        over = over[end_ns[found[over]] <= at_ns[over]]
    return found


def chains_of(
    rows: Int64s,
    parent: Int64s,
    frames_of: Callable[[Int64s], Sequence[Int64s]],
    chains: StackNodes,
) -> Int64s:
    """The chain (in `chains`) of each of these rows of spans: the frames of the spans around it and
    its own.

    `parent`: the row around each row, NONE for none; `frames_of`: of rows, the frames of each: its
    outermost, those inside of these and so on, NONE for none.
    """
    levels = [distinct(rows[rows >= 0])]
    while len(levels[-1]):
        around = parent[levels[-1]]
        levels.append(distinct(around[around >= 0]))
    known = distinct(np.concatenate(levels))
    chain_of = np.full(len(known) + 1, NONE, np.int64)  # the last is of no row
    for level in reversed(levels):
        around = parent[level]
        place = np.where(around >= 0, np.searchsorted(known, around), len(known))
        chain = chain_of[place]
        for frame in frames_of(level):
            chain = _pushed(chains, chain, frame)
        chain_of[np.searchsorted(known, level)] = chain
    return chain_of[np.where(rows >= 0, np.searchsorted(known, rows), len(known))]


def _pushed(chains: StackNodes, chain: Int64s, frame: Int64s) -> Int64s:
    """Each chain with a frame more, NONE for none. Many spans are open within the same ones."""
    pairs, inverse = np.unique((chain + 1) << 32 | (frame + 1), return_inverse=True)
    pushed = (pairs >> 32) - 1
    has_frame = np.flatnonzero(pairs & 0xFFFFFFFF)
    frames = (pairs[has_frame] & 0xFFFFFFFF) - 1
    pushed[has_frame] = chains.push_rows(pushed[has_frame], frames)
    return pushed[inverse]
