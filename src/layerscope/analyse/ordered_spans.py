"""All spans of a recording by track, start and depth, and what many of them have in common.

The order is that of the report's page: a row is a place in it. Its blocks (`show/report/spans.py`)
and the files that the server of a large one reads (`analyse/timeline`) are made of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.model.layers import KINDS, PHASES, SPAN_LAYERS
from layerscope.recording.reader import Reader

_CLASS = ("name", "kind", "layer", "module", "line")
# Of how many pairs of numbers it is noted which there are; of more they are sorted.
_MOST_PAIRS = 1 << 26


class OrderedSpans:
    """The columns of all spans by track, then start, then depth: a parent before what lies in it.
    One is read when somebody asks for it: of ten million spans each takes 40 or 80 MB.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._texts: dict[str, list[Any]] = {}
        read = reader.arrays("spans", ["track", "start_ns", "depth"])
        # None: they are in this order already.
        self._order: np.ndarray | None = None
        if not _is_ordered(read["track"], read["start_ns"], read["depth"]):
            order = np.lexsort((read["depth"], read["start_ns"], read["track"]))
            self._order = order.astype(np.int32)
        self.track = self._ordered(read.pop("track"))
        self.start_ns = self._ordered(read.pop("start_ns"))
        self.depth = self._ordered(read.pop("depth"))

    def __len__(self) -> int:
        return len(self.track)

    def _ordered(
        self,
        values: np.ndarray,
    ) -> np.ndarray:
        if self._order is None:
            return values
        return np.asarray(values[self._order])

    def column(
        self,
        name: str,
    ) -> np.ndarray:
        """A column, or the numbers of its texts; -1: null."""
        read = self._reader.arrays("spans", [name])
        if f"{name}.names" in read:
            self._texts[name] = read[f"{name}.names"].tolist()
        return self._ordered(read[name])

    def texts(self, name: str) -> list[Any]:
        """What the numbers of a column that was read mean."""
        return self._texts[name]


def _is_ordered(track: np.ndarray, start_ns: np.ndarray, depth: np.ndarray) -> bool:
    """Whether the spans are in order by track, start and depth."""
    is_later = track[1:] > track[:-1]
    is_same = track[1:] == track[:-1]
    for values in (start_ns, depth):
        is_later |= is_same & (values[1:] > values[:-1])
        is_same &= values[1:] == values[:-1]
    return bool((is_later | is_same).all())


class SpanClasses:
    """Which class each span has, and what the classes are: a number for each of `_CLASS`."""

    def __init__(
        self,
        spans: OrderedSpans,
    ) -> None:
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

    def listed(self, spans: OrderedSpans) -> list[list[int]]:
        """[name, kind, layer, module, line] of each class, as numbers; -1: it has none."""
        kind_of = _numbers_in(spans.texts("kind"), KINDS)
        layer_of = _numbers_in(spans.texts("layer"), SPAN_LAYERS)
        found = {}
        for name in _CLASS:
            found[name] = self._values[name].tolist()
        found["kind"] = [kind_of[kind] for kind in found["kind"]]
        found["layer"] = [layer_of[layer] for layer in found["layer"]]
        columns = [found[name] for name in _CLASS]
        rows = zip(*columns, strict=True)
        return list(map(list, rows))


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


def _numbers_in(
    names: list[Any],
    known: tuple[str, ...],
) -> list[int]:
    numbers = []
    for name in names:
        numbers.append(known.index(name))
    return numbers


def phase_numbers(spans: OrderedSpans) -> np.ndarray:
    """1 + the place of each span's phase in PHASES; 0: it lies in no step."""
    phase = spans.column("phase")
    known = _numbers_in(spans.texts("phase"), PHASES)
    number = np.array([0, *(place + 1 for place in known)])
    return np.asarray(number[phase + 1])


def about_spans(spans: OrderedSpans, classes: SpanClasses) -> dict[str, Any]:
    """What the page knows of all spans: their tracks with the row where each begins, their classes,
    and what the numbers mean.
    """
    tracks, begins = np.unique(spans.track, return_index=True)
    return {
        "tracks": tracks.tolist(),
        "begins": begins.tolist(),
        "classes": classes.listed(spans),
        "names": spans.texts("name"),
        "lines": spans.texts("line"),
        "kinds": list(KINDS),
        "layers": list(SPAN_LAYERS),
        "phases": list(PHASES),
        "unfinished": np.flatnonzero(spans.column("unfinished")).tolist(),
        "is_thinned": bool((spans.column("weight") != 1).any()),
    }
