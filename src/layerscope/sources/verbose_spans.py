"""Calls of a verbose log as spans: when each began, and on which track.

A line says how long a call took, with timestamps also when it began, and never on which thread.
Without timestamps calls are laid end to end in the order of their lines. What overlaps ran on
several threads: it lies on further tracks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct
from layerscope.model.events import Problem
from layerscope.model.layers import KINDS, PRIMITIVES
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack
from layerscope.sources.onednn_problem import name_of

EXECUTED, CREATED = 0, 1
NOT_TOLD, HIT, MISS = 0, 1, 2
_CACHES = ("", "hit", "miss")
_JSON = msgspec.json.Encoder()
_KINDS = np.array([KINDS.index("execute"), KINDS.index("create")], np.uint8)
# Times have microseconds, as double-precision milliseconds since 1970: what touches may seem to
# overlap.
TOLERANCE_NS = 2_000
# A call of eleven days: the number is another one, or two that ran into each other.
LONGEST_NS = 10**15
# More threads at a time than this are not told apart: what is left lies on the last track.
_MOST_LANES = 64
# What launchers put before each line: torchrun, mpirun, srun, Ray, docker compose. The first group
# names the process.
_LABELS = (
    (re.compile(r"\[(?:rank|default|worker)?[ :]?([0-9]{1,6})\]:?\s*"), True),
    (re.compile(r"\[[0-9]{1,6},([0-9]{1,6})\](?:<std(?:out|err)>)?:?\s*"), True),
    (re.compile(r"(?:rank|Rank|RANK)[ =:]?([0-9]{1,6})\s*[:|>\]]\s*"), True),
    (re.compile(r"([0-9]{1,6}):\s+"), True),
    (re.compile(r"(\([^()]{0,80}\bpid=[0-9]{1,9}[^()]{0,80}\))\s*"), False),
    (re.compile(r"([\w.-]{1,80}?)\s*\|\s*"), False),
)
_LONGEST_LABEL = 200
# Of the header: oneDNN v3.12.0 (commit ...), DNNL v1.3.0, Intel MKL-DNN v0.21.1, Intel(R) MKL-DNN
# v0.19.0 (...),ISA
_VERSION = re.compile(
    r"(?:oneDNN|DNNL|Intel(?:\(R\))? MKL-DNN) (v[0-9][\w.+-]*)(?: \([^)]*\))?(?:,(.+))?"
)
_ISA = re.compile(r"(?:cpu,isa:|Detected ISA is )(.+)")
_RUNTIME = re.compile(r"cpu,runtime:([^,]+)(?:,nthr:([0-9]+))?")
_COLUMNS = {
    "position": np.int64,
    "kind": np.uint8,
    "cache": np.uint8,
    "is_graph": np.bool_,
    "start_ns": np.int64,
    "dur_ns": np.int64,
    "thread": np.int32,
    "text": np.int32,
    "process": np.int32,
}


class Calls(Struct):
    """The calls of a log in any order, as columns, and what its other lines say.

    `position`: of the line in the file. `kind`: EXECUTED or CREATED. `cache`: NOT_TOLD, HIT or
    MISS. `start_ns`: of CLOCK_REALTIME, -1: not told. `thread`: as MKL numbers them, 0 the first.
    `text`: index into `texts`.
    """

    texts: dict[tuple[str, str], int] = field(default_factory=dict)
    processes: dict[tuple[str, int | None], int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    headers: int = 0
    _parts: list[dict[str, np.ndarray]] = field(default_factory=list)

    def add(self, **columns: np.ndarray) -> None:
        """Append rows: an array for each column."""
        self._parts.append(columns)

    def columns(self) -> dict[str, np.ndarray]:
        """All rows in the order of their lines."""
        parts, self._parts = self._parts, []
        found: dict[str, np.ndarray] = {
            name: np.concatenate([part[name] for part in parts], dtype=kind)
            if parts
            else np.zeros(0, kind)
            for name, kind in _COLUMNS.items()
        }
        if (np.diff(found["position"]) >= 0).all():
            return found
        order = np.argsort(found["position"], kind="stable")
        return {name: values[order] for name, values in found.items()}

    def text_codes(self, texts: list[bytes], library: str) -> np.ndarray:
        """Indices of these texts of a library."""
        known = self.texts
        codes = [
            known.setdefault((library, text.decode("utf-8", "replace")), len(known))
            for text in texts
        ]
        return np.array(codes, np.int32)

    def process(self, prefix: bytes) -> int:
        """The process that a line belongs to, by what stands before its marker: anything, as a rule
        nothing.
        """
        label: tuple[str, int | None] = ("", None)
        text = prefix.decode("utf-8", "replace") if len(prefix) <= _LONGEST_LABEL else ""
        for pattern, is_rank in _LABELS if text else ():
            match = pattern.fullmatch(text)
            if match:
                label = (match[1], int(match[1]) if is_rank else None)
                break
        return self.processes.setdefault(label, len(self.processes))

    def note(self, text: str, count: int = 1) -> None:
        """Take in what a line about library or machine says."""
        text = text.strip()
        version, isa, runtime = (pattern.fullmatch(text) for pattern in (_VERSION, _ISA, _RUNTIME))
        if version:
            self.headers += count
            self.versions.setdefault("oneDNN", version[1])
        if text.startswith("MKL "):
            self.versions.setdefault("MKL", text.removeprefix("MKL "))
        told = isa[1] if isa else version[2] if version else None
        if told:
            self.environment.setdefault("isa", told)
        if runtime:
            self.environment.setdefault("runtime", runtime[1])
            if runtime[2]:
                self.environment.setdefault("threads", runtime[2])


class _Lane(NamedTuple):
    """Where a call lies: `number` of its track among those of its thread, and how many are open
    around it.
    """

    number: np.ndarray
    depth: np.ndarray


def placed(calls: Calls, rejected: int, example: str) -> Imported:
    """The spans of `calls`; `rejected` lines, of which `example` was the first, could not be
    understood.
    """
    columns = calls.columns()
    has_time = columns["start_ns"] >= 0
    realtime_ns = int(columns["start_ns"][has_time].min()) if has_time.any() else None
    columns["start_ns"] = np.where(has_time, columns["start_ns"] - (realtime_ns or 0), -1)
    on_tracks = _on_tracks(columns, len(calls.processes))
    texts = list(calls.texts)
    names, name_of_text = _names(texts)
    described, args = _arguments(columns, len(texts))
    # Calls without a time may lie before the first that has one.
    start_ns = on_tracks.start_ns - on_tracks.start_ns.min(initial=0)
    return Imported(
        start_ns=start_ns,
        dur_ns=columns["dur_ns"],
        track=on_tracks.track,
        depth=on_tracks.depth,
        kind=_KINDS[columns["kind"]],
        name=name_of_text[columns["text"]] if len(start_ns) else np.zeros(0, np.int32),
        args=args,
        names=names,
        args_texts=[_described(texts, *one) for one in described],
        tracks=on_tracks.tracks,
        processes=[ImportedProcess(name, rank) for name, rank in calls.processes],
        realtime_ns=realtime_ns,
        versions=calls.versions,
        environment=calls.environment,
        problems=_problems(calls, has_time, rejected, example),
    )


class _OnTracks(Struct):
    """When each call began, its track and its depth there."""

    start_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    tracks: list[ImportedTrack] = field(default_factory=list)


def _on_tracks(columns: dict[str, np.ndarray], processes: int) -> _OnTracks:
    """Every process and thread on tracks of its own."""
    start_ns = columns["start_ns"].copy()
    track = np.zeros(len(start_ns), np.int32)
    depth = np.zeros(len(start_ns), np.int32)
    found = _OnTracks(start_ns, track, depth)
    for process in range(processes):
        of_process = np.flatnonzero(columns["process"] == process)
        calls = _rows(columns, of_process)
        calls["start_ns"] = _started(calls)
        start_ns[of_process] = calls["start_ns"]
        for thread in distinct(calls["thread"]).tolist():
            rows = np.flatnonzero(calls["thread"] == thread)
            lane = _lanes(_rows(calls, rows))
            of_thread = of_process[rows]
            track[of_thread] = len(found.tracks) + lane.number
            depth[of_thread] = lane.depth
            for number in range(int(lane.number.max()) + 1):
                name = _track_name(thread, number)
                found.tracks.append(ImportedTrack(process, name))
    return found


def _rows(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """These rows, in their order; not a copy where they are all."""
    if len(rows) == len(columns["kind"]):
        return dict(columns)
    found = {}
    for name, values in columns.items():
        found[name] = values[rows]
    return found


def _names(texts: list[tuple[str, str]]) -> tuple[list[str], np.ndarray]:
    """The different names of primitives, and by text the place of its name among them."""
    codes: dict[str, int] = {}
    of_text = []
    for _, text in texts:
        name = name_of(text) or "(unknown)"
        code = codes.setdefault(name, len(codes))
        of_text.append(code)
    places = np.array(of_text, np.int32)
    return list(codes), places


def _arguments(
    columns: dict[str, np.ndarray], texts: int
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Each pair of a text and what became of the cache that occurs, and by call the place of its
    pair.
    """
    caches = len(_CACHES)
    pair = columns["text"] * caches + columns["cache"]
    occurs = np.zeros(texts * caches, np.bool_)
    occurs[pair] = True
    place = np.cumsum(occurs) - 1
    numbers = np.flatnonzero(occurs).tolist()
    pairs = [divmod(number, caches) for number in numbers]
    return pairs, place[pair].astype(np.int32)


