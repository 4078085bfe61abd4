"""Late spans that come piece by piece, merged with the chunks of a raw file while both still grow.
Used by `followed_segments`.

What the raw file has behind `until_ns` waits until it is known which late spans come before it. The
texts of late spans have numbers that no agent gives, each text one for all pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from layerscope.model.distinct import distinct, first_rows
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.rawfile.sums import RawTotals, rows_of
from layerscope.sources.raw.decoder import LATE_RINGS, LATE_SEGMENT, Decoder
from layerscope.sources.raw.late_spans import (
    COLUMNS,
    NO_RECORD,
    OF_NO_THREAD,
    LateSpans,
    name_chunks,
    records_of,
)

# The numbers of texts begin here, or where there are twice as many names of the agent; those of
# tracks that are no threads of the agent's begin behind the other one.
_FIRST_TEXT, _LAST_TRACK = 1 << 16, (1 << 24) - 1
EVER = np.iinfo(np.int64).max
# Scopes are modules by then.
_COLUMNS = tuple(name for name in COLUMNS if name != "scope")

Columns = dict[str, np.ndarray]


class LateStream:
    """The late spans of one process that were added and not given on yet. `until_ns`: nothing of
    the raw file that is newer is given on. `first_text`: the agent must not have as many names.
    `is_read`: the beginning of the raw file has been read already.
    """

    def __init__(self, is_read: bool) -> None:
        self.until_ns = -1
        self.first_text = 0
        self._is_over = False
        self._has_begun = is_read
        self._texts: dict[str, int] = {}
        self._fresh_texts: list[str] = []
        self._text_bytes = 0  # that were given on
        self._names: dict[str, str] = {"0": OF_NO_THREAD}
        self._has_fresh_names = False
        self._tids: dict[int, int] = {}
        self._before = Decoder()
        self._waiting: Columns = {}
        self._ended_ns = np.zeros(0, np.int64)
        self._rings: dict[int, int] = {}
        self._ordinals: dict[int, int] = {}
        self._held: list[raw_file.Chunk] = []  # a reading that is newer
        self._sums = RawTotals()
        self._newest_sums: raw_file.Chunk | None = None

    @property
    def waiting(self) -> int:
        """How many spans wait."""
        return len(self._ended_ns)

    @property
    def given(self) -> int:
        """How many spans were given on."""
        return sum(self._ordinals.values())

    def add(self, parts: Sequence[LateSpans], before: Decoder) -> None:
        """Take in what comes next. `before`: what the raw file has, up to the last of them at
        least.
        """
        self._before = before
        self.first_text = self.first_text or max(_FIRST_TEXT, 2 * len(before.names))
        pieces = [self._numbered(part) for part in parts]
        pieces = [one for one in [self._waiting, *pieces] if one]
        joined = {name: np.concatenate([one[name] for one in pieces]) for name in _COLUMNS}
        is_counter = joined["kind"] == layout.COUNTER
        ended_ns = np.where(is_counter, joined["start_ns"], joined["end_ns"])
        order = np.argsort(ended_ns, kind="stable")
        self._ended_ns = ended_ns[order]
        self._waiting = {name: values[order] for name, values in joined.items()}

    def finish(self) -> None:
        """No more will come, of the raw file neither."""
        self._is_over = True
        self.until_ns = EVER

    def _numbered(self, part: LateSpans) -> Columns:
        """The spans of a part with the numbers of all."""
        known = len(self._texts)
        first = self.first_text
        numbers = [self._texts.setdefault(one, first + len(self._texts)) for one in part.texts]
        self._fresh_texts += list(self._texts)[known:]
        number_of = np.array([*numbers, -1], np.int32)
        scope = np.broadcast_to(part.scope, part.track.shape)
        module = np.broadcast_to(part.module, part.track.shape)
        for number, name in part.track_names.items():
            key = f"track {_LAST_TRACK - number}"
            self._has_fresh_names |= self._names.get(key) != name
            self._names[key] = name
        self._tids |= {_LAST_TRACK - number: tid for number, tid in part.track_tids.items()}
        track = np.where(part.track < 0, _LAST_TRACK - part.track, part.track)
        return {
            "track": track.astype(np.int32),
            "start_ns": part.start_ns,
            "end_ns": part.end_ns,
            "depth": part.depth,
            "kind": part.kind,
            "name": number_of[part.name],
            "args": number_of[part.args],
            "module": np.where(scope >= 0, number_of[scope], module).astype(np.uint32),
            "line": number_of[np.broadcast_to(part.line, part.track.shape)],
            "asked_ns": np.broadcast_to(part.asked_ns, part.track.shape),
            "asked_track": np.broadcast_to(part.asked_track, part.track.shape),
        }

    def merged(self, recorded: Iterator[raw_file.Chunk]) -> Iterator[raw_file.Chunk]:
        """The chunks that were `recorded`, as far as they may be given on, and what belongs between
        them. It may be called again for those that follow.
        """
        held, self._held = self._held, []
        for chunk in chain(held, recorded):
            if chunk.kind == raw_file.POLL:
                _, run_ns = struct.unpack_from("<qq", chunk.payload)
                if run_ns > self.until_ns:
                    self._held = [chunk]
                    return
                yield from self._ended_by(run_ns)
            elif chunk.kind == raw_file.TOTALS:
                self._newest_sums = chunk
                chunk = self._summed(chunk)
            yield chunk
            self._has_begun |= chunk.kind == raw_file.PROCESS
        if self._is_over and self.waiting:
            yield from self._ended_by(EVER)
            if self._newest_sums is not None:
                yield self._summed(self._newest_sums)

    def _ended_by(self, run_ns: int) -> Iterator[raw_file.Chunk]:
        """The spans that ended by then."""
        stop = int(np.searchsorted(self._ended_ns, run_ns, side="right"))
        if not stop or not self._has_begun:
            return
        ended = _part(self._waiting, slice(stop))
        self._waiting = _part(self._waiting, slice(stop, None))
        self._ended_ns = self._ended_ns[stop:]
        order = np.argsort(ended["track"], kind="stable")
        late = LateSpans(**ended, texts=[])  # they have their numbers
        pairs = records_of(late, order, 0, self._before.to_ticks())
        self._sums.add(pairs[:, 0])
        track = ended["track"][order]
        yield from self._texts_and_tracks(track, pairs)
        numbers = distinct(track).tolist()
        borders = np.searchsorted(track, [*numbers, EVER]).tolist()
        for number, (first, last) in zip(numbers, pairwise(borders), strict=True):
            records = pairs[first:last].ravel()
            yield self._chunk(number, records[records["kind"] != NO_RECORD])

    def _texts_and_tracks(self, track: np.ndarray, pairs: np.ndarray) -> Iterator[raw_file.Chunk]:
        """What has to be known of these spans, which come by track."""
        number = self.first_text + len(self._texts) - len(self._fresh_texts)
        texts, self._fresh_texts = self._fresh_texts, []
        for chunk in name_chunks(texts, LATE_SEGMENT, number, self._text_bytes):
            self._text_bytes = chunk.first + len(chunk.payload)
            yield chunk
        for row in first_rows(track).tolist():
            number = int(track[row])
            if number not in self._rings:
                self._rings[number] = LATE_RINGS + len(self._rings)
                self._ordinals[number] = 0
                yield self._chunk(number, self._begin(number, pairs[row, 0]["start"]))
        if self._has_fresh_names:
            self._has_fresh_names = False
            names = json.dumps(self._names).encode()
            yield raw_file.Chunk(raw_file.THREADS, 0, 0, 0, names)

    def _begin(self, number: int, start: int) -> np.ndarray:
        """The record of a thread's beginning, at its first span where the agent does not know
        it.
        """
        begin = np.zeros(1, dtypes.RECORD)
        begin["kind"], begin["module"], begin["seq"] = layout.THREAD_BEGIN, number, -1
        begin["start"], begin["end"] = start, self._tids.get(number, 0)
        track = self._before.tracks.get(number)
        if track is not None:
            begin["start"], begin["end"] = track.start, track.tid
            begin["seq"] = track.framework_thread
        return begin

    def _chunk(self, number: int, records: np.ndarray) -> raw_file.Chunk:
        count = len(records)
        first = self._ordinals[number]
        self._ordinals[number] += count
        ring = self._rings[number]
        return raw_file.Chunk(raw_file.RECORDS, ring, count, first, records.tobytes())

    def _summed(self, chunk: raw_file.Chunk) -> raw_file.Chunk:
        """The sums of all spans so far, with the late ones."""
        totals = RawTotals()
        for payload in (chunk.payload, self._sums.packed()):
            if len(rows_of(payload)):
                totals.add_sums(payload)
        return raw_file.Chunk(chunk.kind, chunk.key, chunk.count, chunk.first, totals.packed())


def _part(columns: Columns, which: slice) -> dict[str, Any]:
    """Some of the rows."""
    return {name: values[which] for name, values in columns.items()}
