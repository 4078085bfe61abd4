"""The columns of all spans as files that are mapped into memory: 45 bytes a span on disk, of which
only what somebody asks for is read.

A row is a place in the order of `analyse/ordered_spans.py`, as in the page's own block. Beside the
columns stand the lanes: what is drawn in one row of the timeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from layerscope.analyse.ordered_spans import (
    OrderedSpans,
    SpanClasses,
    about_spans,
    phase_numbers,
)
from layerscope.analyse.self_times import nested_parents
from layerscope.analyse.timeline.kept import ABOUT
from layerscope.analyse.timeline.lanes import Lanes, lanes_by_depth, lanes_by_layer
from layerscope.analyse.timeline.links import write_asked, write_links
from layerscope.analyse.timeline.mapped import MappedFiles
from layerscope.recording.reader import Reader

_LANES = "lanes"


def write(reader: Reader, folder: Path) -> None:
    """Write the columns of `reader`'s recording into `folder`; times count from the run's start."""
    spans = OrderedSpans(reader)
    classes = SpanClasses(spans)
    about = about_spans(spans, classes)
    about["counts"] = np.bincount(classes.of_span, minlength=len(about["classes"])).tolist()
    spans.start_ns = spans.start_ns - reader.run.info.start_ns
    dur_ns = spans.column("dur_ns")
    about["count"] = len(spans)
    about["first_ns"] = int(spans.start_ns.min()) if len(spans) else None
    about["end_ns"] = _latest(spans.start_ns, dur_ns)
    _save(folder, "start", spans.start_ns)
    _save(folder, "dur", _narrow(dur_ns))
    _save(folder, "class", _narrow(classes.of_span))
    _save(folder, "depth", _narrow(spans.depth))
    _save(folder, "parent", nested_parents(spans.track, spans.depth, spans.start_ns, dur_ns))
    lanes = lanes_by_depth(spans.track, spans.depth, spans.start_ns, dur_ns)
    lanes.save(folder, _LANES)
    del lanes, dur_ns, classes
    _save(folder, "self", _narrow(spans.column("self_ns")))
    _save(folder, "step", _narrow(spans.column("step") + 1))
    _save(folder, "phase", _narrow(phase_numbers(spans)))
    _save(folder, "args", _narrow(spans.column("args") + 1))
    _save(folder, "weight", _narrow(spans.column("weight")))
    write_links(reader, spans, folder)
    write_asked(reader, spans, folder)
    (folder / ABOUT).write_bytes(msgspec.json.encode(about))


def _latest(
    start_ns: np.ndarray,
    dur_ns: np.ndarray,
) -> int:
    return int((start_ns + dur_ns).max(initial=0))


def _narrow(values: np.ndarray) -> np.ndarray:
    """The values with as few bytes as hold them; negative ones keep eight."""
    if int(values.min(initial=0)) < 0:
        return values.astype(np.int64)
    most = int(values.max(initial=0))
    for kind in (np.uint8, np.uint16, np.uint32):
        if most <= np.iinfo(kind).max:
            return values.astype(kind)
    return values.astype(np.int64)


def _save(
    folder: Path,
    name: str,
    values: np.ndarray,
) -> None:
    file = folder / f"{name}.npy"
    np.save(file, values, allow_pickle=False)


class TimelineColumns:
    """The columns that `write` has put into a folder."""

    def __init__(self, folder: Path) -> None:
        self.files = MappedFiles(folder)
        about: dict[str, Any] = msgspec.json.decode((folder / ABOUT).read_bytes())
        self.about = about
        self.count: int = about["count"]
        self.start = self.files.opened("start", is_searched=True)
        self.dur = self.column("dur")
        self.cls = self.column("class")
        self.depth = self.column("depth")
        self.parent = self.column("parent")
        self.self_ns = self.column("self")
        self.step = self.column("step")
        self.tracks = np.array(about["tracks"], np.int64)
        self.bounds = np.array([*about["begins"], self.count], np.int64)
        self.classes = np.array(about["classes"], np.int64).reshape(-1, 5)
        self.lanes = Lanes.opened(self.files, _LANES)
        # The lanes with layers apart, where somebody has asked for them.
        self.apart: Lanes | None = None
        self._place_of = {track: place for place, track in enumerate(about["tracks"])}

    def column(self, name: str) -> np.ndarray:
        """A column, of which is read what is asked for."""
        return self.files.opened(name)

    @property
    def layer_lanes(self) -> Lanes:
        """The lanes of the tracks with their layers apart, made when somebody asks for them."""
        if self.apart is None:
            self.apart = lanes_by_layer(self)
        return self.apart

    def range(
        self,
        track: int,
    ) -> tuple[int, int]:
        """The first row of a track, and the one behind its last."""
        place = self._place_of.get(track)
        if place is None:
            return 0, 0
        return int(self.bounds[place]), int(self.bounds[place + 1])

    def track_of(
        self,
        row: int,
    ) -> int:
        """The track of a span."""
        return int(self.tracks[np.searchsorted(self.bounds, row, "right") - 1])

    def rows_in(
        self,
        track: int,
        from_ns: int | None,
        to_ns: int | None,
    ) -> tuple[int, int]:
        """The rows of a track that start in a stretch of time."""
        first, last = self.range(track)
        start = self.start[first:last]
        begin, end = first, last
        if from_ns is not None:
            begin += int(np.searchsorted(start, from_ns))
        if to_ns is not None:
            end = first + int(np.searchsorted(start, to_ns))
        return begin, max(begin, end)