def _described(texts: list[tuple[str, str]], number: int, cache: int) -> str:
    """The arguments of a span, as JSON."""
    library, text = texts[number]
    call = _JSON.encode(text).decode()
    members = [f'"library":"{library}"', f'"call":{call}']
    if cache:
        members.append(f'"cache":"{_CACHES[cache]}"')
    return "{" + ",".join(members) + "}"


def _track_name(thread: int, lane: int) -> str:
    name = f"MKL thread {thread}" if thread else "calls"
    if not lane:
        return name
    number = lane + 1
    return f"{name}, at the same time ({number})"


def _started(own: dict[str, np.ndarray]) -> np.ndarray:
    """When each call of a process began; those without a time begin where the one before them
    ends.
    """
    start_ns, dur_ns = own["start_ns"].copy(), own["dur_ns"]
    has_time = start_ns >= 0
    if has_time.all():
        return start_ns
    advance_ns = np.where(has_time, 0, dur_ns)
    shift_ns = np.zeros(len(start_ns), np.int64)
    for row in np.flatnonzero(own["is_graph"] & ~has_time).tolist():
        inside_ns = _inside(own, has_time, row)
        advance_ns[row] -= inside_ns
        shift_ns[row] = inside_ns
    at_ns = np.cumsum(advance_ns) - advance_ns
    rows = np.arange(len(start_ns))
    before = np.maximum.accumulate(np.where(has_time, rows, -1))
    later = np.flatnonzero(~has_time & (before >= 0))
    start_ns[later] = (
        (start_ns + dur_ns)[before[later]] + at_ns[later] - at_ns[before[later]] - shift_ns[later]
    )
    first = np.flatnonzero(before < 0)
    if len(first) < len(rows):  # they end where the first one begins that has a time
        at_ns[first] += start_ns[len(first)] - at_ns[len(first)]
    start_ns[first] = at_ns[first] - shift_ns[first]
    return start_ns


