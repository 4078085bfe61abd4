"""What the own profilers of frameworks recorded of a process, beside its raw file.

The spans of a thread that the agent knows lie in what the agent has of it; others have tracks of
their own.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from layerscope.model import units
from layerscope.model.clocks import Conversion
from layerscope.model.distinct import distinct
from layerscope.model.events import FIRST_RUNS, Problem
from layerscope.model.layers import KINDS, OPERATORS
from layerscope.model.stored_json import decoded
from layerscope.rawfile import layout
from layerscope.sources.imported import Imported
from layerscope.sources.raw.async_runs import ThreadRuns, async_runs
from layerscope.sources.raw.first_runs import Extrapolated, extrapolated
from layerscope.sources.raw.late_spans import LateSpans, joined_spans
from layerscope.sources.raw.loops import Loops
from layerscope.sources.raw.open_operators import RecordedProcess, ThreadSpans
from layerscope.sources.raw.profile_files import ProfileFile, contents_of, profiles_in
from layerscope.sources.raw.profile_tasks import tasks
from layerscope.sources.wire import signed

_FUNCTION, _MODULE = (KINDS.index(kind) for kind in ("function", "module"))
# The thread of a profile that is the one that the process began with.
MAIN = -1
# Types of nodes that are named.
_MOST_TYPES = 4
# Numbers of tracks are made of the numbers of their names.
_NAMES, _TRACKS_OF_A_NAME = 1 << 13, 1 << 7
# Makes the numbers of all tracks positive.
_OTHERS = 1 << 23


def place(
    raw: Path, processes: list[RecordedProcess]
) -> tuple[dict[int, LateSpans], list[Problem]]:
    """The spans of each process by the profiles in `raw`, and what has to be said."""
    found: dict[int, list[LateSpans]] = {}
    problems: list[Problem] = []
    pids = [process.decoder.about.get("pid") for process in processes]
    lost = 0
    tids: dict[tuple[int, int], int] = {}
    for profile in profiles_in(raw):
        if profile.pid not in pids:
            continue
        number = pids.index(profile.pid)
        if "tasks" in profile.about:
            clock = clock_of(processes[number])
            told = profile.about["tasks"] if clock else []
            others = tasks(told, clock or Conversion(), threads_of(processes[number]))
            found.setdefault(number, []).extend([others] if others else [])
            continue
        contents, damaged = contents_of(profile)
        problems += damaged
        lost += not contents
        for content in contents:
            number_threads(content, profile, tids)
            spans = placed(profile, content, processes[number])
            if spans is not None:
                found.setdefault(number, []).append(spans)
                problems += _first_runs(profile, spans, processes[number])
                problems += _fallen_back(spans, processes[number])
                counters = _counters(profile, content, processes[number])
                found[number] += [counters] if counters else []
    if lost:
        problems.append(lost_profiles(lost))
    together = {number: _together(parts) for number, parts in found.items() if parts}
    return together, problems


def number_threads(
    content: Imported, profile: ProfileFile, tids: dict[tuple[int, int], int]
) -> None:
    """A thread that has told its number in a segment has it in the later ones, in place. `tids`: by
    process and what the profiler numbers it.
    """
    told = profile.about.get("threads")
    for number, tid in told.items() if isinstance(told, dict) else ():
        if number.isdecimal() and isinstance(tid, int):
            key = profile.pid, signed(int(number))
            tids[key] = tid
    for at, track in enumerate(content.tracks):
        key = profile.pid, track.number
        if track.number and track.tid is not None and track.tid != MAIN:
            tids[key] = track.tid
        elif key in tids:
            content.tracks[at] = replace(track, tid=tids[key])


def lost_profiles(count: int) -> Problem:
    """What has to be said of profiles that have no file."""
    what = (
        f"{count} profile{'s' if count > 1 else ''} of the framework had not ended when the "
        "program was ended"
    )
    remedy = "let the program end by itself; what lies around these operators is recorded"
    return Problem(OPERATORS, "profile_lost", what, remedy, "operators of unfinished profiles")


def placed(profile: ProfileFile, content: Imported, process: RecordedProcess) -> LateSpans | None:
    """The spans of one file on the tracks and the clock of its process."""
    first_ns = profile.first_ns(content)
    clock = clock_of(process)
    if first_ns is None or clock is None or not len(content.start_ns):
        return None
    start_ns = clock.to_run(content.start_ns + first_ns)
    end_ns = start_ns + content.dur_ns
    track = np.zeros(len(start_ns), np.int32)
    module = np.zeros(len(start_ns), np.uint32)
    depth = content.depth.astype(np.int32)
    asked_ns, asked_track = np.zeros(len(start_ns), np.int64), np.zeros(len(start_ns), np.int32)
    threads, of_others = threads_of(process), async_runs(process)
    others = _numbers_of_others(content)
    for number in distinct(content.track).tolist():
        rows = np.flatnonzero(content.track == number)
        tid = content.tracks[number].tid
        thread = threads.get(profile.pid if tid == MAIN else tid or 0)
        track[rows] = thread.track if thread else others[number]
        if thread is None:
            continue
        middle_ns = _middles(start_ns[rows], end_ns[rows], depth[rows])
        module[rows] = _modules(process, thread.track, middle_ns)
        around = thread.around(middle_ns, middle_ns, 0)
        depth[rows] += around.depth
        start_ns[rows] = np.clip(start_ns[rows], around.from_ns, around.until_ns)
        end_ns[rows] = np.clip(end_ns[rows], start_ns[rows], around.until_ns)
        runs = of_others.get(tid or 0, ThreadRuns())
        run = np.where(module[rows] == 0, runs.at(middle_ns), -1)
        rows, run = rows[run >= 0], run[run >= 0]
        module[rows] = runs.module[run]
        asked_ns[rows] = runs.asked_ns[run]
        asked_track[rows] = runs.asked_track[run]
    args = content.args
    line = np.broadcast_to(content.more.get("line", 0), start_ns.shape)
    told = list(zip(others, content.tracks, strict=True))
    return LateSpans(
        track=track,
        start_ns=start_ns,
        end_ns=end_ns,
        depth=depth,
        kind=content.kind,
        name=content.name,
        args=np.where(args >= 0, args + len(content.names), -1),
        texts=[*content.names, *content.args_texts],
        module=module,
        line=line.astype(np.int64) - 1,
        scope=np.broadcast_to(content.more.get("module", -1), start_ns.shape),
        asked_ns=asked_ns,
        asked_track=asked_track,
        track_names={number: one.name for number, one in told},
        track_tids={number: one.tid for number, one in told if one.tid and one.tid > 0},
        step_mark=content.step_mark,
        calls=content.calls,
    )


def _counters(
    profile: ProfileFile, content: Imported, process: RecordedProcess
) -> LateSpans | None:
    """The counters of one file, on threads that the agent knows."""
    moments, threads = content.moments, threads_of(process)
    first_ns, clock = profile.first_ns(content), clock_of(process)
    tracks = [threads.get(track.tid or 0) for track in content.tracks]
    number_of = np.array([track.track if track else -1 for track in tracks], np.int32)
    track = number_of[moments.track]
    rows = np.flatnonzero((track >= 0) & ~moments.is_mark)
    if first_ns is None or clock is None or not len(rows):
        return None
    nothing = np.zeros(len(rows), np.int32)
    return LateSpans(
        track=track[rows],
        start_ns=clock.to_run(moments.at_ns[rows] + first_ns),
        end_ns=moments.value[rows].astype(np.int64),
        depth=nothing,
        kind=nothing + np.uint8(layout.COUNTER),
        name=moments.name[rows],
        args=nothing - 1,
        texts=content.names,
    )


def _numbers_of_others(content: Imported) -> list[int]:
    """A number for each track that is no thread of the agent's: below 0, and the same in all
    profiles of a process for a thread whose number is known, and for the n-th track of a name.
    """
    met: dict[str, int] = {}
    numbers = []
    for track in content.tracks:
        if track.tid and track.tid > 0:
            numbers.append(-1 - (_NAMES * _TRACKS_OF_A_NAME + track.tid))
            continue
        nth = met[track.name] = met.get(track.name, -1) + 1
        name = zlib.crc32(track.name.encode()) % _NAMES
        numbers.append(-1 - (name * _TRACKS_OF_A_NAME + nth % _TRACKS_OF_A_NAME))
    return numbers


def _middles(start_ns: np.ndarray, end_ns: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Of each span of a thread the middle of the outermost one around it, which the clock of the
    profile, of microseconds, puts into the right call.
    """
    order = np.lexsort((depth, start_ns))
    is_outermost = depth[order] == 0
    place = np.maximum.accumulate(np.where(is_outermost, np.arange(len(order)), 0))
    outermost = order[place]
    middles = np.empty_like(start_ns)
    middles[order] = (start_ns[outermost] + end_ns[outermost]) // 2
    return middles


