"""All spans of a recording as a block of columns, by track and start.

What many spans have in common stands once: a class is a name with its kind, layer, module and line.
The page works out for itself what follows from the order: parents, and self times but for those
of `self_exceptions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.analyse.self_times import nested_parents, nested_self_ns
from layerscope.model.layers import KINDS, PHASES, SPAN_LAYERS
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import DELTA, Block, IntColumn, column_block, json_block

_CLASS = ("name", "kind", "layer", "module", "line")
# Of how many pairs of numbers it is noted which there are; of more they are sorted.
_MOST_PAIRS = 1 << 26


@dataclass(frozen=True, slots=True)
class SpanBlocks:
    """The blocks, and the keys of the spans in the order of the page: what links name."""

    blocks: list[Block]
    keys: np.ndarray


def span_blocks(reader: Reader, origin_ns: int) -> SpanBlocks:
    """The spans of `reader`'s recording; times count from `origin_ns`."""
    spans = _OrderedSpans(reader)
    start_ns = spans.start_ns - origin_ns
    tracks, begins = np.unique(spans.track, return_index=True)
    classes = _Classes(spans)
    about = {
        "tracks": tracks.tolist(),
        "begins": begins.tolist(),
        "classes": classes.listed(spans),
        "names": spans.texts("name"),
        "lines": spans.texts("line"),
        "kinds": list(KINDS),
        "layers": list(SPAN_LAYERS),
        "phases": list(PHASES),
        "self_exceptions": _self_exceptions(spans),
        "unfinished": np.flatnonzero(spans.column("unfinished")).tolist(),
        "is_thinned": bool((spans.column("weight") != 1).any()),
    }
    times = column_block("spans", _times(spans, start_ns, begins, classes))
    details = column_block("span_details", _details(spans))
    blocks = [json_block("span_classes", about), times, details]
    return SpanBlocks(blocks, spans.column("span"))


def _times(
    spans: _OrderedSpans, start_ns: np.ndarray, begins: np.ndarray, classes: _Classes
) -> Iterator[IntColumn]:
    yield IntColumn("start", _from_neighbour(start_ns, begins))
    yield IntColumn("dur", spans.column("dur_ns"))
    yield IntColumn("class", classes.of_span)
    yield IntColumn("depth", spans.depth)
    yield IntColumn("step", spans.column("step") + 1, DELTA)


def _details(spans: _OrderedSpans) -> Iterator[IntColumn]:
    yield IntColumn("phase", _phase_numbers(spans))
    yield IntColumn("args", spans.column("args") + 1, DELTA)
    yield IntColumn("weight", spans.column("weight"))


class _OrderedSpans:
    """The columns of all spans by track, then start, then depth: a parent before what lies in it.
    One is read when somebody asks for it: of ten million spans each takes 40 or 80 MB.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._texts: dict[str, list[Any]] = {}
        read = reader.arrays("spans", ["track", "start_ns", "depth"])
        order = np.lexsort((read["depth"], read["start_ns"], read["track"]))
        self._order = order.astype(np.int32)
        self.track = read["track"][self._order]
        self.start_ns = read["start_ns"][self._order]
        self.depth = read["depth"][self._order]

    def __len__(self) -> int:
        return len(self._order)

    def column(self, name: str) -> np.ndarray:
        """A column, or the numbers of its texts; -1: null."""
        read = self._reader.arrays("spans", [name])
        if f"{name}.names" in read:
            self._texts[name] = read[f"{name}.names"].tolist()
        return np.asarray(read[name][self._order])

    def texts(self, name: str) -> list[Any]:
        """What the numbers of a column that was read mean."""
        return self._texts[name]


class _Classes:
    """Which class each span has, and what the classes are: a number for each of `_CLASS`."""

    def __init__(self, spans: _OrderedSpans) -> None:
        self.of_span = np.zeros(len(spans), np.int32)
        self._values: dict[str, np.ndarray] = {}
        for name in _CLASS:
            self._divide(name, spans.column(name))

    def _divide(self, name: str, values: np.ndarray) -> None:
        """Tell spans of a class apart by another column."""
        count = int(values.max(initial=-1)) + 2
        pairs = self.of_span.astype(np.int64) * count + (values + 1)
        found, self.of_span = _numbered(pairs)
        before = found // count
        self._values = {known: of[before] for known, of in self._values.items()}
        self._values[name] = found % count - 1

    def listed(self, spans: _OrderedSpans) -> list[list[int]]:
        """[name, kind, layer, module, line] of each class, as numbers; -1: it has none."""
        kind_of = _numbers_in(spans.texts("kind"), KINDS)
        layer_of = _numbers_in(spans.texts("layer"), SPAN_LAYERS)
        found = {}
        for name in _CLASS:
            found[name] = self._values[name].tolist()
        found["kind"] = [kind_of[kind] for kind in found["kind"]]
        found["layer"] = [layer_of[layer] for layer in found["layer"]]
        columns = [found[name] for name in _CLASS]
        return list(map(list, zip(*columns, strict=True)))


def _numbered(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers in order, and for each of `pairs` the place of its own among them."""
    most = int(pairs.max(initial=0)) + 1
    if most > _MOST_PAIRS:
        found, places = np.unique(pairs, return_inverse=True)
        return found, places.astype(np.int32)
    is_there = np.zeros(most, np.bool_)
    is_there[pairs] = True
    found = np.flatnonzero(is_there)
    place = np.zeros(most, np.int32)
    place[found] = np.arange(len(found))
    return found, place[pairs]


def _numbers_in(names: list[Any], known: tuple[str, ...]) -> list[int]:
    numbers = []
    for name in names:
        numbers.append(known.index(name))
    return numbers


def _phase_numbers(spans: _OrderedSpans) -> np.ndarray:
    """1 + the place of each span's phase in PHASES; 0: it lies in no step."""
    phase = spans.column("phase")
    known = _numbers_in(spans.texts("phase"), PHASES)
    number = np.array([0, *(place + 1 for place in known)])
    return np.asarray(number[phase + 1])


def _from_neighbour(start_ns: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The difference to the span before on the same track; the first one of each has its start."""
    difference = np.diff(start_ns, prepend=0)
    difference[begins] = start_ns[begins]
    return difference


def _self_exceptions(spans: _OrderedSpans) -> list[list[int]]:
    """[row, self_ns] where the self time does not follow from the order, depths and layers."""
    dur_ns = spans.column("dur_ns")
    parent = nested_parents(spans.track, spans.depth, spans.start_ns, dur_ns)
    derived = nested_self_ns(parent, dur_ns, spans.column("layer"))
    self_ns = spans.column("self_ns")
    rows = np.flatnonzero(derived != self_ns)
    found: list[list[int]] = np.column_stack((rows, self_ns[rows])).tolist()
    return found
