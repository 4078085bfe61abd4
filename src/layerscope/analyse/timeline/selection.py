"""Which spans a page asks about, and statistics of them (web/src/data/statistics.ts has the
definitions).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.model.compiled import Compiled, compiled

# By what is grouped, and where that stands in a class.
FIELDS = {"name": 0, "kind": 1, "layer": 2, "module": 3}
TRACK = "track"
_LAYER = 2
# Spans that are looked at in one go: memory does not grow with the run.
CHUNK = 1 << 20
_SUMS = ("count", "total_ns", "self_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")


class SpanFilter(Struct, frozen=True):
    """Which spans count: by class (1: it does), by step (from the first to the one behind the
    last), and by track; None: all.
    """

    classes: np.ndarray | None = None
    steps: tuple[int, int] | None = None
    tracks: tuple[int, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every span counts."""
        return self.classes is None and self.steps is None and self.tracks is None

    @property
    def key(self) -> tuple[bytes, tuple[int, int] | None, tuple[int, ...] | None]:
        """The same for filters that keep the same spans."""
        classes = b""
        if self.classes is not None:
            # There may be many, and many keys are kept.
            classes = hashlib.sha256(self.classes.tobytes()).digest()
        return classes, self.steps, self.tracks

    def has_track(
        self,
        track: int,
    ) -> bool:
        """Whether spans of a track count."""
        return self.tracks is None or track in self.tracks

    def all_tracks(self, columns: TimelineColumns) -> list[int]:
        """The tracks whose spans count."""
        if self.tracks is not None:
            return list(self.tracks)
        tracks: list[int] = columns.about["tracks"]
        return tracks

    def keeps(self, columns: TimelineColumns, rows: np.ndarray | slice) -> np.ndarray:
        """Whether each of these rows counts, whatever its track."""
        cls = columns.cls[rows]
        kept = np.ones(len(cls), np.bool_)
        if self.classes is not None:
            kept &= self.classes[cls].astype(np.bool_)
        if self.steps is not None:
            step = columns.step[rows].astype(np.int64) - 1
            first, last = self.steps
            kept &= (step >= first) & (step < last)
        return kept


class SelectedGroup(NamedTuple):
    """A row of the statistics: of a name, module, kind, layer or track; -1: none. `layer`: of
    names, which are told apart by their layers.
    """

    key: int
    layer: int
    spans: int
    total_ns: int
    self_ns: int
    min_ns: int
    p50_ns: int
    p99_ns: int
    max_ns: int


def statistics(
    columns: TimelineColumns, of: SpanFilter, from_ns: int | None, to_ns: int | None, by: str
) -> list[SelectedGroup]:
    """The spans that start in a stretch of time, grouped; most self time first."""
    tracks = of.all_tracks(columns)
    rows_of_tracks = [columns.rows_in(track, from_ns, to_ns) for track in tracks]
    ranges = np.array(rows_of_tracks, np.int64).reshape(-1, 2)
    if by == TRACK:
        keys = [(track, -1) for track in tracks]
        group_of = np.zeros(len(columns.classes), np.int32)
    else:
        keys, group_of = _groups_of_classes(columns, by)
    sums = _sums(columns, of, ranges, group_of, len(keys), by == TRACK)
    rows = []
    for (key, layer), values in zip(keys, sums.tolist(), strict=True):
        if values[0]:
            group = SelectedGroup(key, layer, *values)
            rows.append(group)
    return sorted(rows, key=lambda row: (-row.self_ns, row.key))


def _groups_of_classes(
    columns: TimelineColumns, by: str
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """The key and the layer of each group, and the group of each class."""
    numbers: dict[tuple[int, int], int] = {}
    group_of = []
    for one in columns.classes.tolist():
        key = (one[FIELDS[by]], one[_LAYER] if by == "name" else -1)
        group_of.append(numbers.setdefault(key, len(numbers)))
    return list(numbers), np.array(group_of, np.int32)


def _sums(
    columns: TimelineColumns,
    of: SpanFilter,
    ranges: np.ndarray,
    group_of: np.ndarray,
    groups: int,
    is_by_range: bool,
) -> np.ndarray:
    """The columns of `_SUMS` of each group."""
    library = compiled()
    sums = np.zeros((groups, len(_SUMS)), np.int64)
    if not len(ranges) or not groups:
        return sums
    if library is None:
        _add_up(columns, of, ranges, group_of, is_by_range, sums)
    else:
        _compiled_sums(library, columns, of, ranges, group_of, is_by_range, sums)
    return sums


def _compiled_sums(
    library: Compiled,
    columns: TimelineColumns,
    of: SpanFilter,
    ranges: np.ndarray,
    group_of: np.ndarray,
    is_by_range: bool,
    sums: np.ndarray,
) -> None:
    arguments: list[np.ndarray | int] = []
    for values in (columns.cls, columns.dur, columns.self_ns, columns.step):
        arguments += [values.view(np.uint8), values.itemsize]
    first, last = of.steps or (0, 0)
    if of.steps is None:
        arguments[-1] = 0
    kept = of.classes
    if kept is None:
        kept = np.ones(len(group_of), np.uint8)
    done = library.call(
        "statistics", *arguments, first, last, kept, group_of, int(is_by_range),
        np.ascontiguousarray(ranges), len(ranges), len(sums), sums,
    )  # fmt: skip
    if done < 0:
        raise MemoryError


def _add_up(
    columns: TimelineColumns,
    of: SpanFilter,
    ranges: np.ndarray,
    group_of: np.ndarray,
    is_by_range: bool,
    sums: np.ndarray,
) -> None:
    """As native/tables/statistics.c does it."""
    groups, durations, selves = [], [], []
    for place, (first, last) in enumerate(ranges.tolist()):
        rows = first + np.flatnonzero(of.keeps(columns, slice(first, last)))
        own = np.full(len(rows), place) if is_by_range else group_of[columns.cls[rows]]
        groups.append(own)
        durations.append(columns.dur[rows].astype(np.int64))
        selves.append(columns.self_ns[rows].astype(np.int64))
    group, dur_ns, self_ns = (np.concatenate(of) for of in (groups, durations, selves))
    order = np.lexsort((dur_ns, group))
    group, dur_ns, self_ns = group[order], dur_ns[order], self_ns[order]
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    counts = np.diff(np.append(begins, len(group)))
    for own, first, count in zip(
        group[begins].tolist(), begins.tolist(), counts.tolist(), strict=True
    ):
        part = slice(first, first + count)
        middle, late = (dur_ns[first + place_of_part(part, count)] for part in (0.5, 0.99))
        ends = dur_ns[first], dur_ns[first + count - 1]
        sums[own] = (count, dur_ns[part].sum(), self_ns[part].sum(), ends[0], middle, late, ends[1])


def place_of_part(
    part: float,
    count: int,
) -> int:
    """In sorted values the place of the smallest one that this part of them do not exceed."""
    return max(0, int(np.ceil(part * count)) - 1)


def chunks(
    first: int,
    last: int,
) -> Iterator[slice]:
    """The rows from `first` to `last`, some of them at a time."""
    for begin in range(first, last, CHUNK):
        yield slice(begin, min(begin + CHUNK, last))
