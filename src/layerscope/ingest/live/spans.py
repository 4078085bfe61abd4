"""The spans of one process of a recording that grows, summed up by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from layerscope.ingest.live.buckets import oldest_bucket
from layerscope.ingest.live.rows import RowNumbers
from layerscope.ingest.live.steps import StepEnds
from layerscope.ingest.live.thinning import StandIns, joined, scaled
from layerscope.ingest.parents import Keys, Nested, TrackNesting
from layerscope.ingest.spans import EXECUTE, LAYERS, SHARE
from layerscope.ingest.submissions import asked_ns
from layerscope.ingest.totals import by_key
from layerscope.ingest.windows import ProcessWindows
from layerscope.model.layers import KINDS, OPERATORS, PRIMITIVES, REQUESTS, SPAN_LAYERS
from layerscope.model.live import BUCKET_BITS, KeyedSums
from layerscope.rawfile.windows import RequestedWindow
from layerscope.sources.onednn_problem import parse
from layerscope.sources.raw.growing import KeptSpoolReader
from layerscope.sources.raw.process import RawProcess

# So many spans are looked at in one go.
_BATCH = 100_000
# Of a code of an operator: the number of its name, then the kind. Behind both comes the bucket.
_NAME_BITS, _KIND_BITS = 32, 4
_CODE_BITS = _NAME_BITS + _KIND_BITS
_OF_OPERATORS = SPAN_LAYERS.index(OPERATORS)
_OF_PRIMITIVES = SPAN_LAYERS.index(PRIMITIVES)
_LOST = "(name lost)"
_NOT_KNOWN = "not known"
_JSON_BEGINS = '{"library":'


class TrackSums(Struct):
    """Sums of some spans of a track, by table; None: there are none."""

    operators: KeyedSums | None = None
    primitives: KeyedSums | None = None


class _Columns(Struct):
    """Spans of a track, and what is known of each."""

    rows: np.ndarray
    kind: np.ndarray
    bucket: np.ndarray
    dur_ns: np.ndarray
    nested: Nested

    def take(self, some: np.ndarray) -> _Columns:
        """Those at these places."""
        key, parent, self_ns = self.nested.key, self.nested.parent, self.nested.self_ns
        return _Columns(
            self.rows.take(some),
            self.kind.take(some),
            self.bucket.take(some),
            self.dur_ns.take(some),
            Nested(key.take(some), parent.take(some), self_ns.take(some)),
        )


class LiveSpans:
    """Decodes what is new of a process and adds it up. `steps`: where its steps end."""

    def __init__(
        self,
        source: RawProcess,
        reader: KeptSpoolReader,
        operators: RowNumbers,
        primitives: RowNumbers,
        asked: RequestedWindow | None,
        step_mark: str = "",
    ) -> None:
        self.source = source
        self.steps = StepEnds(step_mark)
        self._reader, self._step_mark = reader, step_mark
        self._thinned = StandIns(source, reader)
        self._nesting_of_kept: dict[int, TrackNesting] = {}
        self._operator_rows, self._primitive_rows = operators, primitives
        self._keys = Keys()
        self._nesting: dict[int, TrackNesting] = {}
        self._windows = ProcessWindows(asked)
        self._operator_of: dict[int, int] = {}  # by code the row
        self._primitive_of: dict[tuple[int, int, int], int] = {}  # by kind, name and arguments
        self._asks_within = False  # an operator has asked for a primitive

    def advance(self, keep_ns: int, every: int = 1) -> Iterator[TrackSums]:
        """The sums of what is new, some spans at a time; who stops asking goes on there the next
        time. What ended before the window of `keep_ns` is in one bucket. Of so many records as
        `every` says one is read and stands for the others.
        """
        self._read_one_of(every)
        for _ in self.source.pieces():
            self._read_one_of(every)
            if self.source.events.waiting >= _BATCH:
                yield from self._take(keep_ns)
        yield from self._take(keep_ns)

    def _read_one_of(self, every: int) -> None:
        """What is read in any case is known by the numbers of kinds and names."""
        self._reader.every = every if self.source.decoder.has_our_kinds else 1
        if every > 1 and self._step_mark:
            names = self.source.events.names
            marks = [number for number, name in enumerate(names) if name == self._step_mark]
            self._reader.steps = np.array(marks, np.uint32)

    def finish(self, keep_ns: int) -> Iterator[TrackSums]:
        """The sums of what is left when nothing more will come, and of what never ended."""
        yield from self._take(keep_ns, last=True)

    def _take(self, keep_ns: int, last: bool = False) -> Iterator[TrackSums]:
        events = self.source.events
        events.memory(last)  # nobody adds it up here, and it would be kept
        oldest = oldest_bucket(events.read_until_ns, keep_ns)
        came = []
        for track, rows in events.batches(last):
            window = self._windows.known(events.window_marks)
            if window.known:
                rows = rows.compress(window.holds(asked_ns(rows)))
            if len(rows):
                came.append((track, rows, oldest))
        if self._thinned.is_thinned:
            yield from self._of_part(came)
        else:
            self._nesting_of_kept.clear()
            self._reader.whole_ns.clear()
            yield from (self._of_track(*one) for one in came)
        self.steps.add_marks(*events.step_marks())

    def _of_part(self, came: list[tuple[int, np.ndarray, int]]) -> Iterator[TrackSums]:
        """The sums of spans by track, which stand for those that were left out."""
        kept = []
        left_out = 0
        for _, rows, _ in came:
            lasted_ns = rows["end"] - rows["start"]
            is_kept = self._thinned.kept(rows, np.maximum(lasted_ns, 0))
            left_out += len(rows) - int(is_kept.sum())
            kept.append(is_kept)
        self._thinned.settle(left_out)
        for of_track, is_kept in zip(came, kept, strict=True):
            track, rows, oldest = of_track
            yield self._of_track(track, rows, oldest, is_kept)

    def _of_track(
        self, track: int, rows: np.ndarray, oldest: int, is_kept: np.ndarray | None = None
    ) -> TrackSums:
        """The sums of spans of a track; `is_kept`: where a part was left out, which ones are read
        in any case.
        """
        start, kind = _column(rows, "start"), _column(rows, "kind")
        end = np.maximum(rows["end"], start)
        nesting = self._nesting.setdefault(track, self._new_nesting())
        layer = LAYERS.take(kind)
        nested = nesting.add(start, end, _column(rows, "depth"), layer)
        nesting.never_came.clear()
        of_track = self.source.events.tracks.get(track)
        if of_track is not None and of_track.kind == REQUESTS:
            self.steps.add_requests(end)
        else:
            self.steps.add_spans(track, rows, kind, end, self.source.events.names)
        columns = _Columns(rows, kind, np.maximum(end >> BUCKET_BITS, oldest), end - start, nested)
        mine = np.flatnonzero(layer == _OF_PRIMITIVES)
        if len(mine):
            mine = self._without_shares(track, kind, nested, mine)
        if is_kept is None:
            return TrackSums(self._operators(columns), self._primitives(columns, mine))
        kept = np.flatnonzero(is_kept)
        if len(kept):
            self._correct_self(track, columns, kept, layer)
        others = np.flatnonzero(~is_kept)
        operators = [self._operators(columns.take(some)) for some in (kept, others)]
        primitives = [self._primitives(columns, mine[is_kept[mine] == one]) for one in (1, 0)]
        return TrackSums(self._stands_for(operators), self._stands_for(primitives))

    def _stands_for(self, parts: list[KeyedSums | None]) -> KeyedSums | None:
        """Sums of spans that are read in any case, and of others."""
        kept, others = parts
        if others is not None:
            others = scaled(others, self._thinned.weight)
        return joined([kept, others])

    def _correct_self(
        self, track: int, columns: _Columns, kept: np.ndarray, layer: np.ndarray
    ) -> None:
        """Self time of spans that are read in any case, of whose children a part was left out."""
        rows = columns.rows.take(kept)
        start = _column(rows, "start")
        end = np.maximum(rows["end"], start)
        nesting = self._nesting_of_kept.setdefault(track, self._new_nesting())
        nested = nesting.add(start, end, _column(rows, "depth"), layer.take(kept))
        nesting.never_came.clear()
        code = columns.kind.take(kept).astype(np.int64) << _NAME_BITS | rows["name"]
        spans = np.column_stack([start, end]).astype(np.int64)
        self_ns = columns.nested.self_ns
        self_ns[kept] = self._thinned.self_ns(code, spans, self_ns.take(kept), nested.self_ns)

    def _new_nesting(self) -> TrackNesting:
        return TrackNesting(self._keys, len(SPAN_LAYERS))

    def _operators(self, columns: _Columns) -> KeyedSums | None:
        """The sums of operators; those of all spans are summed, which is quicker than to choose."""
        if not len(columns.rows):
            return None
        first = int(columns.bucket.min())
        key = columns.bucket - first
        key <<= _KIND_BITS
        key |= columns.kind
        key <<= _NAME_BITS
        key |= columns.rows["name"]
        keys, sums = by_key(key, columns.dur_ns, columns.nested.self_ns)
        kinds = keys >> _NAME_BITS & ((1 << _KIND_BITS) - 1)
        mine = np.flatnonzero(LAYERS[kinds] == _OF_OPERATORS)
        if not len(mine):
            return None
        keys = keys[mine]
        codes = keys & ((1 << _CODE_BITS) - 1)
        row = _looked_up(codes, self._operator_of, self._operator)
        return KeyedSums(first + (keys >> _CODE_BITS), row, sums[mine, :3])

    def _operator(self, code: int) -> int:
        """The row of a kind and the number of a name."""
        kind = code >> _NAME_BITS
        name = self._text(code & ((1 << _NAME_BITS) - 1))
        return self._operator_rows.of(name, KINDS[kind])

    def _without_shares(
        self, track: int, kind: np.ndarray, nested: Nested, mine: np.ndarray
    ) -> np.ndarray:
        """What was asked for: without the parts that other threads have of an execution. Where
        operators ask for executions, one outside of everything on another thread is such a part.
        """
        is_bare = nested.parent[mine] < 0
        self._asks_within |= not is_bare.all()
        tracks, pid = self.source.events.tracks, self.source.events.about.get("pid")
        is_main = track not in tracks or tracks[track].tid == pid
        is_share = is_bare & (kind[mine] == EXECUTE) & (self._asks_within and not is_main)
        asked: np.ndarray = mine[~is_share & (kind[mine] != SHARE)]
        return asked

    def _primitives(self, columns: _Columns, mine: np.ndarray) -> KeyedSums | None:
        if not len(mine):
            return None
        spans = columns.rows.take(mine)
        kinds = spans["kind"].tolist()
        names = spans["name"].tolist()
        args = spans["args"].tolist()
        whole = zip(kinds, names, args, strict=True)
        row = [self._primitive(*one) for one in whole]
        first = int(columns.bucket.min())
        pair = columns.bucket.take(mine) - first
        pair <<= 32
        pair |= np.array(row, np.int64)
        dur_ns = columns.dur_ns.take(mine)
        self_ns = columns.nested.self_ns.take(mine)
        keys, sums = by_key(pair, dur_ns, self_ns)
        buckets = first + (keys >> 32)
        return KeyedSums(buckets, keys & 0xFFFFFFFF, sums[:, :3])

    def _primitive(self, kind: int, name: int, args: int) -> int:
        """The row of a kind and the numbers of a name and of arguments."""
        key = (kind, name, args)
        row = self._primitive_of.get(key)
        if row is not None:
            return row
        text = self._text(args) if args else ""
        called, implementation = _described(text)
        called = called or self._text(name)
        row = self._primitive_rows.of(called, implementation, KINDS[kind])
        self._primitive_of[key] = row
        return row

    def _text(self, number: int) -> str:
        """The first line of a text of the process: what has more has a domain in its second."""
        names = self.source.events.names
        return names[number] if number < len(names) else _LOST


def _column(rows: np.ndarray, name: str) -> np.ndarray:
    """A field of rows, in one piece: many passes go through it."""
    return np.ascontiguousarray(rows[name])


def _looked_up(
    codes: np.ndarray, known: dict[int, int], row_of: Callable[[int], int]
) -> np.ndarray:
    """The row of each code; `row_of` gives that of one which is not known."""
    found = []
    for code in codes.tolist():
        row = known.get(code)
        if row is None:
            row = row_of(code)
            known[code] = row
        found.append(row)
    return np.array(found, np.int64)


def _described(text: str) -> tuple[str, str]:
    """The primitive and its implementation, by what a library says of a call."""
    if text.startswith(_JSON_BEGINS):
        return "", _NOT_KNOWN  # of a log, which is merged when the recording is read
    problem = parse(text)
    if problem.library == "MKL":
        return problem.primitive_kind or "", problem.library
    return problem.primitive_kind or "", problem.implementation or _NOT_KNOWN
