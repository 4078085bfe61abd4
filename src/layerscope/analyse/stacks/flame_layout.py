"""Which frames of a flame graph are drawn and where: siblings beside each other, the heaviest
first.

What is too thin to be seen is left out, and counted. A picture has at most `MOST_DRAWN` frames, so
that a browser can show it however many stacks there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from layerscope.analyse.result import BYTES, COUNT, NS, SHARE, Result, ResultColumn, of_arrow
from layerscope.analyse.stacks.frames import LAYERS
from layerscope.analyse.stacks.graphs import Graph
from layerscope.analyse.stacks.groups import STEP
from layerscope.analyse.stacks.tree import NONE, Bools, FrameTree, Ints, of_frames, offsets

WIDTH_PX = 1200
THINNEST_PX = 0.1
# Of the whole: what `graphs.Look.least` may be for a picture.
THINNEST = THINNEST_PX / WIDTH_PX
MOST_DRAWN = 10_000
_MOST_GONE = 1000
# How sure it is that a change is more than the chance of sampling: 95 %.
SURE = 1.96
_MOST_ROWS = 1000
# How columns of weights end.
_SUFFIXES = {NS: "_ns", BYTES: "_bytes"}


class Drawn(Struct, frozen=True):
    """The frames that are drawn, a parent before its children. Weights are in the unit of the
    graph.

    node: place in the tree of the graph. parent: place among the drawn, NONE. start: where it
    begins, 0 to `whole`. count: number of samples. left_out: frames in drawn ones that are not
    drawn themselves, nor what they hold; each is thinner than `thinnest_px` of WIDTH_PX. change,
    sure, count_before: where two recordings are compared, change of the weight per step (or
    second), whether it is more than chance, and the number of samples before; else empty.

    is_gone: only the recording before has it. These stand behind all others; `before` is their
    weight there, and `start` counts in that: of the outermost of them beside each other.
    """

    node: Ints
    parent: Ints
    depth: Ints
    frame: Ints
    start: Ints
    total: Ints
    own: Ints
    count: Ints
    whole: int
    left_out: int
    thinnest_px: float
    change: NDArray[np.float64]
    sure: Bools
    count_before: Ints
    is_gone: Bools
    before: Ints


def draw(graph: Graph) -> Drawn:
    """The frames to draw of `graph`."""
    drawn, place = _draw(graph)
    if graph.compared is None:
        return drawn
    return _with_gone(graph, drawn, place)


def _draw(graph: Graph) -> tuple[Drawn, Ints]:
    """Those that the recording itself has, and where each node of the tree is among them."""
    tree, totals = graph.tree, graph.tree.totals()
    weight = totals[:, 0]
    whole = graph.whole
    least = max(1, int(np.ceil(whole * THINNEST_PX / WIDTH_PX)))
    if np.count_nonzero(weight >= least) > MOST_DRAWN:
        least = int(np.partition(weight, -MOST_DRAWN)[-MOST_DRAWN]) + 1
    kept = np.flatnonzero(weight >= least)
    place = np.full(len(tree) + 1, NONE)
    place[kept] = np.arange(len(kept))
    parent = place[tree.parent[kept]]
    levels = np.searchsorted(kept, tree.levels).tolist()
    small = FrameTree(parent, tree.frame[kept], tree.own[kept], levels)
    heaviest = -weight[kept]
    if graph.by == STEP and not graph.is_inverted:
        heaviest[parent == NONE] = 0  # steps follow each other as they ran
    start = offsets(small, weight[kept], np.lexsort((tree.frame[kept], heaviest, parent)))
    change, sure = _changes(graph, totals[kept])
    drawn = Drawn(
        kept,
        parent,
        small.depth(),
        small.frame,
        start,
        weight[kept],
        tree.own[kept, 0],
        totals[kept, 1],
        whole,
        _left_out(tree, weight, weight >= least),
        max(THINNEST_PX, least * WIDTH_PX / max(whole, 1)),
        change,
        sure,
        np.zeros(0, np.int64) if graph.compared is None else totals[kept, 3],
        np.zeros(len(kept), np.bool_),
        np.zeros(len(kept), np.int64),
    )
    return drawn, place


def _with_gone(graph: Graph, drawn: Drawn, place: Ints) -> Drawn:
    """`drawn` with the frames that only the recording before has, where their callers are drawn."""
    tree, totals = graph.tree, graph.tree.totals()
    before = totals[:, 2]
    least = max(1, int(np.ceil(int(tree.whole()[2]) * THINNEST)))
    is_gone = (totals[:, 0] == 0) & (before >= least)
    if np.count_nonzero(is_gone) > _MOST_GONE:
        is_gone &= before > np.partition(before[is_gone], -_MOST_GONE)[-_MOST_GONE]
    nodes: list[int] = []
    for node in np.flatnonzero(is_gone).tolist():
        above = int(tree.parent[node])
        if above < 0 or place[above] >= 0:
            place[node] = len(drawn.node) + len(nodes)
            nodes.append(node)
    gone = np.array(nodes, np.int64)
    parent = place[tree.parent[gone]]
    change, sure = _changes(graph, totals[gone])
    nothing = np.zeros(len(gone), np.int64)
    return replace(
        drawn,
        node=np.append(drawn.node, gone),
        parent=np.append(drawn.parent, parent),
        depth=np.append(drawn.depth, tree.depth_of(gone)),
        frame=np.append(drawn.frame, tree.frame[gone]),
        start=np.append(drawn.start, _starts(parent - len(drawn.node), before[gone])),
        total=np.append(drawn.total, nothing),
        own=np.append(drawn.own, nothing),
        count=np.append(drawn.count, nothing),
        change=np.append(drawn.change, change),
        sure=np.append(drawn.sure, sure),
        count_before=np.append(drawn.count_before, totals[gone, 3]),
        is_gone=np.append(drawn.is_gone, np.ones(len(gone), np.bool_)),
        before=np.append(drawn.before, before[gone]),
    )


def _starts(parent: Ints, weight: Ints) -> list[int]:
    """Where each begins when siblings stand beside each other, the heaviest first. `parent` < 0:
    the outermost. A parent is before its children.
    """
    starts, taken = [0] * len(parent), dict[int, int]()
    inside: dict[int, list[int]] = {}
    for place in np.argsort(-weight, kind="stable").tolist():
        inside.setdefault(max(int(parent[place]), NONE), []).append(place)
    for above in range(NONE, len(parent)):
        begin = starts[above] if above >= 0 else 0
        for place in inside.get(above, ()):
            starts[place] = begin + taken.get(above, 0)
            taken[above] = taken.get(above, 0) + int(weight[place])
    return starts


def _left_out(tree: FrameTree, weight: Ints, kept: Bools) -> int:
    """How many frames are left out whose caller is not."""
    is_out = (weight > 0) & ~kept
    is_outermost = tree.parent < 0
    has_kept_caller = is_outermost | kept[tree.parent]
    return int(np.count_nonzero(is_out & has_kept_caller))


def _changes(graph: Graph, totals: Ints) -> tuple[NDArray[np.float64], Bools]:
    """By how much the weight of each changed per unit, and whether that is more than sampling alone
    explains.
    """
    if graph.compared is None:
        return np.zeros(0), np.zeros(0, np.bool_)
    now, before = totals[:, 0] / graph.compared.units, totals[:, 2] / graph.compared.units_before
    change = now - before
    if not graph.is_sampled:
        return change, change != 0
    # So many samples give the weight to within one part in their root.
    error = np.hypot(
        now / np.sqrt(np.maximum(totals[:, 1], 1)), before / np.sqrt(np.maximum(totals[:, 3], 1))
    )
    return change, np.abs(change) > SURE * error


class Heavy(Struct, frozen=True):
    """A frame wherever it is: its own and total weight, and by how much its own changed per step
    (or second).
    """

    frame: int
    own: int
    total: int
    change: float
    sure: bool


def heaviest(graph: Graph) -> list[Heavy]:
    """The frames with most weight of their own, of a comparison those that changed most; recursion
    counts once.
    """
    own, totals = of_frames(graph.upright, len(graph.frames))
    if graph.compared is not None:
        change, sure = _changes(graph, own)
    else:
        change = np.zeros(len(own))
        sure = np.zeros(len(own), bool)
    most_first = (-totals[:, 0], -own[:, 0], -np.abs(change))
    order = np.lexsort(most_first)[:_MOST_ROWS]
    has_weight = totals[order].any(axis=1)
    shown = order[has_weight]
    return [
        Heavy(
            int(frame),
            int(own[frame, 0]),
            int(totals[frame, 0]),
            float(change[frame]),
            bool(sure[frame]),
        )
        for frame in shown
    ]


def table(graph: Graph) -> Result:
    """Every frame of the tree as a row, a parent before its children; of a comparison also what was
    before.
    """
    tree, totals = graph.tree, graph.tree.totals()
    suffix = _SUFFIXES.get(graph.unit, "")
    whole = max(graph.whole, 1)
    frames = [graph.frames[number] for number in tree.frame.tolist()]
    given: list[tuple[ResultColumn, Any]] = [
        (ResultColumn("node", "int64", "", "key of the frame in this tree"), np.arange(len(tree))),
        (
            ResultColumn("parent", "int64", "", "the frame it lies in"),
            pa.array(tree.parent, mask=tree.parent < 0),
        ),
        (ResultColumn("depth", "int64", "", "frames around it"), tree.depth()),
        (
            ResultColumn("layer", "string", "", "its layer"),
            [LAYERS[frame.layer] for frame in frames],
        ),
        (
            ResultColumn("name", "string", "", "its name"),
            [frame.name or frame.label for frame in frames],
        ),
        (
            ResultColumn("file", "string", "", "its source file or library"),
            [frame.file or None for frame in frames],
        ),
        (
            ResultColumn("line", "int64", "", "its line"),
            [frame.line if frame.line >= 0 else None for frame in frames],
        ),
        (
            ResultColumn(f"own{suffix}", "int64", graph.unit, "weight that lies in no frame in it"),
            tree.own[:, 0],
        ),
        (ResultColumn(f"total{suffix}", "int64", graph.unit, "its weight"), totals[:, 0]),
        (
            ResultColumn("total_share", "float64", SHARE, "its weight as a fraction of the whole"),
            totals[:, 0] / whole,
        ),
        (ResultColumn("count", "int64", COUNT, "samples, spans or blocks in it"), totals[:, 1]),
    ]
    if graph.compared is not None:
        change, sure = _changes(graph, totals)
        per = graph.compared.per
        given += [
            (
                ResultColumn(f"total_before{suffix}", "int64", graph.unit, "its weight before"),
                totals[:, 2],
            ),
            (
                ResultColumn("count_before", "int64", COUNT, "how many were in it before"),
                totals[:, 3],
            ),
            (
                ResultColumn(
                    f"change{suffix}", "float64", graph.unit, f"change per {per}", signed=True
                ),
                change,
            ),
            (ResultColumn("sure", "bool", "", "whether the change is more than chance"), sure),
        ]
    columns = tuple(column for column, _ in given)
    arrays = [pa.array(values, pa.type_for_alias(column.type)) for column, values in given]
    data = pa.table(arrays, names=[column.name for column in columns])
    return of_arrow("flame", columns, data, notes=graph.notes, totals={f"own{suffix}": graph.whole})
