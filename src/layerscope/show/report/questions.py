"""What the page of a large recording asks its server, and how that is answered: JSON, or columns as
they are (web/src/data/window_spans.ts asks).

A question is a path with parameters. What is not known, or out of bounds, is refused with a
sentence.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.flame import BY, FlameTrees
from layerscope.analyse.timeline.lanes import Lanes
from layerscope.analyse.timeline.links import SpanLinks
from layerscope.analyse.timeline.one_span import SpanTeller
from layerscope.analyse.timeline.picture import DrawnSpans, Pictures, PictureStretch
from layerscope.analyse.timeline.search import next_hit, next_of_same_name, shown
from layerscope.analyse.timeline.selection import FIELDS, TRACK, SpanFilter, statistics
from layerscope.model.errors import UsageError
from layerscope.model.layers import OPERATORS, PRIMITIVES
from layerscope.show.report.blocks import IntColumn, plain_columns

Parameters = Mapping[str, str]
# What a picture may be of: screens are smaller.
_MOST_PIXELS, _MOST_LANES, _MOST_ROWS = 20_000, 1_000, 1_000
_DEPTH, _LAYER = "depth", "layer"
_FILTER = ("classes", "steps", "tracks")
_RANGE = re.compile(r"(\d{1,22})-(\d{1,22})")
_FARTHEST_NS = 1 << 62
_FARTHEST_STEP = 1 << 53
_LANE = re.compile(r"(L?)(\d{1,9})")


class Told(NamedTuple):
    """An answer: anything that JSON can hold, or bytes and how they are read."""

    value: Any
    data: bytes | None = None


class Questions:
    """Answers questions about the spans of a recording, from several threads."""

    def __init__(
        self,
        columns: TimelineColumns,
    ) -> None:
        self._columns = columns
        self._teller = SpanTeller(columns, SpanLinks(columns.files))
        self._trees = FlameTrees(columns)
        self._lock = threading.Lock()
        self._pictures: dict[int, Pictures] = {}

    def answer(self, path: str, parameters: Parameters) -> Told:
        """What `path`, one of ANSWERS, says. UsageError: it cannot be asked so."""
        wanted, answer = ANSWERS[path]
        for name in parameters:
            if name not in wanted:
                raise UsageError(f"{path} has no parameter {name[:40]!r}")
        try:
            return answer(self, parameters)
        finally:
            # What was read would stay as long as nobody else wants memory.
            self._columns.files.let_go()

    def about(
        self,
        _: Parameters,
    ) -> Told:
        """What the page knows of all spans from the start."""
        return Told({**self._columns.about, "lanes": self._lanes_of(_DEPTH)})

    def lanes(
        self,
        parameters: Parameters,
    ) -> Told:
        """The rows of the picture: of each its track, its depth or layer, how many spans it has."""
        arranged = parameters.get("arranged", _DEPTH)
        if arranged not in (_DEPTH, _LAYER):
            raise UsageError(f"lanes are arranged by {_DEPTH} or by {_LAYER}")
        return Told(self._lanes_of(arranged))

    def _lanes_of(
        self,
        by: str,
    ) -> list[list[int]]:
        lanes = self._arranged(by)
        found = []
        for lane in range(len(lanes)):
            first, last = lanes.bounds(lane)
            found.append([lanes.track(lane), lanes.level(lane), last - first])
        return found

    def _arranged(self, by: str) -> Lanes:
        if by == _DEPTH:
            return self._columns.lanes
        with self._lock:
            return self._columns.layer_lanes

    def picture(
        self,
        parameters: Parameters,
    ) -> Told:
        """What is drawn in a stretch: of each lane all spans, those that the filter keeps, and
        those that the search has found.
        """
        stretch = _stretch(parameters)
        of = self._filter(parameters)
        wanted = [SpanFilter()]
        if not of.is_empty:
            wanted.append(of)
        if "found" in parameters:
            wanted.append(self._found(parameters, of))
        names = parameters["lanes"].split(",") if parameters.get("lanes") else []
        if len(names) > _MOST_LANES:
            raise UsageError(f"lanes are at most {_MOST_LANES}")
        lanes = [self._lane(name) for name in names]
        drawn: list[DrawnSpans] = []
        with self._lock:
            for arranged, lane in lanes:
                pictures = self._pictures.setdefault(id(arranged), self._new_pictures(arranged))
                drawn += [pictures.drawn(lane, stretch, one) for one in wanted]
        return self._as_columns(drawn)

    def _new_pictures(self, lanes: Lanes) -> Pictures:
        return Pictures(self._columns, lanes)

    def _lane(self, name: str) -> tuple[Lanes, int]:
        """The lane of a name such as `3`, or `L3` where layers stand apart."""
        found = _LANE.fullmatch(name)
        lanes = self._arranged(_LAYER if found and found[1] else _DEPTH)
        if not found or int(found[2]) >= len(lanes):
            raise UsageError(f"there is no lane {name[:40]!r}")
        return lanes, int(found[2])

    def _found(
        self,
        parameters: Parameters,
        of: SpanFilter,
    ) -> SpanFilter:
        """What keeps those that the filter keeps and the search has found."""
        found = self._classes(parameters, "found")
        if found is None:
            raise UsageError("found is missing: the classes that are looked for")
        return SpanFilter(found if of.classes is None else found & of.classes, of.steps, of.tracks)

    def _as_columns(self, drawn: Sequence[DrawnSpans]) -> Told:
        rows = np.concatenate([np.zeros(0, np.uint32), *(one.rows for one in drawn)])
        start, end, reach = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(one, name) for one in drawn)])
            for name in ("start_ns", "end_ns", "reach_ns")
        )
        columns = [
            IntColumn("row", rows),
            IntColumn("start", start),
            IntColumn("dur", end - start),
            IntColumn("reach", reach - end),
            IntColumn("class", self._columns.cls[rows]),
        ]
        about, data = plain_columns(columns)
        return Told({**about, "counts": [len(one.rows) for one in drawn]}, data)

    def statistics(
        self,
        parameters: Parameters,
    ) -> Told:
        """The spans that start in a stretch, grouped."""
        by = parameters.get("by", "")
        if by not in (*FIELDS, TRACK):
            raise UsageError(f"by is one of {', '.join((*FIELDS, TRACK))}")
        from_ns = _first_ns(parameters, "start")
        to_ns = _first_ns(parameters, "end")
        return Told(statistics(self._columns, self._filter(parameters), from_ns, to_ns, by))

    def flame(
        self,
        parameters: Parameters,
    ) -> Told:
        """The tree of operators or primitives that start in a stretch."""
        kind, by = (parameters.get(name, "") for name in ("kind", "by"))
        if kind not in (OPERATORS, PRIMITIVES):
            raise UsageError(f"the kind is {OPERATORS} or {PRIMITIVES}")
        if by not in BY:
            raise UsageError(f"by is one of {', '.join(BY)}")
        stretch = _first_ns(parameters, "start"), _first_ns(parameters, "end")
        name = None
        if "name" in parameters:
            name = _number(parameters, "name", 0, len(self._columns.about["names"]) - 1)
        found = self._trees.tree(kind, self._filter(parameters), stretch, name, by)
        return Told(found._asdict())

    def span(
        self,
        parameters: Parameters,
    ) -> Told:
        """Everything of one span."""
        return Told(self._teller.story(self._row(parameters)))

    def spans(
        self,
        parameters: Parameters,
    ) -> Told:
        """Some spans by their rows."""
        rows = _rows(parameters, "rows", _MOST_ROWS, self._columns.count)
        return Told([self._teller.one(row) for row in rows])

    def place(self, parameters: Parameters) -> Told:
        """The span at a place of a lane; without one that which reaches `start` first, or the last
        that starts before `end`.
        """
        lanes, lane = self._lane(parameters.get("lane", ""))
        first, last = lanes.bounds(lane)
        if "place" in parameters:
            at = first + _number(parameters, "place", 0, last - first - 1)
        elif "start" in parameters:
            reach = np.maximum.accumulate(lanes.end[first:last])
            at = first + int(np.searchsorted(reach, math.ceil(_moment(parameters, "start"))))
        else:
            start = self._columns.start[lanes.rows[first:last]]
            at = first + int(np.searchsorted(start, math.ceil(_moment(parameters, "end")))) - 1
        return Told(self._teller.one(int(lanes.rows[at])) if first <= at < last else None)

    def hit(self, parameters: Parameters) -> Told:
        """The next span that the search has found and the filter keeps."""
        row = _number(parameters, "row", -1, self._columns.count)
        at_ns = _number(parameters, "at", -_FARTHEST_NS, _FARTHEST_NS)
        of = self._found(parameters, self._filter(parameters))
        return self._told(next_hit(self._columns, of, at_ns, row, _direction(parameters)))

    def same(
        self,
        parameters: Parameters,
    ) -> Told:
        """The next span of the same name and layer."""
        row = self._row(parameters)
        of = self._teller.same_filter(row)
        return self._told(next_of_same_name(self._columns, of, row, _direction(parameters)))

    def shown(self, parameters: Parameters) -> Told:
        """The spans of which any part lies in a stretch: how many, and some with most self time."""
        from_ns = math.ceil(_moment(parameters, "start"))
        to_ns = math.ceil(_moment(parameters, "end"))
        count, rows = shown(self._columns, self._filter(parameters), from_ns, to_ns)
        return Told([count, [self._teller.one(row) for row in rows]])

    def _told(
        self,
        row: int,
    ) -> Told:
        return Told(None if row < 0 else self._teller.one(row))

    def _row(
        self,
        parameters: Parameters,
    ) -> int:
        return _number(parameters, "row", 0, self._columns.count - 1)

    def _filter(
        self,
        parameters: Parameters,
    ) -> SpanFilter:
        steps = None
        if "steps" in parameters:
            found = _RANGE.fullmatch(parameters["steps"])
            if not found:
                raise UsageError("steps are two numbers, such as 10-20")
            first, last = (min(int(text), _FARTHEST_STEP) for text in found.groups())
            steps = first, last
        tracks = None
        if "tracks" in parameters:
            tracks = tuple(_rows(parameters, "tracks", self._most_tracks, 1 << 31))
        return SpanFilter(self._classes(parameters, "classes"), steps, tracks)

    @property
    def _most_tracks(self) -> int:
        return len(self._columns.tracks) + 1

    def _classes(self, parameters: Parameters, name: str) -> np.ndarray | None:
        """Which classes count: a bit of each, as base64."""
        if name not in parameters:
            return None
        text = parameters[name]
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise UsageError(f"{name} is no base64") from error
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        count = len(self._columns.classes)
        if len(bits) > count + 7:
            raise UsageError(f"{name} has more classes than the {count} that there are")
        return np.ascontiguousarray(np.resize(np.append(bits, np.zeros(count, np.uint8)), count))


def _stretch(parameters: Parameters) -> PictureStretch:
    from_ns, to_ns = (_moment(parameters, name) for name in ("start", "end"))
    if not from_ns < to_ns:
        raise UsageError("the end of a picture comes after its start")
    width = _number(parameters, "width", 1, _MOST_PIXELS)
    return PictureStretch(from_ns, to_ns, width, _number(parameters, "margin", 0, _MOST_PIXELS))


def _direction(parameters: Parameters) -> int:
    direction = parameters.get("direction", "")
    if direction not in ("1", "-1"):
        raise UsageError("the direction is 1 or -1")
    return int(direction)


def _number(
    parameters: Parameters,
    name: str,
    least: int,
    most: int,
) -> int:
    text = parameters.get(name, "")
    if not re.fullmatch(r"-?\d{1,19}", text) or not least <= int(text) <= most:
        raise UsageError(f"{name} is a whole number from {least} to {most}")
    return int(text)


def _moment(
    parameters: Parameters,
    name: str,
) -> float:
    try:
        moment = float(parameters.get(name, "")[:40])
    except ValueError as error:
        raise UsageError(f"{name} is a moment in ns") from error
    if not math.isfinite(moment) or abs(moment) > _FARTHEST_NS:
        raise UsageError(f"{name} is a moment in ns")
    return moment


def _first_ns(
    parameters: Parameters,
    name: str,
) -> int | None:
    """The first whole nanosecond from a moment on; None: there is no such parameter."""
    return math.ceil(_moment(parameters, name)) if name in parameters else None


def _rows(
    parameters: Parameters,
    name: str,
    most: int,
    end: int,
) -> list[int]:
    """Numbers below `end`, with commas between them."""
    texts = parameters.get(name, "").split(",") if parameters.get(name) else []
    if len(texts) > most:
        raise UsageError(f"{name} are at most {most} numbers")
    found = []
    for text in texts:
        if not re.fullmatch(r"\d{1,12}", text) or int(text) >= end:
            raise UsageError(f"{name} are whole numbers below {end}")
        found.append(int(text))
    return found


# Each path, its parameters, and what answers it.
ANSWERS: dict[str, tuple[tuple[str, ...], Callable[[Questions, Parameters], Told]]] = {
    "/about-spans": ((), Questions.about),
    "/lanes": (("arranged",), Questions.lanes),
    "/picture": (
        ("start", "end", "width", "margin", "lanes", "found", *_FILTER),
        Questions.picture,
    ),
    "/statistics": (("start", "end", "by", *_FILTER), Questions.statistics),
    "/flame": (("kind", "start", "end", "name", "by", *_FILTER), Questions.flame),
    "/span": (("row",), Questions.span),
    "/spans": (("rows",), Questions.spans),
    "/place": (("lane", "place", "start", "end"), Questions.place),
    "/hit": (("at", "row", "direction", "found", *_FILTER), Questions.hit),
    "/same": (("row", "direction"), Questions.same),
    "/shown": (("start", "end", *_FILTER), Questions.shown),
}
