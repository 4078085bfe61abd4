"""Flame graphs as blocks of the page: the trees of the whole recording, and what the page needs to
build others of the samples and spans that somebody chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.analyse.stacks import graphs
from layerscope.analyse.stacks.flame_layout import THINNEST, Drawn, draw
from layerscope.analyse.stacks.frame_rules import FrameRules, frame_rules
from layerscope.analyse.stacks.frames import LAYERS
from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.analyse.stacks.groups import UNKNOWN, labels_of_tracks
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.show.flame.markup import (
    about_frame,
    about_frames,
    about_graph,
    colour_class,
    layer_class,
    nodes,
    whole,
)
from layerscope.show.report.blocks import (
    DELTA,
    PLAIN,
    Block,
    IntColumn,
    column_block,
    json_block,
)
from layerscope.show.report.moments import rows_of_spans

RULES = ("flame frames", "flame rules", "flame numbers")
STEPS, ASKED = "flame steps", "flame asked"
# Columns of `nodes` whose neighbours are near each other.
_DELTAS = ("parent", "depth")


def graph_names(kind: str) -> tuple[str, ...]:
    """The names of the blocks of a kind of flame graph."""
    name = f"flame {kind}"
    return (name, f"{name} nodes", f"{name} inverted", f"{name} inverted nodes")


def graph_blocks(reader: Reader, kind: str) -> list[Block]:
    """A kind of flame graph, upright and inverted; where there is none, each says why."""
    try:
        graph = graphs.build(reader, Look(kind, least=THINNEST))
    except UsageError as error:
        problem = {"problem": f"{error}."}
        return [json_block(name, problem) for name in graph_names(kind)]
    turned = graphs.turned(graph, THINNEST)
    return [*_blocks_of(graph, f"flame {kind}"), *_blocks_of(turned, f"flame {kind} inverted")]


def compared_name(kind: str) -> str:
    """The name of the block of a differential flame graph."""
    return f"flame {kind} compared"


def compared_blocks(reader: Reader, other: Reader, kind: str) -> list[Block]:
    """What grew and what shrank since `other`; where there is nothing to compare, why."""
    name = compared_name(kind)
    try:
        graph = graphs.compare(reader, other, Look(kind, least=THINNEST))
    except UsageError as error:
        return [json_block(name, {"problem": f"{error}."})]
    drawn = draw(graph)
    shown = len(drawn.frame)
    about = {
        **about_graph(graph, drawn),
        "says": whole(graph),
        "notes": graph.notes,
        "thinnest_px": drawn.thinnest_px,
        "frames": about_frames(graph, drawn),
        "nodes": nodes(graph, drawn),
        "colours": ["other", *(colour_class(graph, drawn, place) for place in range(shown))],
    }
    return [json_block(name, about)]


def _blocks_of(graph: Graph, name: str) -> list[Block]:
    drawn = draw(graph)
    about = {
        **about_graph(graph, drawn),
        "says": whole(graph),
        "notes": graph.notes,
        "thinnest_px": drawn.thinnest_px,
        "frames": _coloured(graph, drawn),
    }
    columns = [
        IntColumn(column, np.array(values, np.int64), DELTA if column in _DELTAS else PLAIN)
        for column, values in nodes(graph, drawn).items()
    ]
    return [json_block(name, about), column_block(f"{name} nodes", columns)]


def _coloured(graph: Graph, drawn: Drawn) -> list[dict[str, Any]]:
    """What is said of each frame, and the class of its colour but of the whole."""
    described = about_frames(graph, drawn)
    used = np.unique(drawn.frame).tolist()
    for about, frame in zip(described[1:], used, strict=True):
        about["colour"] = layer_class(graph.frames[frame])
    return described


def rule_blocks(reader: Reader) -> list[Block]:
    """What becomes of each frame, and where and when samples were that the page chooses."""
    rules = frame_rules(reader)
    about = {
        "frames": [_described(rules, number) for number in range(len(rules.frames))],
        "waits": rules.waits,
        "workers": rules.workers,
        "importing": rules.importing,
        "unknown": rules.unknown,
        "no_frame": rules.no_frame,
        "layers": LAYERS,
        "groups": {by: list(labels_of_tracks(reader, by).items()) for by in UNKNOWN},
        "no_group": UNKNOWN,
    }
    by_number = [
        IntColumn("function", rules.function),
        IntColumn("layer", rules.layer),
        IntColumn("flags", rules.flags),
        IntColumn("imported", rules.imported + 1),
    ]
    by_row = [IntColumn("key", rules.key, DELTA), IntColumn("number", rules.number, DELTA)]
    return [
        json_block(RULES[0], about),
        column_block(RULES[1], by_number),
        column_block(RULES[2], by_row),
    ]


def _described(rules: FrameRules, number: int) -> dict[str, Any]:
    """What is said of a frame; of one that is drawn as another, no more than its name."""
    frame = rules.frames[number]
    if rules.function[number] != number:
        return {"name": frame.name}
    return {"name": frame.name, **about_frame(frame), "colour": layer_class(frame)}


def step_block(reader: Reader) -> Block:
    """The step of each sample, in the order of the block `samples`."""
    read = reader.arrays("samples", ["track", "at_ns", "step"])
    order = np.lexsort((read["at_ns"], read["track"]))
    return column_block(STEPS, [IntColumn("step", read["step"][order] + 1, DELTA)])


def asked_block(reader: Reader, spans: np.ndarray) -> Block:
    """Which primitive was asked for by which operator, as rows of the block `spans`; `spans`: the
    span of each row.
    """
    read = reader.arrays("primitives", ["span", "operator"])
    order = np.argsort(spans, kind="stable")
    sorted_spans = spans[order]
    primitive = rows_of_spans(read["span"], sorted_spans, order)
    operator = rows_of_spans(read["operator"], sorted_spans, order)
    is_known = (primitive >= 0) & (operator >= 0)
    columns = [
        IntColumn("primitive", primitive[is_known], DELTA),
        IntColumn("operator", operator[is_known], DELTA),
    ]
    return column_block(ASKED, columns)
