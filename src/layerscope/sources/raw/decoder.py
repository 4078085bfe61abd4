"""Operators, backward functions, ranges, optimizer steps and loader waits, from the agent's rings.

Clock: the TSC or CLOCK_MONOTONIC, as the process says. `Decoder` turns the chunks of one process's
raw file into batches of columns; a batch holds every span that ended before its last clock reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import field

from layerscope.model.clocks import Conversion, Elsewhere, Identity
from layerscope.model.distinct import distinct
from layerscope.model.layers import KINDS, REQUESTS
from layerscope.rawfile import counters, dtypes, layout, raw_file
from layerscope.rawfile.sums import RawTotals, rows_of
from layerscope.sources.process import (
    SPAN,
    Loss,
    Marks,
    ProcessEvents,
    SourceTrack,
    joined_rows,
)
from layerscope.sources.raw.marks import MarkList, mark_outside
from layerscope.sources.raw.memory import MemoryRecords
from layerscope.sources.raw.record_spans import RecordSpans, spans_of, without_twins
from layerscope.sources.raw.ticks import Ticks, uneven

OPEN_HEAD_BYTES = 16
# Numbers of rings and segments from here on no agent gives: their names come before their spans.
LATE_RINGS = LATE_SEGMENT = 1 << 21
_RANGE = KINDS.index("range")
_SUBMITTED = [KINDS.index(kind) for kind in ("function", "range", "module")]
# A name may arrive a little after the first span that has it; beyond this many spans it never will.
_WAIT_FOR_NAMES_SPANS = 2_000_000
# The numbers of the kinds in raw files from before they were declared there.
_UNDECLARED = (
    "function",
    "backward",
    "range",
    "optimizer",
    "loader",
    "module",
    "task",
    "frame",
    "event",
    "execute",
    "create",
)
_STEPS = (layout.MARK_STEP,)
_STOPS = (layout.MARK_PAUSED, layout.MARK_CLOSED)
_WINDOWS = (layout.MARK_OPENED, layout.MARK_CLOSED, layout.MARK_BEGINS, layout.MARK_ENDS)


class Decoder(ProcessEvents):
    """Reads the chunks of one process. Names are the process's own numbers into `names`.

    `shift_ns` puts the times of its host on the run's clock; `clock` is then an `Elsewhere`.
    """

    shift_ns: int = 0
    ticks: Ticks = field(default_factory=Ticks)
    _ring_track: dict[int, int] = field(default_factory=dict)
    _ring_next: dict[int, int] = field(default_factory=dict)
    _segment_next: dict[int, int] = field(default_factory=dict)
    _ring_last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _thread_names: dict[str, str] = field(default_factory=dict)
    _highest_name: int = 0
    _next_name: int = 1  # behind those of the agent that have come
    _moments: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _memory: MemoryRecords = field(default_factory=MemoryRecords)
    _step_marks: MarkList = field(default_factory=MarkList)
    _window_marks: MarkList = field(default_factory=MarkList)
    _is_complete: bool = False  # nothing more will come
    _waiting: dict[int, list[np.ndarray]] = field(default_factory=dict)
    _seen: RawTotals = field(default_factory=RawTotals)
    _since_reading: list[np.ndarray] = field(default_factory=list)
    _open: dict[int, np.ndarray] = field(default_factory=dict)
    # By number in the raw file; None: it has the same ones.
    _kind_of: np.ndarray | None = field(default_factory=lambda: _numbers_of(_UNDECLARED))

    def add(self, chunk: raw_file.Chunk) -> None:
        """Take in one chunk."""
        if chunk.kind == raw_file.RECORDS:
            self._add_records(chunk)
        elif chunk.kind == raw_file.STRIPPED:
            self._add_stripped(chunk)
        elif chunk.kind == raw_file.NAMES:
            self._add_names(chunk)
        elif chunk.kind == raw_file.POLL:
            self._add_reading(*np.frombuffer(chunk.payload, "<i8").tolist())
        elif chunk.kind == raw_file.COUNTERS:
            rows = counters.rows_of(chunk.payload).copy()
            rows["at_ns"] += self.shift_ns
            self.counters.append(rows)
        elif chunk.kind == raw_file.OPEN:
            self._add_open(chunk)
        elif chunk.kind == raw_file.THREADS:
            self._name_threads(json.loads(chunk.payload))
        elif chunk.kind == raw_file.PROCESS:
            self._describe(json.loads(chunk.payload))
        elif chunk.kind == raw_file.LOSS:
            self._account(json.loads(chunk.payload))
        elif chunk.kind == raw_file.TOTALS:
            self.totals = rows_of(chunk.payload)
            if self.stripped:
                self.unseen = self._seen.missing_from(chunk.payload)
                self._map_kinds(self.unseen[:, 0])
        elif chunk.kind == raw_file.OUTSIDE:
            mark_outside(self, self.shift_ns, json.loads(chunk.payload))
        elif chunk.kind == raw_file.END:
            self.ended = True

    def batches(self, last: bool = False) -> Iterator[tuple[int, np.ndarray]]:
        """By track, the spans that ended before the newest clock reading: `SPAN` rows, times in ns
        of the run.

        With `last`, everything that is left, and the spans that never ended.
        """
        if (
            not last
            and self._highest_name >= self._next_name
            and self.waiting < _WAIT_FOR_NAMES_SPANS
        ):
            return
        parts, self._waiting, self.waiting = self._waiting, {}, 0
        self._is_complete = last
        for spans in self._open.values() if last else ():
            parts.setdefault(int(spans["track"][0]), []).append(spans)
        self._open = {} if last else self._open
        for track, pieces in parts.items():
            spans = joined_rows(pieces)
            late = spans["end"] > self.clock.last
            if last:
                spans = without_twins(spans, self._ring_last.values())
                # Whatever is still open has outlived all that has ended.
                latest = max(
                    self.clock.last,
                    int(spans["end"].max(initial=0)),
                    int(spans["start"].max(initial=0)),
                )
                spans["end"][spans["unfinished"] > 0] = latest
            elif late.any():
                self._wait(track, spans.compress(late))
                spans = spans.compress(~late)
            if len(spans):
                self.clock.put_on_run(spans["start"])
                self.clock.put_on_run(spans["end"])
                self._put_submissions_on_run(spans)
                yield track, spans

    def _put_submissions_on_run(self, spans: np.ndarray) -> None:
        """The same of the times at which spans were asked for."""
        is_submitted = (spans["origin"] != 0) & np.isin(spans["kind"], _SUBMITTED)
        if is_submitted.any():
            at = spans["origin"][is_submitted]
            self.clock.put_on_run(at)
            spans["origin"][is_submitted] = at

    def _wait(self, track: int, spans: np.ndarray) -> None:
        of_track = self._waiting.setdefault(track, [])
        of_track.append(spans)
        self.waiting += len(spans)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """What the program counted and marked: tracks, and records whose `start` is in ns of the
        run, in that order.
        """
        if not self._moments:
            return np.zeros(0, np.int32), np.zeros(0, dtypes.RECORD)
        tracks, parts = zip(*self._moments, strict=True)
        track = np.concatenate(tracks)
        records = np.concatenate(parts)
        order = np.argsort(records["start"], kind="stable")
        records = records[order]
        records["start"] = self.clock.to_run(records["start"])
        return track[order], records

    def memory(self, last: bool = False) -> np.ndarray:
        """Allocations and releases up to the newest clock reading."""
        return self._memory.known(self.clock, len(self.names), last)

    def step_marks(self) -> Marks:
        """Where the program marked the end of a step: tracks, and records whose `start` is in ns of
        the run.
        """
        return self._step_marks.known(self.clock, self._is_complete)

    def window_marks(self) -> Marks:
        """Where windows opened and closed, as `step_marks`."""
        return self._window_marks.known(self.clock, self._is_complete)

    @property
    def has_step_marks(self) -> bool:
        """Whether the program has marked the end of a step."""
        return bool(self._step_marks)

    def clock_doubt(self) -> str:
        """What was wrong with the time stamp counter; empty: nothing."""
        if self.about.get("clock") != "tsc":
            return ""
        set_backs = self.ticks.set_backs
        if set_backs:
            times = "time" if set_backs == 1 else "times"
            return f"was set back {set_backs} {times}"
        no_readings = np.zeros((0, 4))
        readings = np.array(self.readings or no_readings, np.int64)
        ticks, run_ns, _, error_ns = readings.T
        stretches = uneven(ticks, run_ns, error_ns)
        if not stretches:
            return ""
        return f"did not keep its rate between {stretches} of {len(ticks)} readings"

    def to_ticks(self) -> Conversion:
        """From the run's clock back to that of the raw file."""
        if isinstance(self.clock, Identity):
            return Elsewhere(-self.to_run(0))
        back = Conversion()
        for ticks, run_ns in self.clock.readings:
            back.add(run_ns, ticks)
        return back

    def _know_kinds(self, declared: list[list[str]]) -> None:
        """Take the numbers of kinds that the raw file declares to ours. A kind that is not known
        counts as a range.
        """
        kinds = [kind for kind, _ in declared if kind]
        self._kind_of = _numbers_of(kinds)
        self.unknown_kinds = [kind for kind in kinds if kind not in KINDS]

    @property
    def has_our_kinds(self) -> bool:
        """Whether kinds have the numbers there that they have here."""
        return self._kind_of is None

    def _map_kinds(self, kinds: np.ndarray) -> None:
        """Take the numbers of the raw file to ours, in place."""
        if self._kind_of is not None:
            kinds[:] = self._kind_of[kinds]

    def _describe(self, about: dict[str, Any]) -> None:
        if "kinds" in about:
            self._know_kinds(about["kinds"])
        self.about.update({key: value for key, value in about.items() if value not in ("", [""])})
        if "start_ns" in about:
            self.about["start_ns"] = about["start_ns"] + self.shift_ns
        ahead_ns = self.about.get("ahead_ns", 0)
        if (
            ahead_ns
            and self.about.get("clock") == "monotonic"
            and type(self.clock) in (Identity, Elsewhere)
        ):
            self.clock = Elsewhere(self.shift_ns - ahead_ns)
            for _, run_ns, _, _ in self.readings:
                self.clock.add(run_ns, run_ns)
        if self.about.get("clock") == "tsc" and isinstance(self.clock, Identity):
            self.clock = Conversion()
            for tsc, run_ns, _, _ in self.readings:
                self.clock.add(tsc, run_ns)

    def _add_reading(self, tsc: int, run_ns: int, realtime_ns: int, error_ns: int) -> None:
        run_ns += self.shift_ns
        if self.about.get("clock") == "tsc":
            tsc = self.ticks.read(tsc, run_ns, self._since_reading)
        self._since_reading = []
        reading = (tsc, run_ns, realtime_ns, error_ns)
        self.readings.append(reading)
        is_on_clock = isinstance(self.clock, Identity)
        ticks = run_ns if is_on_clock else tsc
        self.clock.add(ticks, run_ns)

    def _add_names(self, chunk: raw_file.Chunk) -> None:
        data = chunk.payload
        known = self._segment_next.get(chunk.key, 0)
        # A second drainer writes the segment again from its start, and further.
        repeated = max(known - chunk.first, 0)
        at = min(repeated, len(data))
        while at + 8 <= len(data):
            number = int.from_bytes(data[at : at + 4], "little")
            length = int.from_bytes(data[at + 4 : at + 8], "little")
            at += 8
            text = data[at : at + length]
            at += length + 1 + 7 & ~7
            while len(self.names) <= number:
                self.names.append("(name lost)")
            self.names[number] = text.decode("utf-8", "replace")
            if chunk.key < LATE_SEGMENT:
                self._next_name = max(self._next_name, number + 1)
        self._segment_next[chunk.key] = max(known, chunk.first + at)

    def _add_records(self, chunk: raw_file.Chunk) -> None:
        records = np.frombuffer(chunk.payload, dtypes.RECORD)
        overlap = self._ring_next.get(chunk.key, 0) - chunk.first
        # Written twice: by a drainer that died before it could say so, and by the next.
        if overlap > 0:
            records = records[overlap:]
        self._seen.add(records)
        records = self.ticks.mended(records)
        self._ring_next[chunk.key] = max(
            chunk.first + chunk.count, self._ring_next.get(chunk.key, 0)
        )
        found = spans_of(records, self._ring_track.get(chunk.key, 0), self._kind_of)
        self._add_special(chunk.key, records, found)
        spans = found.spans
        self.records += len(spans)
        if not len(spans):
            return
        self._since_reading.append(spans)
        newest = spans[-1][["track", "depth", "start"]]
        self._ring_last[chunk.key] = newest.tolist()
        if chunk.key < LATE_RINGS:
            self._highest_name = max(self._highest_name, found.highest_name)
        if found.is_one_track:
            self._wait(int(spans["track"][0]), spans)
            return
        # Those of several threads are copies, so each is looked at by itself when the next reading
        # comes.
        self._since_reading.pop()
        tracks = spans["track"]
        for number in distinct(tracks).tolist():
            of_track = spans.compress(tracks == number)
            self._since_reading.append(of_track)
            self._wait(number, of_track)

    def _add_special(self, ring: int, records: np.ndarray, found: RecordSpans) -> None:
        """Take in the records that are no spans: threads, losses, counters and marks."""
        kinds = records["kind"][found.special]
        is_memory = kinds < layout.COUNTER
        if is_memory.any():
            found_here = found.special[is_memory]
            self._memory.add(found.track[is_memory], records.take(found_here))
        is_moment = ~is_memory & (kinds <= layout.MARK)
        for at in np.flatnonzero(~(is_moment | is_memory)).tolist():
            self._ring_event(ring, records[found.special[at]], int(found.track[at]))
        if not is_moment.any():
            return
        track = found.track[is_moment]
        moments = records.take(found.special[is_moment])
        self._moments.append((track, moments))
        is_mark = moments["kind"] == layout.MARK
        is_stop = is_mark & np.isin(moments["module"], _STOPS)
        for ticks in moments["start"][is_stop].tolist():
            self._memory.stop(ticks)
        for list_of, known in ((self._step_marks, _STEPS), (self._window_marks, _WINDOWS)):
            chosen = np.flatnonzero(is_mark & np.isin(moments["module"], known))
            list_of.add(track[chosen], moments.take(chosen))

    def _add_stripped(self, chunk: raw_file.Chunk) -> None:
        """Records whose spans and memory were taken out to save space; sums know the spans."""
        self._memory.stop(self.clock.last)
        stripped, records = raw_file.of_stripped(chunk.payload)
        if chunk.first < self._ring_next.get(chunk.key, 0):
            return  # another drainer wrote them before
        payload = records.tobytes()
        self._add_records(
            raw_file.Chunk(raw_file.RECORDS, chunk.key, chunk.count, chunk.first, payload)
        )
        if not stripped:
            return
        self.stripped += stripped
        now = self.clock.last
        newest = self.losses[-1] if self.losses else None
        if newest is None or newest.reason != "max_size":
            newest = Loss(0, now, now, 0, "max_size")
            self.losses.append(newest)
        newest.lost = (newest.lost or 0) + stripped
        newest.end = max(newest.end, now)

    def _ring_event(self, ring: int, record: Any, track: int) -> None:
        """A thread begins or ends on this ring, or something was lost."""
        kind, start = int(record["kind"]), int(record["start"])
        if kind == layout.THREAD_BEGIN:
            number = int(record["module"])
            self._ring_track[ring] = number
            self._track(number, int(record["end"]), int(record["seq"]), start)
        elif kind == layout.THREAD_END:
            if int(record["module"]) in self.tracks:
                self.tracks[int(record["module"])].end = start
        else:
            full, deep = int(record["name"]), int(record["module"])
            self._lost(track, start, int(record["end"]), full, deep)

    def _track(self, number: int, tid: int, framework_thread: int, start: int) -> None:
        if framework_thread == layout.OF_REQUESTS:
            requests = SourceTrack(number, None, -1, start, name=REQUESTS, kind=REQUESTS)
            self.tracks.setdefault(number, requests)
            return
        known = self.tracks.get(number)
        is_same = known is not None and (known.tid, known.start) == (tid, start)
        end = known.end if known and is_same else None  # it is told again
        told = self._thread_names
        name = told.get(f"track {number}", told.get(str(tid), ""))
        self.tracks[number] = SourceTrack(number, tid, framework_thread, start, end, name)

    def _lost(
        self, track: int, start: int, end: int, full: int, deep: int, final: bool = False
    ) -> None:
        for lost, reason in ((full, "ring_full"), (deep, "too_deep")):
            if lost:
                self.losses.append(Loss(track, start, end, lost, reason, final))

    def _add_open(self, chunk: raw_file.Chunk) -> None:
        head, body = chunk.payload[:OPEN_HEAD_BYTES], chunk.payload[OPEN_HEAD_BYTES:]
        track, tid = np.frombuffer(head, "<u8").tolist()
        slots_end = chunk.count * dtypes.OPEN.itemsize
        slots = np.frombuffer(body[:slots_end], dtypes.OPEN)
        origins = np.frombuffer(body[slots_end:], dtypes.ORIGIN)
        depth = np.flatnonzero(slots["state"] & 1 == 0)
        if not len(depth):
            # Of a program that records itself: what it said before has ended.
            self._open.pop(chunk.key, None)
            return
        spans = np.zeros(len(depth), SPAN)
        for name in ("start", "name"):
            spans[name] = slots[name][depth]
        spans["kind"] = slots["kind"][depth] % layout.HAS_ORIGIN
        self._map_kinds(spans["kind"])
        spans["start"] = [self.ticks.moment(start) for start in spans["start"].tolist()]
        spans["depth"] = depth
        spans["track"] = track
        is_module = spans["kind"] == KINDS.index("module")
        modules_around = np.cumsum(is_module) - is_module
        spans["seq"] = np.where(is_module, modules_around, -1)
        place = np.where(is_module, np.arange(len(spans)), -1)
        innermost = np.maximum.accumulate(place)
        spans["module"] = np.where(innermost >= 0, spans["name"][innermost], 0)
        has_origin = (slots["kind"][depth] >= layout.HAS_ORIGIN) & (depth < len(origins))
        self._put_origins(spans, np.flatnonzero(has_origin), origins)
        spans["unfinished"] = 1
        self._open[chunk.key] = spans
        if track not in self.tracks:  # of a thread that has finished nothing yet
            self._track(track, tid, -1, int(spans["start"].min()))

    def _put_origins(self, spans: np.ndarray, rows: np.ndarray, origins: np.ndarray) -> None:
        """Where these open spans come from; `origins`: by depth."""
        known = origins[spans["depth"][rows]]
        for name in ("module", "line", "seq"):
            spans[name][rows] = known[name]
        spans["submitter"][rows] = known["track"]
        submitted = [self.ticks.moment(at) if at else 0 for at in known["submitted"].tolist()]
        spans["origin"][rows] = submitted

    def _name_threads(self, names: dict[str, str]) -> None:
        self._thread_names |= names
        for track in self.tracks.values():
            name = names.get(str(track.tid), track.name)
            track.name = names.get(f"track {track.number}", name)

    def _account(self, final: dict[str, Any]) -> None:
        """The drainer's last word: what was lost and never got into a record. A full disk makes it
        say it again.
        """
        self.final = final
        self.losses = [loss for loss in self.losses if not loss.final]
        now = self.clock.last
        full_disk = [
            [since + self.shift_ns, to + self.shift_ns]
            for since, to in final.get("disk_full_ns", [])
        ]
        for ring, left, full, deep, first, last in final["losses"]:
            track = self._ring_track.get(ring, 0)
            self._lost(track, first, last, full, deep, final=True)
            if left:
                self.losses.append(
                    Loss(track, now, now, left, "disk_full" if full_disk else "after_end", True)
                )
        if final.get("lost_without_ring"):
            first, last = final["lost_without_ring_first"], final["lost_without_ring_last"]
            self.losses.append(Loss(0, first, last, final["lost_without_ring"], "no_ring", True))
        if final.get("open_requests") and not final.get("alive"):
            self.losses.append(Loss(0, now, now, final["open_requests"], "open_requests", True))
        for loss in self.losses:
            start_ns, end_ns = self.to_run(loss.start), self.to_run(loss.end)
            if loss.reason == "ring_full" and any(
                start_ns <= to and end_ns >= since for since, to in full_disk
            ):
                loss.reason = "disk_full"  # the ring was full because nothing could be written


def _numbers_of(kinds: Sequence[str]) -> np.ndarray | None:
    """Our number of each kind, by its number among these; None where all are the same."""
    known = [KINDS.index(kind) if kind in KINDS else _RANGE for kind in kinds]
    if known == list(range(len(known))):
        return None
    number_of = np.arange(256, dtype=np.uint8)
    number_of[: len(known)] = known
    return number_of
