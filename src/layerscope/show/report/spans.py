"""All spans of a recording as a block of columns, by track and start.

What many spans have in common stands once: a class is a name with its kind, layer, module and line.
The page works out for itself what follows from the order: parents, and self times but for those
of `self_exceptions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.analyse.self_times import nested_parents, nested_self_ns
from layerscope.model.layers import KINDS, PHASES, SPAN_LAYERS
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import DELTA, Block, IntColumn, column_block, json_block

_READ = [
    "span",
    "track",
    "depth",
    "start_ns",
    "dur_ns",
    "self_ns",
    "layer",
    "kind",
    "name",
    "line",
    "module",
    "step",
    "phase",
    "args",
    "weight",
    "unfinished",
]
_CLASS = ("name", "kind", "layer", "module", "line")
# What a key may be without an overflow.
_MOST_KEYS = 2**62

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class SpanBlocks:
    """The blocks, and the keys of the spans in the order of the page: what links name."""

    blocks: list[Block]
    keys: np.ndarray


def span_blocks(reader: Reader, origin_ns: int) -> SpanBlocks:
    """The spans of `reader`'s recording; times count from `origin_ns`."""
    columns = _in_order(reader.arrays("spans", _READ))
    columns["start_ns"] -= origin_ns
    row_of_class, class_rows = _classes(columns)
    tracks, begins = np.unique(columns["track"], return_index=True)
    about = {
        "tracks": tracks.tolist(),
        "begins": begins.tolist(),
        "classes": _class_list(columns, class_rows),
        "names": _texts(columns, "name"),
        "lines": _texts(columns, "line"),
        "kinds": list(KINDS),
        "layers": list(SPAN_LAYERS),
        "phases": list(PHASES),
        "self_exceptions": _self_exceptions(columns),
        "unfinished": np.flatnonzero(columns["unfinished"]).tolist(),
        "is_thinned": bool((columns["weight"] != 1).any()),
    }
    times = column_block(
        "spans",
        [
            IntColumn("start", _from_neighbour(columns["start_ns"], begins)),
            IntColumn("dur", columns["dur_ns"]),
            IntColumn("class", row_of_class),
            IntColumn("depth", columns["depth"]),
            IntColumn("step", columns["step"] + 1, DELTA),
        ],
    )
    details = column_block(
        "span_details",
        [
            IntColumn("phase", _phase_numbers(columns)),
            IntColumn("args", columns["args"] + 1, DELTA),
            IntColumn("weight", columns["weight"]),
        ],
    )
    return SpanBlocks([json_block("span_classes", about), times, details], columns["span"])


def _in_order(read: Arrays) -> Arrays:
    """By track, then start, then depth: a parent before what lies in it. `read` is used up, so that
    no column is in memory twice.
    """
    order = np.lexsort((read["depth"], read["start_ns"], read["track"]))
    found = {}
    for name in list(read):
        values = read.pop(name)
        found[name] = values if name.endswith(".names") else values[order]
    return found


def _classes(columns: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The class of each span, and a span of each class."""
    key = np.zeros(len(columns["span"]), np.int64)
    most = 1
    for name in _CLASS:
        values = columns[name].astype(np.int64) + 1
        count = int(values.max(initial=0)) + 1
        if most > _MOST_KEYS // count:
            key = np.unique(key, return_inverse=True)[1]
            most = len(key)
        key = key * count + values
        most *= count
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    return row, first


def _class_list(columns: Arrays, rows: np.ndarray) -> list[list[int]]:
    """[name, kind, layer, module, line] of each class, as numbers; -1: it has none."""
    kind_of = _numbers_in(columns["kind.names"], KINDS)
    layer_of = _numbers_in(columns["layer.names"], SPAN_LAYERS)
    found = {}
    for name in _CLASS:
        found[name] = columns[name][rows].tolist()
    kinds = [kind_of[kind] for kind in found["kind"]]
    layers = [layer_of[layer] for layer in found["layer"]]
    values = zip(found["name"], kinds, layers, found["module"], found["line"], strict=True)
    return [list(of_class) for of_class in values]


def _numbers_in(names: np.ndarray, known: tuple[str, ...]) -> list[int]:
    numbers = []
    for name in names.tolist():
        numbers.append(known.index(name))
    return numbers


def _phase_numbers(columns: Arrays) -> np.ndarray:
    """1 + the place of each span's phase in PHASES; 0: it lies in no step."""
    number = np.array([0, *(place + 1 for place in _numbers_in(columns["phase.names"], PHASES))])
    return np.asarray(number[columns["phase"] + 1])


def _texts(columns: Arrays, name: str) -> list[Any]:
    texts: list[Any] = columns[f"{name}.names"].tolist()
    return texts


def _from_neighbour(start_ns: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The difference to the span before on the same track; the first one of each has its start."""
    difference = np.diff(start_ns, prepend=0)
    difference[begins] = start_ns[begins]
    return difference


def _self_exceptions(columns: Arrays) -> list[list[int]]:
    """[row, self_ns] where the self time does not follow from the order, depths and layers."""
    parent = nested_parents(
        columns["track"], columns["depth"], columns["start_ns"], columns["dur_ns"]
    )
    derived = nested_self_ns(parent, columns["dur_ns"], columns["layer"])
    rows = np.flatnonzero(derived != columns["self_ns"])
    found: list[list[int]] = np.column_stack((rows, columns["self_ns"][rows])).tolist()
    return found
