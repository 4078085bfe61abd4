"""Spans that only the log of a library has, merged with the chunks of a raw file while it is read.

Before each reading of the clocks come the late spans that ended before it. So whoever reads finds
parents, steps and sums as if the agent had recorded them all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.clocks import Conversion
from layerscope.model.distinct import distinct, first_rows
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.rawfile.sums import RawTotals, rows_of
from layerscope.sources.raw.decoder import LATE_RINGS, LATE_SEGMENT, Decoder

# Arguments are JSON and are kept whole or not at all; those of graphs tell of many tensors.
_MOST_ARGS_BYTES = 1 << 16
# The name of tracks that belong to no thread.
OF_NO_THREAD = "calls whose thread is not known"
_NAMES_BYTES = 1 << 20  # of one chunk
_NO_TRACK = np.iinfo(np.int64).max
# In the place of an extra record: there is none. No record has this kind.
NO_RECORD = layout.FIRST_SPECIAL - 1


class LateSpans(Struct):
    """Columns of ended spans of one process, and of values of counters, whose kind is that of such
    a record and whose `end_ns` is the value. Times in ns of the run; `name`: places in `texts`,
    `args` and `scope`, which is a module, too, -1: none.

    `track`: the process's own number; one that it does not know becomes a track of its own, without
    a thread id. `module`: by the numbers of the raw file's names; 0: none. `line`: as `args`.
    `asked_ns`, `asked_track`: when and on which track it was asked for, 0: where it lies.
    `track_names`, `track_tids`: of tracks that the process does not know. `step_mark`: how steps
    are called; `calls`: operators each call of which may be one, and how long what they asked for
    took.
    """

    track: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    args: np.ndarray
    texts: list[str]
    module: np.ndarray = field(default_factory=lambda: np.zeros(1, np.uint32))
    line: np.ndarray = field(default_factory=lambda: np.full(1, -1))
    scope: np.ndarray = field(default_factory=lambda: np.full(1, -1))
    asked_ns: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    asked_track: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    track_names: dict[int, str] = field(default_factory=dict)
    track_tids: dict[int, int] = field(default_factory=dict)
    step_mark: str = ""
    calls: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.track)


class LateChunks:
    """The chunks of a raw file with late spans among them. `before`: what the raw file has;
    `is_read`: its beginning has been read already.
    """

    def __init__(self, before: Decoder, late: LateSpans, is_read: bool = False) -> None:
        self._before = before
        self._texts = late.texts
        self._track_names, self._track_tids = late.track_names, late.track_tids
        is_counter = late.kind == layout.COUNTER
        ended_ns = np.where(is_counter, late.start_ns, late.end_ns)
        order = np.argsort(ended_ns, kind="stable")
        self._end_ns = ended_ns[order]
        self._track = late.track[order]
        self._records = records_of(late, order, len(before.names), before.to_ticks())
        self._at = 0
        self._has_begun = False
        self._is_read = is_read
        self._rings = {
            number: LATE_RINGS + at for at, number in enumerate(distinct(late.track).tolist())
        }
        firsts = first_rows(self._track).tolist()
        self._firsts = {int(self._track[row]): row for row in firsts}
        self._ordinals = dict.fromkeys(self._rings, 0)
        self._totals: raw_file.Chunk | None = None  # the newest that was recorded

    def merged(self, recorded: Iterator[raw_file.Chunk]) -> Iterator[raw_file.Chunk]:
        """The chunks that were `recorded`, and what belongs between them.

        It may be called again for the chunks that follow.
        """
        if self._is_read and not self._has_begun:
            self._has_begun = True
            yield from self._begin()
        for chunk in recorded:
            if chunk.kind == raw_file.POLL:
                yield from self._until(struct.unpack_from("<qq", chunk.payload)[1])
            elif chunk.kind == raw_file.TOTALS:
                self._totals = chunk
                chunk = self._summed(chunk)
            yield chunk
            if not self._has_begun and chunk.kind == raw_file.PROCESS:
                self._has_begun = True
                yield from self._begin()
        if self._at < len(self._end_ns):
            yield from self._until(None)
            if self._totals is not None:
                yield self._summed(self._totals)

    def _begin(self) -> Iterator[raw_file.Chunk]:
        """The names, and which ring has the spans of which track.

        The names of the raw file come along: a number below that of a known name is not waited for.
        """
        yield from name_chunks([*self._before.names, *self._texts], LATE_SEGMENT)
        for number, ring in self._rings.items():
            begin = np.zeros(1, dtypes.RECORD)
            track = self._before.tracks.get(number)
            begin["kind"], begin["module"], begin["seq"] = layout.THREAD_BEGIN, number, -1
            begin["start"] = self._records[self._firsts[number], 0]["start"]
            begin["end"] = self._track_tids.get(number, 0)
            if track is not None:
                begin["start"], begin["end"], begin["seq"] = (
                    track.start,
                    track.tid,
                    track.framework_thread,
                )
            yield self._chunk(number, ring, begin)
        if set(self._rings) - set(self._before.tracks):
            names = {"0": OF_NO_THREAD}
            names |= {f"track {number}": name for number, name in self._track_names.items()}
            yield raw_file.Chunk(raw_file.THREADS, 0, 0, 0, json.dumps(names).encode())

    def _until(self, run_ns: int | None) -> Iterator[raw_file.Chunk]:
        """Those that ended by then; None: all that are left."""
        stop = len(self._end_ns)
        if run_ns is not None:
            stop = int(np.searchsorted(self._end_ns, run_ns, side="right"))
        if stop <= self._at or not self._has_begun:
            return
        ended = slice(self._at, stop)
        self._at = stop
        order = np.argsort(self._track[ended], kind="stable")
        track = self._track[ended].take(order)
        pairs = self._records[ended].take(order, axis=0)
        numbers = distinct(track).tolist()
        borders = np.searchsorted(track, [*numbers, _NO_TRACK]).tolist()
        for number, (first, last) in zip(numbers, pairwise(borders), strict=True):
            # Each with the extra records behind it, if it has any.
            records = pairs[first:last].ravel()
            records = records[records["kind"] != NO_RECORD]
            ring = self._rings[number]
            yield self._chunk(number, ring, records)

    def _chunk(self, number: int, ring: int, records: np.ndarray) -> raw_file.Chunk:
        count = len(records)
        first = self._ordinals[number]
        self._ordinals[number] += count
        payload = records.tobytes()
        return raw_file.Chunk(raw_file.RECORDS, ring, count, first, payload)

    def _summed(self, chunk: raw_file.Chunk) -> raw_file.Chunk:
        """The sums of all spans so far, with the late ones."""
        totals = RawTotals()
        if len(rows_of(chunk.payload)):
            totals.restore(chunk.payload)
        late_spans = self._records[: self._at, 0]
        totals.add(late_spans)
        payload = totals.packed()
        return raw_file.Chunk(chunk.kind, chunk.key, chunk.count, chunk.first, payload)


def records_of(late: LateSpans, order: np.ndarray, known: int, to_ticks: Conversion) -> np.ndarray:
    """A row for each span, in this order: its record, and the extra ones with its arguments, its
    line and where it was asked for.
    """
    records = np.zeros((len(order), 4), dtypes.RECORD)
    spans, asked, extras, lines = (records[:, at] for at in range(4))
    asked_ns = np.broadcast_to(late.asked_ns, order.shape)[order]
    was_asked = asked_ns > 0
    asked["kind"] = np.where(was_asked, layout.EXTRA, NO_RECORD)
    asked["name"] = layout.EXTRA_SUBMITTED
    asked["start"][was_asked] = to_ticks.to_run(asked_ns[was_asked])
    asked["end"] = np.broadcast_to(late.asked_track, order.shape)[order]
    line = np.broadcast_to(late.line, order.shape)[order]
    has_line = line >= 0
    lines["kind"] = np.where(has_line, layout.EXTRA, NO_RECORD)
    lines["name"] = layout.EXTRA_LINE
    lines["start"] = np.where(has_line, line + known, 0)
    args = late.args[order]
    has_args = args >= 0
    spans["start"] = to_ticks.to_run(late.start_ns[order])
    spans["end"] = to_ticks.to_run(late.end_ns[order])
    counters = np.flatnonzero(late.kind[order] == layout.COUNTER)
    spans["end"][counters] = late.end_ns[order[counters]].view(np.uint64)
    spans["name"] = late.name[order] + known
    spans["seq"] = -1
    spans["seq"][counters] = 0
    spans["depth"] = late.depth[order]
    spans["module"] = _modules(late, known)[order]
    spans["kind"] = late.kind[order]
    spans["flags"] = np.where(has_args | has_line | was_asked, layout.FLAG_EXTRA, 0)
    extras["kind"] = np.where(has_args, layout.EXTRA, NO_RECORD)
    extras["name"] = layout.EXTRA_ARGS
    extras["start"] = np.where(has_args, args + known, 0)
    return records


def _modules(late: LateSpans, known: int) -> np.ndarray:
    """The number of the module of each span."""
    scope = np.broadcast_to(late.scope, late.track.shape)
    module = np.broadcast_to(late.module, late.track.shape)
    return np.where(scope >= 0, scope + known, module)


def name_chunks(
    texts: list[str], segment: int, number: int = 0, written: int = 0
) -> Iterator[raw_file.Chunk]:
    """The texts as the agent's segments have them, numbered from `number` on, behind so many bytes
    that were `written` there.
    """
    data = bytearray()
    for at, text in enumerate(texts, number):
        coded = _limited(text)
        length = len(coded)
        padding = bytes(-length % 8 or 8)
        data += struct.pack("<II", at, length) + coded + padding
        if len(data) >= _NAMES_BYTES:
            yield raw_file.Chunk(raw_file.NAMES, segment, 0, written, bytes(data))
            written += len(data)
            data = bytearray()
    if data:
        yield raw_file.Chunk(raw_file.NAMES, segment, 0, written, bytes(data))


def _limited(text: str) -> bytes:
    """As much of a name or of arguments as the agent would write."""
    coded = text.encode("utf-8", "replace")
    if len(coded) > _MOST_ARGS_BYTES:
        return b'{"library":"oneDNN"}'
    if not text.startswith("{"):
        return coded[: layout.NAME_BYTES]
    return coded


def joined_spans(parts: list[LateSpans], new_track: int) -> LateSpans:
    """The spans of several logs; tracks that are none of the process, below 0, get numbers from
    `new_track` on.
    """
    texts: list[str] = []
    track_names: dict[int, str] = {}
    track_tids: dict[int, int] = {}
    step_mark = ""
    columns: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for part in parts:
        first_text = len(texts)
        is_other = part.track < 0
        others = distinct(part.track[is_other])
        numbers = new_track + np.searchsorted(others, part.track)
        changed = {
            "track": np.where(is_other, numbers, part.track),
            "name": part.name + first_text,
            "args": np.where(part.args >= 0, part.args + first_text, -1),
            "line": np.where(part.line >= 0, part.line + first_text, -1),
            "scope": np.where(part.scope >= 0, part.scope + first_text, -1),
        }
        for number, name in part.track_names.items():
            if number < 0 and number not in others:  # a thread that is known
                continue
            place = new_track + int(np.searchsorted(others, number))
            place = place if number < 0 else number
            track_names[place] = name
            if number in part.track_tids:
                track_tids[place] = part.track_tids[number]
        step_mark = step_mark or part.step_mark
        for name in COLUMNS:
            values = changed[name] if name in changed else getattr(part, name)
            columns[name].append(np.broadcast_to(values, part.track.shape))
        new_track += len(others)
        texts += part.texts
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in columns.items()}
    return LateSpans(
        **joined,
        texts=texts,
        track_names=track_names,
        track_tids=track_tids,
        step_mark=step_mark,
    )


# Those of a span.
COLUMNS = (
    "track",
    "start_ns",
    "end_ns",
    "depth",
    "kind",
    "name",
    "args",
    "module",
    "line",
    "scope",
    "asked_ns",
    "asked_track",
)