def _modules(process: RecordedProcess, track: int, at_ns: np.ndarray) -> np.ndarray:
    """The numbers of the names of the modules that a thread is in; 0: there is none."""
    spans = process.spans
    rows = np.flatnonzero((spans["track"] == track) & (spans["kind"] == _MODULE))
    if not len(rows):
        return np.zeros(len(at_ns), np.uint32)
    starts = spans["start"][rows]
    order = np.argsort(starts, kind="stable")
    rows, starts = rows[order], starts[order]
    at = np.searchsorted(starts, at_ns, side="right") - 1
    around = rows[np.maximum(at, 0)]
    is_open = spans["end"][around] >= at_ns
    is_open &= at >= 0
    return np.where(is_open, spans["name"][around], 0)


def _first_runs(
    profile: ProfileFile, late: LateSpans, process: RecordedProcess
) -> Iterator[Problem]:
    """That only the first runs were profiled, and what all take by these."""
    sessions = distinct(late.module[late.module > 0])
    if "full" not in profile.about or not len(sessions):
        return
    runs = _runs(process, sessions)
    here = runs[runs["args"] == 0]  # and not on another thread
    of_others = distinct(late.asked_ns[late.asked_ns > 0])
    before = int(np.searchsorted(here["start"], late.end_ns.max()))
    profiled = before + len(of_others)
    rest = len(runs) - profiled
    if not rest:
        return
    told = None if len(of_others) else _extrapolated(here, before, late)
    called = process.decoder.names[int(sessions[0])]
    name, _, _ = called.partition("\n")
    what = f"the profiler of {name} keeps all events in memory, and ended after {profiled:,} runs"
    lost = f"the operators of {rest:,} of {len(runs):,} runs"
    if told is not None:
        total = units.duration(told.total_ns)
        low = units.duration(told.low_ns)
        high = units.duration(told.high_ns)
        lost += f" (those of all take {total}, {low} to {high}, by the first ones)"
    yield Problem(OPERATORS, FIRST_RUNS, what, "nothing to do: every run is recorded", lost)


