"""How long calls of each shape take: of a model that generates, a long one for the prompt and many
short ones for the tokens.

The shape of a call is that of the first thing in it whose inputs were recorded (`--shapes`). A few
shapes with nearly all the time are worth a line each; where nearly every call has one of its own,
none is.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.columns import has_name
from layerscope.analyse.shapes import words
from layerscope.analyse.step_times import Arrays, Int64s, MeasuredSteps, percentile
from layerscope.model.layers import ANSWERING, MODULES
from layerscope.recording.reader import Reader

MOST_SHAPES = 4
# These have that part of the time together.
LEAST_SHARE = 0.8
_BEGIN = '{"shapes"'
_COLUMNS = ["step", "track", "start_ns", "layer", "args"]


class CallsOfShape(Struct, frozen=True):
    """The measured calls with inputs of one shape."""

    shape: str
    calls: int
    p50_ns: int
    p95_ns: int
    share: float


def calls_by_shape(reader: Reader, steps: MeasuredSteps, process_of: Int64s) -> list[CallsOfShape]:
    """The shapes, most time first; empty where they were not recorded, or tell nothing."""
    if steps.rule not in ANSWERING:
        return []
    args = reader.arrays("args", ["args", "json"])
    shapes = {}
    for key, text in zip(args["args"].tolist(), args["json"].tolist(), strict=True):
        if text.startswith(_BEGIN):
            shapes[key] = words(text)
    if not shapes:
        return []
    with_shapes = np.array(list(shapes), np.int64)
    shape_of = _first_shapes(reader, steps, process_of, with_shapes)
    slots = steps.slots()[steps.measured]
    of_call = shape_of[slots]
    dur_ns = steps.columns["dur_ns"][steps.measured]
    known = of_call >= 0
    return _summed(shapes, of_call[known], dur_ns[known])


def _first_shapes(
    reader: Reader, steps: MeasuredSteps, process_of: Int64s, with_shapes: Int64s
) -> Int64s:
    """By slot of a step, the arguments of the first span in it that has shapes; -1: none has."""
    found = np.full(steps.slot_count, -1, np.int64)
    first_ns = np.full(steps.slot_count, np.iinfo(np.int64).max)
    for spans in reader.pieces("spans", _COLUMNS):
        is_told = np.isin(spans["args"], with_shapes)
        is_told &= spans["step"] >= 0
        order = _by_start(spans, np.flatnonzero(is_told))
        first_slot = process_of[spans["track"][order]] * steps.step_slots
        slot, at = np.unique(first_slot + spans["step"][order], return_index=True)
        rows = order[at]
        is_earlier = spans["start_ns"][rows] < first_ns[slot]
        rows, slot = rows[is_earlier], slot[is_earlier]
        first_ns[slot] = spans["start_ns"][rows]
        found[slot] = spans["args"][rows]
    return found


def _by_start(spans: Arrays, rows: Int64s) -> Int64s:
    """Rows in the order of their starts; of those that start together modules come first."""
    is_module = has_name(spans, "layer", MODULES)[rows]
    order = np.lexsort((~is_module, spans["start_ns"][rows]))
    ordered: Int64s = rows[order]
    return ordered


def _summed(shapes: dict[int, str], of_call: Int64s, dur_ns: Int64s) -> list[CallsOfShape]:
    whole_ns = max(int(dur_ns.sum()), 1)
    found = []
    names = [shapes[key] for key in of_call.tolist()]
    named = np.array(names, object)
    for shape in set(names):
        own_ns = dur_ns[named == shape]
        one = _calls(shape, own_ns, whole_ns)
        found.append(one)
    found.sort(key=lambda one: one.share, reverse=True)
    shown = found[:MOST_SHAPES]
    share = sum(one.share for one in shown)
    if len(found) < 2 or share < LEAST_SHARE:
        return []
    return shown


def _calls(shape: str, dur_ns: Int64s, whole_ns: int) -> CallsOfShape:
    share = int(dur_ns.sum()) / whole_ns
    p50_ns = percentile(dur_ns, 50)
    p95_ns = percentile(dur_ns, 95)
    return CallsOfShape(shape, len(dur_ns), p50_ns, p95_ns, share)
