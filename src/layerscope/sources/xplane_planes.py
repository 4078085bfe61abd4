"""Planes, lines and events of an XSpace as columns. Used by `xplane`.

An event names its metadata by a number, and its stats by others. What differs in every event is a
column; the rest is told once for all events that have the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from layerscope.sources.wire import Wire, number, signed
from layerscope.sources.xspace_scan import PlaneScan, ScannedLine, scanned

# Numbers of fields, of a plane, a line, an event, a stat and what describes them.
_PLANE_NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _PLANE_STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_NS, _SHOWN_NAME = 1, 2, 3, 11
_DOUBLE, _UINT, _INT, _TEXT, _RAW, _REFERENCE = 2, 3, 4, 5, 6, 7
_KEY, _VALUE, _ID, _NAME, _SHOWN, _NAME_STATS = 1, 2, 1, 2, 4, 5
# Stats that differ in every event and tell nothing outside of the file, beside those that begin so.
_IDS = {"run_id", "queue_id", "context_id", "id", "parent_id"}
_OF_FLOWS = "_"
CORRELATION = "correlation_id"
# Stats of events that are kept to be found again.
_MOST_KNOWN = 1 << 18

Stats = dict[str, Any]


class XLine(Struct):
    """One line with its events. `scanned`: what each has; `stats` of its rows are numbers of
    `XPlane.stats`.
    """

    number: int
    name: str
    at_ns: int
    scanned: ScannedLine


class XPlane(Struct):
    """One plane. `names`: of events, by their metadata. `told`: stats of the plane itself."""

    wire: Wire
    name: str = ""
    names: dict[int, str] = field(default_factory=dict)
    stats: list[Stats] = field(default_factory=lambda: [{}])
    told: Stats = field(default_factory=dict)
    # Where the lines, the metadata of events and the stats of the plane lie.
    _lines: list[tuple[int, int]] = field(default_factory=list)
    _metadata: dict[int, tuple[int, int]] = field(default_factory=dict)
    _stat_names: dict[int, str] = field(default_factory=dict)
    _known: dict[bytes, tuple[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, wire: Wire, begin: int, end: int) -> XPlane:
        """The plane between these places, without its lines."""
        plane = cls(wire)
        own = []
        for key, value in wire.fields(begin, end):
            if not isinstance(value, tuple):
                continue
            if key == _PLANE_NAME:
                plane.name = wire.text(value)
            elif key == _LINES:
                plane._lines.append(value)
            elif key == _EVENT_NAMES:
                plane._add_name(value)
            elif key == _STAT_NAMES:
                plane._add_stat_name(value)
            elif key == _PLANE_STATS:
                own.append(value)
        for place in own:
            name, told = plane._stat(wire.data[slice(*place)])
            plane.told[name] = told
        return plane

    def lines(self) -> Iterator[XLine]:
        """Its lines with their events, one by one."""
        special = {
            number: name == CORRELATION
            for number, name in self._stat_names.items()
            if name == CORRELATION or name in _IDS or name.startswith(_OF_FLOWS)
        }
        with scanned(self.wire, special) as scan:
            for place in self._lines:
                yield self._line(scan, *place)

    def raw_stats(self, wanted: str) -> dict[str, tuple[int, int]]:
        """Where the stat of this name of each event's metadata lies, by the name of the event."""
        found = {}
        for key, place in self._metadata.items():
            for what, value in self.wire.fields(*place):
                if what == _NAME_STATS and isinstance(value, tuple):
                    told = self.wire.message(*value)
                    content = told.get(_RAW)
                    stat = number(told.get(_ID))
                    is_wanted = self._stat_names.get(stat) == wanted
                    if is_wanted and isinstance(content, tuple):
                        name = self.names.get(key, "")
                        found[name] = content
        return found

    def _add_name(self, place: tuple[int, int]) -> None:
        """An event's number and its name."""
        entry = self.wire.message(*place)
        value = entry.get(_VALUE)
        if not isinstance(value, tuple):
            return
        told = self.wire.message(*value)
        key = number(entry.get(_KEY, told.get(_ID)))
        shown = self.wire.text(told.get(_SHOWN))
        name = self.wire.text(told.get(_NAME))
        self.names[key] = shown or name
        self._metadata[key] = value

    def _add_stat_name(self, place: tuple[int, int]) -> None:
        """A stat's number and its name."""
        entry = self.wire.message(*place)
        value = entry.get(_VALUE)
        if not isinstance(value, tuple):
            return
        told = self.wire.message(*value)
        key = entry.get(_KEY, told.get(_ID))
        name = self.wire.text(told.get(_NAME))
        self._stat_names[number(key)] = name

    def _line(self, scan: PlaneScan, begin: int, end: int) -> XLine:
        found = scan.line(begin, end)
        new = scan.texts[len(self.stats) :]
        self.stats += map(self._set, new)
        about = found.about
        shown = self.wire.text(about.get(_SHOWN_NAME))
        name = self.wire.text(about.get(_LINE_NAME))
        number_of_line = number(about.get(_LINE_ID))
        at_ns = number(about.get(_LINE_NS))
        return XLine(number_of_line, shown or name, at_ns, found)

    def _set(self, text: bytes) -> Stats:
        """Stats that are the fields of a message."""
        found = {}
        for _, place in Wire(text).fields(0, len(text)):
            if isinstance(place, tuple):
                begin, end = place
                name, told = self._stat(text[begin:end])
                found[name] = told
        return found

    def _stat(self, text: bytes) -> tuple[str, Any]:
        """The name and the value of a stat."""
        known = self._known.get(text)
        if known is not None:
            return known
        name, told = "", None
        own = Wire(text)
        for key, value in own.fields(0, len(text)):
            if key == _ID:
                name = self._stat_names.get(number(value), f"stat {number(value)}")
            else:
                told = self._value(own, key, value)
        if len(self._known) < _MOST_KNOWN:
            self._known[text] = name, told
        return name, told

    def _value(self, own: Wire, key: int, value: int | tuple[int, int]) -> Any:
        if key == _TEXT:
            return own.text(value)
        if not isinstance(value, int):
            return None
        if key == _DOUBLE:
            return struct.unpack("<d", value.to_bytes(8, "little"))[0]
        if key == _REFERENCE:
            return self._stat_names.get(value, "")
        return signed(value) if key == _INT else value