def _inside(own: dict[str, np.ndarray], has_time: np.ndarray, row: int) -> int:
    """How long the calls take that lie in a partition of a graph: those right before it that fit
    into its time.
    """
    inside_ns, at = 0, row - 1
    while (
        at >= 0
        and not (has_time[at] or own["is_graph"][at])
        and own["kind"][at] == own["kind"][row]
    ):
        if inside_ns + int(own["dur_ns"][at]) > own["dur_ns"][row]:
            break
        inside_ns += int(own["dur_ns"][at])
        at -= 1
    return inside_ns


def _lanes(own: dict[str, np.ndarray]) -> _Lane:
    """Tracks for the calls of one thread, as far as that is known.

    Partitions of graphs hold other calls, creations hold creations; everything else that overlaps
    ran elsewhere.
    """
    start_ns, dur_ns = own["start_ns"], own["dur_ns"]
    # Of those that begin together the line of the inner one comes first. A partition holds what is
    # inside, and a creation a shorter one, unless that is too short to tell.
    is_creation = own["kind"] == CREATED
    later_ns = np.diff(start_ns)
    is_sorted = not own["is_graph"].any() and bool(
        ((later_ns > 0) | (later_ns == 0) & ~is_creation[1:]).all()
    )
    rank = np.where(
        is_creation, np.where(dur_ns > TOLERANCE_NS, -dur_ns, np.iinfo(np.int64).min), 0
    )
    order = (
        np.arange(len(start_ns)) if is_sorted else np.lexsort((rank, ~own["is_graph"], start_ns))
    )
    start, end = start_ns[order], (start_ns + dur_ns)[order]
    latest = np.maximum.accumulate(end)
    overlaps = np.append(False, start[1:] < latest[:-1] - TOLERANCE_NS)
    number, depth = np.zeros(len(order), np.int32), np.zeros(len(order), np.int32)
    # Only what overlaps is looked at one by one, and what it lies beside.
    mixed = np.flatnonzero(overlaps | np.append(overlaps[1:], False))
    lanes: list[list[tuple[int, bool, int]]] = []
    holds, kind = own["is_graph"][order[mixed]].tolist(), own["kind"][order[mixed]].tolist()
    for at, begin, stop, is_graph, what in zip(
        mixed.tolist(), start[mixed].tolist(), end[mixed].tolist(), holds, kind, strict=True
    ):
        lane = 0
        for lane, open_ in enumerate(lanes):
            while open_ and open_[-1][0] <= begin + TOLERANCE_NS:
                open_.pop()
            if not open_ or _fits(open_[-1], stop, what) or lane == _MOST_LANES:
                break
        else:
            lane, open_ = len(lanes), []
            lanes.append(open_)
        number[at], depth[at] = lane, len(open_)
        open_.append((stop, is_graph, what))
    placed_ = _Lane(np.zeros_like(number), np.zeros_like(depth))
    placed_.number[order], placed_.depth[order] = number, depth
    return placed_