def _extrapolated(runs: np.ndarray, profiled: int, late: LateSpans) -> Extrapolated | None:
    """How long the operators of all these runs take by the first ones, which were profiled."""
    inner = np.flatnonzero(late.kind == _FUNCTION)
    of_run = np.searchsorted(runs["start"], late.start_ns[inner], side="right") - 1
    is_known = of_run >= 0
    dur_ns = (late.end_ns - late.start_ns)[inner]
    sums_ns = np.zeros(len(runs))
    np.add.at(sums_ns, of_run[is_known], dur_ns[is_known])
    run_ns = (runs["end"] - runs["start"]).astype(np.float64)
    return extrapolated(run_ns, sums_ns[:profiled])


def _fallen_back(late: LateSpans, process: RecordedProcess) -> Iterator[Problem]:
    """That nodes were executed by another provider than the program asked for."""
    fallen = {}
    for number in distinct(late.args[late.args >= 0]).tolist():
        about = decoded(late.texts[number].encode(), dict[str, Any])
        if "asked" in about:
            fallen[number] = about
    if not fallen:
        return
    rows = np.flatnonzero(np.isin(late.args, list(fallen)))
    names = {(late.args[row], late.name[row]) for row in rows}
    nodes = {(late.texts[name], fallen[args].get("node")) for args, name in names}
    counts = Counter(type_ for type_, _ in nodes)
    types = ", ".join(f"{type_} ({count})" for type_, count in counts.most_common(_MOST_TYPES))
    others = ", and others" if len(counts) > _MOST_TYPES else ""
    first, *_ = fallen.values()
    providers = {str(about.get("provider")) for about in fallen.values()}
    provider = " and ".join(sorted(providers))
    modules = late.module[rows]
    model, _, _ = process.decoder.names[int(modules.max())].partition("\n")
    of_model = f" of {model}" if modules.any() else ""
    what = (
        f"{len(nodes)} nodes{of_model} ran on {provider}, "
        f"though {first['asked']} was asked for: {types}{others}"
    )
    yield Problem(OPERATORS, "provider_fallback", what, "`layerscope table nodes` lists them")


def _runs(process: RecordedProcess, sessions: np.ndarray) -> np.ndarray:
    """The runs of these sessions in the order of their starts."""
    spans = process.spans
    is_run = spans["kind"] == _MODULE
    is_run &= np.isin(spans["name"], sessions)
    runs = spans[is_run]
    order = np.argsort(runs["start"], kind="stable")
    ordered: np.ndarray = runs[order]
    return ordered


def clock_of(process: RecordedProcess) -> Conversion | None:
    """From CLOCK_REALTIME to the run's clock, by what was read of both."""
    clock = Conversion()
    for _, run_ns, realtime_ns, _ in process.decoder.readings:
        clock.add(realtime_ns, run_ns)
    return clock if process.decoder.readings else None


def threads_of(process: RecordedProcess) -> dict[int, ThreadSpans]:
    """By their numbers, the threads that the agent knows, with their spans by depth."""
    found = {}
    spans = process.spans
    for number, track in process.decoder.tracks.items():
        if track.tid is None:
            continue
        thread = found[track.tid] = ThreadSpans(number)
        of_thread = np.flatnonzero(spans["track"] == number)
        depth = spans["depth"][of_thread]
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = of_thread[depth == level]
            rows = rows[np.argsort(spans["start"][rows], kind="stable")]
            start, end = spans["start"][rows], spans["end"][rows]
            thread.levels.append((start, end, np.ones(len(rows), np.bool_)))
    return found


def _together(parts: list[LateSpans]) -> LateSpans:
    """The spans of several profiles of one process; tracks have the same numbers in all of them."""
    joined = joined_spans([replace(part, track=part.track + _OTHERS) for part in parts], 0)
    joined.track -= _OTHERS
    names = [part.track_names for part in parts]
    joined.track_names = dict(item for one in names for item in one.items())
    tids = [part.track_tids for part in parts]
    joined.track_tids = dict(item for one in tids for item in one.items())
    loops = Loops()
    for part in parts:
        loops.add(part)
    joined.step_mark = loops.step_mark
    return joined
