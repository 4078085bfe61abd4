"""The tree of operators, primitives and work of GPUs by name, as they lie in each other: exact,
from spans instead of samples.

Of operators the weight is their self time, so that the whole is the self time of the table
`operators`; the primitives that an operator asked for on its own thread are shown inside of it, as
parts of that time. Of primitives it is the self time of primitives alone. Of gpu it is the time of
work on GPUs, which is shown inside of the operator that asked for it, or of the call that launched
it where none is known; ranges that number steps are left out there. Where a long run was thinned, a
span counts as often as its weight says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.columns import Columns, has_name
from layerscope.analyse.stacks import frames as layers
from layerscope.analyse.stacks.frames import FrameTable, StackFrame
from layerscope.analyse.stacks.sample_reader import (
    Choice,
    chosen_rows,
    is_inside,
    no_module,
    places_of,
)
from layerscope.analyse.stacks.tree import NONE, Bools, Ints, by_level, without
from layerscope.model.errors import UsageError
from layerscope.model.layers import GPU, OPERATORS, PRIMITIVES

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

KINDS = (OPERATORS, PRIMITIVES, GPU)
_SHARE = "share"
_RANGE = "range"
# A range around each step: its name ends with the number of the step.
_NUMBERED = re.compile(r".*#\d+", re.DOTALL)
# By kind of link; an operator comes before the call.
_LINKS = ("launch_gpu", "operator_gpu")


class Spans(Struct, frozen=True):
    """Spans as nodes: `up` the one around each, `frame` its name, `own` (spans, 2): time in ns and
    number of spans.

    track, step: where and when, for those who group them.
    """

    up: Ints
    frame: Ints
    own: Ints
    track: Ints
    step: Ints


def read_spans(reader: Reader, frames: FrameTable, kind: str, choice: Choice) -> Spans:
    """The spans of a recording with the weights of `kind`, as far as `choice` leaves them."""
    names = ["span", "parent", "track", "layer", "kind", "name", "self_ns", "weight", "step"]
    names += ["phase"] if choice.phase is not None else []
    names += ["module"] if choice.module is not None else []
    columns = reader.arrays(
        "spans", [*names, *(["start_ns"] if choice.seconds is not None else [])]
    )
    if "start_ns" in columns:
        columns["at_ns"] = columns["start_ns"]
    chosen = chosen_rows(reader, columns, choice, len(columns["span"]))
    if choice.module is not None:
        chosen &= np.isin(columns["module"], modules_called(reader, choice.module))
    span = columns["span"]
    order = np.argsort(span, kind="stable")
    columns = {
        name: values if name.endswith(".names") else values[order]
        for name, values in columns.items()
    }
    span, chosen = columns["span"], chosen[order]
    frame = _frames(columns, frames)
    weights = columns["self_ns"] * columns["weight"]
    is_share = has_name(columns, "kind", _SHARE)
    primitive = has_name(columns, "layer", PRIMITIVES) & ~is_share & chosen
    up = places_of(span, columns["parent"]) if len(span) else span
    if kind == PRIMITIVES:
        time = np.where(primitive, weights, 0)
        counted = primitive
    elif kind == GPU:
        counted = has_name(columns, "layer", GPU) & chosen
        time = np.where(counted, weights, 0)
        up = _below_operators(reader, columns, up)
    else:
        operator = has_name(columns, "layer", OPERATORS) & chosen
        time = np.where(operator, weights, 0)
        inside = _inside_operators(
            reader, span, columns["track"], primitive, operator, weights, time
        )
        counted = operator | inside
    own = np.stack([time, np.where(counted, columns["weight"], 0)], axis=1).astype(np.int64)
    return Spans(
        up, frame, own, columns["track"].astype(np.int64), columns["step"].astype(np.int64)
    )


def _below_operators(reader: Reader, columns: Columns, up: Ints) -> Ints:
    """What is around each span, with work of GPUs in what asked for it, without ranges of steps."""
    span = columns["span"]
    links = reader.arrays("links", ["from_span", "to_span", "kind"])
    around = up.copy()
    for kind in _LINKS:
        its = has_name(links, "kind", kind)
        work = places_of(span, links["to_span"][its])
        asking = places_of(span, links["from_span"][its])
        is_known = (work >= 0) & (asking >= 0)
        around[work[is_known]] = asking[is_known]
    names = columns["name.names"].tolist()
    numbered = [code for code, name in enumerate(names) if _NUMBERED.fullmatch(str(name))]
    is_step = np.isin(columns["name"], numbered) & has_name(columns, "kind", _RANGE)
    return np.where(is_step, NONE, without(around, ~is_step, by_level(around)))


def _inside_operators(
    reader: Reader,
    span: Ints,
    track: Ints,
    primitive: Bools,
    operator: Bools,
    weights: Ints,
    time: Ints,
) -> Bools:
    """Give primitives their time and take it from the operator that asked for them on its thread.

    An operator whose self time is shorter than that of its primitives keeps it: the whole stays
    what it was.
    """
    rows = reader.arrays("primitives", ["span", "operator"])
    own = places_of(span, rows["span"])
    asking = places_of(span, rows["operator"])
    known = (own >= 0) & (asking >= 0)
    own = own[known]
    asking = asking[known]
    fits = primitive[own] & operator[asking] & (track[own] == track[asking])
    own = own[fits]
    asking = asking[fits]
    taken = np.zeros(len(span), np.int64)
    np.add.at(taken, asking, weights[own])
    enough = taken <= time
    gives = enough[asking]
    own = own[gives]
    asking = asking[gives]
    time[own] = weights[own]
    np.subtract.at(time, asking, weights[own])
    found = np.zeros(len(span), np.bool_)
    found[own] = True
    return found


def _frames(columns: Columns, frames: FrameTable) -> Ints:
    """The number of the frame of each span: its name within its layer."""
    layer_names = columns["layer.names"]
    names = columns["name.names"]
    size = max(len(names), 1)
    code = columns["layer"].astype(np.int64) * size + columns["name"]
    known, at = np.unique(code, return_inverse=True)
    found = []
    for layer_and_name in known.tolist():
        layer, name = divmod(layer_and_name, size)
        layer_number = layers.LAYERS.index(str(layer_names[layer]))
        found.append(StackFrame(layer_number, str(names[name])))
    return frames.numbers(found)[at]


def modules_called(reader: Reader, path: str) -> Ints:
    """Keys of the module at `path` and of those it holds; UsageError that lists the modules."""
    columns = reader.arrays("modules", ["module", "path"])
    paths = [str(text) for text in columns["path"]]
    inside = np.array([is_inside(text, path) for text in paths], np.bool_)
    if not inside.any():
        raise UsageError(no_module(path, sorted(paths)))
    modules = columns["module"][inside]
    return modules.astype(np.int64)
