"""What a step took so long for: the chain of work, on threads and streams, of which each piece
could not begin before the one before it had ended.

It is followed back from the last end in the step. What a GPU executed waited either for its call,
if that began when the stream was empty (`launch latency`, from the start of the call), for the work
before it on the stream (`kernel gap`), or for work of another stream (`stream wait`), where the
trace tells that (`stream_waits`). A thread that waited for a GPU waited for the last work
that ended meanwhile (`synchronisation`: from there to the end of the call). What else a thread did
has the time of its innermost span. Where it had none, another thread of the process was waited for,
if one did something then: so the backward pass is reached from the thread that asked for it.

The chain ends where the step begins, or at work that waited for work of the step before. As its
pieces follow each other, it is never longer than the step.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from layerscope.analyse.gpu.stream_waits import StreamWait, read_stream_waits
from layerscope.analyse.gpu.work import COMMUNICATION, COMPUTE, WORK

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

CPU, LOADING, LAUNCH, GAP, WAIT, SYNC = (
    "cpu",
    "data loading",
    "launch latency",
    "kernel gap",
    "stream wait",
    "synchronisation",
)
_OF_WORK = {COMPUTE: "compute", COMMUNICATION: "communication"}
_COPY = "copy"
BETWEEN = "between operators"
_STEPS = """
    SELECT step, process, start_ns, start_ns + dur_ns AS end_ns, warmup
    FROM steps ORDER BY warmup, dur_ns DESC, process, step"""
_EVERYTHING = """
    SELECT NULL AS step, tracks.process, min(spans.start_ns) AS start_ns,
           max(spans.start_ns + spans.dur_ns) AS end_ns
    FROM spans JOIN tracks USING (track) WHERE layer <> 'ranges'
    GROUP BY ALL ORDER BY count(*) DESC, tracks.process"""
_HOST = """
    SELECT spans.span, spans.track, spans.start_ns, spans.start_ns + spans.dur_ns AS end_ns,
           spans.name::VARCHAR AS name, spans.kind::VARCHAR AS kind
    FROM spans JOIN tracks USING (track)
    WHERE tracks.process = ? AND tracks.kind <> 'stream' AND spans.kind <> 'range'
      AND layer IN ('operators', 'runtime', 'python')
      AND spans.start_ns < ? AND spans.start_ns + spans.dur_ns > ?
    ORDER BY spans.track, spans.start_ns, spans.depth, spans.span"""
_GPU = f"""
    SELECT work.span, work.track, work.start_ns, work.end_ns, work.name, work.kind,
           work.launch_ns, host.name::VARCHAR AS call, host.track AS thread,
           host.span AS call_span, spans.step
    FROM ({WORK}) AS work JOIN spans USING (span)
         LEFT JOIN spans AS host ON host.span = work.launch
    WHERE work.process = ? ORDER BY work.track, work.start_ns, work.end_ns, work.span"""
_TRACKS = "SELECT track, name FROM tracks"


class CriticalEdge(Struct, frozen=True):
    """A piece of the chain: of which class, and whose time it is; `track`: where."""

    start_ns: int
    end_ns: int
    kind: str
    name: str
    track: str

    @property
    def lasted_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


class CriticalPath(Struct, frozen=True):
    """The chain in the order of time; `step`: None, the whole recording. `start_ns`, `end_ns`: of
    the step, up to its last work.
    """

    step: int | None
    start_ns: int
    end_ns: int
    edges: list[CriticalEdge]


class _Piece(Struct, frozen=True):
    """A stretch of a thread with one innermost span; the call that it is in, if it is one."""

    start_ns: int
    end_ns: int
    name: str
    is_loading: bool
    is_sync: bool
    call: int
    call_start_ns: int


class _Work(Struct, frozen=True):
    """Work of a GPU with the one before it on its stream; `is_inside`: of the step."""

    span: int
    track: int
    start_ns: int
    end_ns: int
    kind: str
    name: str
    launch_ns: int | None
    call: str
    call_span: int | None
    thread: int | None
    is_inside: bool
    before: _Work | None


class _Chain(Struct):
    """Follows the chain back. `awaited`: by work, that of another stream which it waited for."""

    from_ns: int
    pieces: dict[int, list[_Piece]]
    works: list[_Work]
    names: dict[int, str]
    awaited: dict[int, _Work] = field(default_factory=dict)
    edges: list[CriticalEdge] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    starts: dict[int, list[int]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    own_end: dict[int | None, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.starts = {
            track: [piece.start_ns for piece in its] for track, its in self.pieces.items()
        }
        self.works.sort(key=lambda work: (work.end_ns, work.start_ns))
        self.ends = [work.end_ns for work in self.works]
        self.own_end = {work.call_span: work.end_ns for work in self.works}

    def add(self, start_ns: int, end_ns: int, kind: str, name: str, track: int) -> None:
        """Put a piece before those that are there."""
        start_ns = max(start_ns, self.from_ns)
        if end_ns > start_ns:
            self.edges.append(CriticalEdge(start_ns, end_ns, kind, name, self.names[track]))

    def last_piece(self, track: int, before_ns: int) -> _Piece | None:
        """The last one of a thread that began before this."""
        place = bisect_left(self.starts[track], before_ns)
        return self.pieces[track][place - 1] if place else None

    def last_thread(self, before_ns: int, usual: int | None) -> int | None:
        """The thread that did something last before this; of equal ones the usual one."""
        best, latest_ns = None, self.from_ns
        for track in self.pieces:
            piece = self.last_piece(track, before_ns)
            if piece is None:
                continue
            until_ns = min(piece.end_ns, before_ns)
            if until_ns > latest_ns or (until_ns == latest_ns and track == usual):
                best, latest_ns = track, until_ns
        return best

    def work_ended(self, after_ns: int, until_ns: int) -> _Work | None:
        """The last work that ended between two moments."""
        place = bisect_left(self.ends, until_ns + 1)
        if not place:
            return None
        work = self.works[place - 1]
        is_new = work.span not in self.seen
        return work if work.end_ns > after_ns and is_new else None


def critical_path(reader: Reader, step: int | None) -> CriticalPath | None:
    """The chain of this step, or of the longest one that is no warm-up; None where nothing was
    recorded, or no such step.
    """
    found = reader.query(_STEPS).to_pylist() or reader.query(_EVERYTHING).to_pylist()
    if step is not None:
        found = [row for row in found if row["step"] == step]
    if not found:
        return None
    return _of_step(reader, found[0])


def _of_step(reader: Reader, about: dict[str, Any]) -> CriticalPath:
    step = about["step"]
    process = about["process"]
    from_ns = about["start_ns"]
    end_ns = about["end_ns"]
    works = _works(reader, process, step)
    inside = [work for work in works if work.is_inside]
    until_ns = max([end_ns, *(work.end_ns for work in inside)])
    host = reader.query(_HOST, [process, end_ns, from_ns])
    pieces = _pieces(host.to_pylist(), from_ns, end_ns)
    tracks = reader.query(_TRACKS)
    names = {row["track"]: row["name"] for row in tracks.to_pylist()}
    awaited = _awaited(works, read_stream_waits(reader, process))
    chain = _Chain(from_ns, pieces, inside, names, awaited)
    _follow(chain, end_ns)
    chain.edges.reverse()
    return CriticalPath(step, from_ns, until_ns, chain.edges)


def _works(reader: Reader, process: int, step: int | None) -> list[_Work]:
    found = []
    before = None
    for row in reader.query(_GPU, [process]).to_pylist():
        if before is not None and before.track != row["track"]:
            before = None
        before = _Work(
            span=row["span"],
            track=row["track"],
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
            kind=_OF_WORK.get(row["kind"], _COPY),
            name=row["name"],
            launch_ns=row["launch_ns"],
            call=row["call"],
            call_span=row["call_span"],
            thread=row["thread"],
            is_inside=step is None or row["step"] == step,
            before=before,
        )
        found.append(before)
    return found


def _awaited(works: list[_Work], waits: list[StreamWait]) -> dict[int, _Work]:
    """By work, the last of another stream that it had to wait for."""
    launched: dict[int, list[_Work]] = {}
    for work in works:
        if work.launch_ns is not None:
            of_track = launched.setdefault(work.track, [])
            of_track.append(work)
    found: dict[int, _Work] = {}
    for wait in waits:
        behind = launched.get(wait.track, [])
        place = bisect_left(behind, wait.asked_ns, key=_launched_ns)
        before = launched.get(wait.awaited, [])
        last = bisect_left(before, wait.recorded_ns, key=_launched_ns) - 1
        if place == len(behind) or last < 0:
            continue
        waiting, awaited = behind[place], before[last]
        known = found.get(waiting.span)
        if known is None or awaited.end_ns > known.end_ns:
            found[waiting.span] = awaited
    return found


def _launched_ns(work: _Work) -> int:
    assert work.launch_ns is not None  # others are left out
    return work.launch_ns


def _pieces(rows: list[dict[str, Any]], from_ns: int, until_ns: int) -> dict[int, list[_Piece]]:
    """By thread its stretches in the order of time."""
    of_track: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        its = of_track.setdefault(row["track"], [])
        its.append(row)
    found = {}
    for track, its in of_track.items():
        found[track] = _of_thread(its, from_ns, until_ns)
    return found


def _of_thread(rows: list[dict[str, Any]], from_ns: int, until_ns: int) -> list[_Piece]:
    """Spans that lie in each other, as stretches of the innermost ones."""
    pieces: list[_Piece] = []
    open_rows: list[dict[str, Any]] = []
    at_ns = from_ns

    def advance(to_ns: int) -> None:
        nonlocal at_ns
        to_ns = min(to_ns, until_ns)
        if open_rows and to_ns > at_ns:
            is_loading = any(row["kind"] == "loader" for row in open_rows)
            pieces.append(_piece(open_rows[-1], at_ns, to_ns, is_loading))
        at_ns = max(at_ns, to_ns)

    for row in rows:
        while open_rows and open_rows[-1]["end_ns"] <= row["start_ns"]:
            advance(open_rows[-1]["end_ns"])
            open_rows.pop()
        advance(row["start_ns"])
        open_rows.append(row)
    while open_rows:
        advance(open_rows[-1]["end_ns"])
        open_rows.pop()
    return pieces


def _piece(row: dict[str, Any], start_ns: int, end_ns: int, is_loading: bool) -> _Piece:
    return _Piece(
        start_ns=start_ns,
        end_ns=end_ns,
        name=row["name"],
        is_loading=is_loading,
        is_sync=row["kind"] == "sync",
        call=row["span"],
        call_start_ns=row["start_ns"],
    )


def _follow(chain: _Chain, end_ns: int) -> None:
    """From the last end to the beginning."""
    work: _Work | None = None
    if chain.works and chain.works[-1].end_ns > end_ns:
        work = chain.works[-1]
    at_ns, thread = end_ns, None
    while True:
        if work is not None:
            at_ns, thread, work = _before_work(chain, work)
        elif at_ns <= chain.from_ns:
            return
        else:
            at_ns, thread, work = _before_host(chain, at_ns, thread)
        if thread is None and work is None:
            return


def _before_work(chain: _Chain, work: _Work) -> tuple[int, int | None, _Work | None]:
    """What work waited for: the call that launched it, the work before it, or that of another
    stream.
    """
    chain.seen.add(work.span)
    chain.add(work.start_ns, work.end_ns, work.kind, work.name, work.track)
    called_ns = work.launch_ns
    before, why = _last_awaited(chain, work)
    if before is not None and (called_ns is None or before.end_ns > called_ns):
        if not before.is_inside or before.span in chain.seen:
            return chain.from_ns, None, None
        chain.add(before.end_ns, work.start_ns, why, work.name, work.track)
        return before.end_ns, None, before
    if called_ns is None or work.thread not in chain.pieces:
        return chain.from_ns, None, None
    chain.add(called_ns, work.start_ns, LAUNCH, work.call, work.track)
    at_ns = min(called_ns, work.start_ns)
    return at_ns, work.thread, None


def _last_awaited(chain: _Chain, work: _Work) -> tuple[_Work | None, str]:
    """The work before it on its stream, or that of another one if it ended later."""
    before = work.before
    other = chain.awaited.get(work.span)
    if other is None or other.end_ns > work.start_ns:
        return before, GAP
    if before is not None and before.end_ns >= other.end_ns:
        return before, GAP
    return other, WAIT


def _before_host(
    chain: _Chain, at_ns: int, thread: int | None
) -> tuple[int, int | None, _Work | None]:
    """What a thread did or waited for before this."""
    piece = chain.last_piece(thread, at_ns) if thread is not None else None
    if thread is None or piece is None or piece.end_ns < at_ns:
        other = chain.last_thread(at_ns, thread)
        if other is None:
            return chain.from_ns, None, None
        thread = other
        piece = chain.last_piece(thread, at_ns)
        assert piece is not None  # it is the one that did something
        until_ns = min(piece.end_ns, at_ns)
        chain.add(until_ns, at_ns, CPU, BETWEEN, thread)
        at_ns = until_ns
    own_ns = chain.own_end.get(piece.call)
    is_blocking = own_ns is not None and own_ns <= at_ns
    if piece.is_sync or is_blocking:
        waited = chain.work_ended(piece.call_start_ns, at_ns)
        if waited is not None:
            chain.add(waited.end_ns, at_ns, SYNC, piece.name, thread)
            return waited.end_ns, None, waited
    kind = LOADING if piece.is_loading else CPU
    chain.add(piece.start_ns, at_ns, kind, piece.name, thread)
    return piece.start_ns, thread, None