def _fits(around: tuple[int, bool, int], stop: int, kind: int) -> bool:
    """Whether a call of `kind` that ends at `stop` may lie in one that is open: its end, whether a
    graph, its kind.
    """
    end, is_graph, outer = around
    if stop > end + TOLERANCE_NS:
        return False
    return is_graph if outer == EXECUTED else kind == CREATED


def _problems(calls: Calls, has_time: np.ndarray, rejected: int, example: str) -> list[Problem]:
    found = []
    if not len(has_time):
        what = "the log has no call of oneDNN or MKL"
        remedy = (
            "set ONEDNN_VERBOSE=2 (before 2.5 DNNL_VERBOSE, before 1.1 MKLDNN_VERBOSE), and "
            "MKL_VERBOSE=1"
        )
        found.append(Problem(PRIMITIVES, "no_calls", what, remedy, "everything"))
    elif not has_time.all():
        untimed = int(np.count_nonzero(~has_time))
        what = (
            f"{untimed:,} of {len(has_time):,} calls have no time in the log: each begins where "
            "the one before it ends"
        )
        remedy = "set ONEDNN_VERBOSE_TIMESTAMP=1 (oneDNN 2.1 and later; MKL has no times)"
        found.append(Problem(PRIMITIVES, "no_times", what, remedy, "the time between calls"))
    if calls.headers > max(len(calls.processes), 1):
        what = f"{calls.headers} processes wrote this log, and most lines do not name their process"
        remedy = "one log for each process, or a launcher that puts the rank before each line"
        found.append(
            Problem(PRIMITIVES, "processes_mixed", what, remedy, "which process a call belongs to")
        )
    if rejected:
        lines = "1 line has" if rejected == 1 else f"{rejected:,} lines have"
        what = (
            f"{lines} a marker of oneDNN or MKL and could not be understood, first: {example[:200]}"
        )
        remedy = (
            "look at that line: the log was cut there, several processes wrote it at once, or the "
            "format is one of a version that this layerscope does not read"
        )
        found.append(Problem(PRIMITIVES, "lines_rejected", what, remedy, "these calls"))
    return found
