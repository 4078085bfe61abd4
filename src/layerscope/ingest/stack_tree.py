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

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct

NONE = -1
Int64s = np.ndarray


def _int32s() -> array[int]:
    return array("i")


class StackNodes(Struct):
    """Stacks by number: `parent` (NONE: outermost), `frame` and `depth` of each, int32."""

    parent: array[int] = field(default_factory=_int32s)
    frame: array[int] = field(default_factory=_int32s)
    depth: array[int] = field(default_factory=_int32s)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def push(self, stack: int, frame: int) -> int:
        """The stack with one frame more."""
        key = (stack, frame)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.frame)
            self.parent.append(stack)
            self.frame.append(frame)
            self.depth.append(self.depth[stack] + 1 if stack >= 0 else 0)
        return found

    def push_all(self, stack: int, frames: Sequence[int]) -> int:
        """The stack with these frames more, from the outside in."""
        known, push = self._known.get, self.push
        for frame in frames:
            found = known((stack, frame))
            stack = push(stack, frame) if found is None else found
        return stack

    def adopt(self, parent: Int64s, frame: Int64s, depth: Int64s) -> None:
        """Take over a whole tree, whose numbers become those of these stacks; there are none so
        far. `push` does not find them again.
        """
        for column, values in ((self.parent, parent), (self.frame, frame), (self.depth, depth)):
            column.frombytes(values.astype(np.int32).tobytes())

    def frames(self, stack: int, until: int = NONE) -> list[int]:
        """The frames of a stack from the outside in, without those of the stack `until` that it
        begins with.
        """
        found = []
        while stack not in (NONE, until):
            found.append(self.frame[stack])
            stack = self.parent[stack]
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
    outer: array[int] = field(default_factory=_int32s)
    anchors: dict[int, int] = field(default_factory=dict)
    # The frames of spans by what `chains` has for them.
    of_spans: Callable[[Sequence[int]], list[int]] = list
    adopted: int = 0  # so many stacks of `sampled` are the same in `fused`
    _fused: dict[tuple[int, int], int] = field(default_factory=dict)
    # By a stack of `fused` and one of `sampled`: the first with all frames of the second behind
    # those that it has already. Frames of spans are none of `sampled`, so it tells which these are.
    _grown: dict[tuple[int, int], int] = field(default_factory=dict)
    # By sampled stack: the last of it whose innermost frame has an anchor.
    _anchored: array[int] = field(default_factory=_int32s)

    def adopt(self, parent: Int64s, frame: Int64s, depth: Int64s) -> None:
        """Begin with a whole tree of sampled stacks (`StackNodes.adopt`)."""
        for tree in (self.sampled, self.fused):
            tree.adopt(parent, frame, depth)
        self.adopted = len(parent)
        self.outer.frombytes(np.full(self.adopted, NONE, np.int32).tobytes())

    def stack(self, sampled: int, chain: int) -> int:
        """The fused stack of a sampled one (NONE: not known) with these spans open (NONE: none)."""
        if chain == NONE:
            return self._grow(NONE, NONE, sampled)
        key = (sampled, chain)
        found = self._fused.get(key)
        if found is None:
            spans = self.of_spans(self.chains.frames(chain))
            found = self._fused[key] = self._interleaved(spans, sampled)
        return found

    def _grow(self, fused: int, known: int, sampled: int) -> int:
        """The stack `fused` with those frames of `sampled` that are not in `known`, with which that
        begins and of which `fused` has all.
        """
        waiting = []
        parent, grown = self.sampled.parent, self._grown
        found = None
        while sampled != known and found is None:
            if fused == NONE and sampled < self.adopted:
                found = sampled
                break
            found = grown.get((fused, sampled))
            if found is None:
                waiting.append(sampled)
                sampled = parent[sampled]
        stack = fused if found is None else found
        push, frame = self.fused.push, self.sampled.frame
        for one in reversed(waiting):
            stack = grown[fused, one] = push(stack, frame[one])
        return stack

    def _interleaved(self, spans: list[int], sampled: int) -> int:
        """The fused stack of these frames of open spans, from the outside in, among those of a
        sampled stack.
        """
        tree, fused = self.sampled, self.fused
        anchored = self._anchored_of(sampled)
        found = known = NONE  # as far as we are: the fused stack, and the sampled one
        waiting: list[int] = []  # spans that nothing there begins
        at = 0
        for span in spans:
            begins = self._begins(span, anchored, at)
            if begins < 0:
                waiting.append(span)
                continue
            function = anchored[begins]
            found = self._grow(found, known, tree.parent[function])
            found = fused.push_all(found, [*waiting, tree.frame[function], span])
            waiting, known, at = [], function, begins + 1
        cut = self.outer[sampled] if sampled >= 0 else NONE
        if known >= 0 and (cut < 0 or tree.depth[cut] < tree.depth[known]):
            cut = known
        found = self._grow(found, known, cut)
        return self._grow(fused.push_all(found, waiting), cut, sampled)

    def _begins(self, span: int, anchored: list[int], at: int) -> int:
        """The place of the next stack whose innermost frame begins such a span; NONE: there is
        none.
        """
        wanted = self.anchors.get(span)
        if wanted is None:
            return NONE
        frame, anchors = self.sampled.frame, self.anchors
        places = range(at, len(anchored))
        return next((i for i in places if anchors[frame[anchored[i]]] == wanted), NONE)

    def _anchored_of(self, sampled: int) -> list[int]:
        """The stacks that this one begins with whose innermost frame has an anchor, from the
        outside in.
        """
        tree, last = self.sampled, self._anchored
        for stack in range(len(last), len(tree.frame)):
            around = tree.parent[stack]
            inherited = last[around] if around >= 0 else NONE
            last.append(stack if tree.frame[stack] in self.anchors else inherited)
        found = []
        stack = last[sampled] if sampled >= 0 else NONE
        while stack != NONE:
            found.append(stack)
            around = tree.parent[stack]
            stack = last[around] if around >= 0 else NONE
        return found[::-1]


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
    pushed = [
        chains.push((pair >> 32) - 1, (pair & 0xFFFFFFFF) - 1)
        if pair & 0xFFFFFFFF
        else (pair >> 32) - 1
        for pair in pairs.tolist()
    ]
    return np.array(pushed, np.int64)[inverse]
