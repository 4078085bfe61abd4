"""`perf.data`, as `perf record` writes it to a file or a pipe, packed or not, on any machine of the
same byte order.

Samples of one event are CPU time: of a clock its period, of another event in proportion to its
count (`perf_weights`). Page faults and switches become faults and waits. What perf unwinds only
afterwards (`--call-graph dwarf`) is unwound here, by the files that it ran (`perf_unwinding`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layerscope.model.distinct import distinct
from layerscope.model.events import Problem
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES, STACKS
from layerscope.sources import perf_file, perf_kernel
from layerscope.sources import perf_records as rec
from layerscope.sources.imported import Imported, ImportedProcess, ImportedStacks, ImportedTrack
from layerscope.sources.perf_frames import stacks
from layerscope.sources.perf_threads import Threads, threads
from layerscope.sources.perf_unwinding import Unwound, unwind
from layerscope.sources.perf_waits import (
    Waits,
    formats_of,
    is_off_cpu_event,
    is_switch,
    off_cpu_began,
    tracepoint,
    waits,
    with_times,
)
from layerscope.sources.perf_weights import weights

MEANING = "perf.data"
_CPU_CLOCK, _TASK_CLOCK = 0, 1
_FAULTS = (2, 5, 6)  # all, minor, major
_CYCLES = 0
_KIND_MASK = 0xFFFFFFFF  # of the config of a hardware event: above it the kind of core
_CPU, _OFFCPU, _FAULT, _NOT_SHOWN = *map(SAMPLE_KINDS.index, ("cpu", "offcpu", "fault")), -1
_USER, _KERNEL, _PREEMPTED, _OTHER = map(
    SAMPLE_STATES.index, ("user", "kernel", "preempted", "other")
)
_CLOCKS = {
    0: "CLOCK_REALTIME",
    1: "CLOCK_MONOTONIC",
    4: "CLOCK_MONOTONIC_RAW",
    7: "CLOCK_BOOTTIME",
    11: "CLOCK_TAI",
}
_OWN_CLOCK = "perf's own clock"
# So long perf may work on its file when the last sample was taken: looking for builds, writing it.
_LATER_S = 60


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a perf.data, of this machine's byte order or not."""
    return head[:8] in (perf_file.MAGIC, perf_file.FOREIGN, perf_file.OLD)


def beside(path: Path) -> list[Path]:
    """Files that are read with it."""
    return perf_kernel.lists_beside(path)


def read(path: Path) -> Imported:
    """The samples of the file `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    file = perf_file.open_file(path)
    file.path = path
    decoded = rec.decoded(file)
    known = threads(file)
    samples = decoded.samples
    samples.time, untimed = with_times(samples.time)
    track = known.tracks(samples.tid, samples.pid, samples.time)
    spaces = known.spaces_of(samples.pid, samples.time)
    unwound = unwind(file, decoded, known, spaces)
    found = stacks(file, decoded, known, spaces, _zero_s(path, file, samples))
    kinds = _kinds(file)
    problems = _file_problems(path, file, decoded, unwound) + untimed
    of_event = np.array(kinds, np.int8)[samples.event]
    shown = np.flatnonzero((of_event >= 0) & ~_is_wait(file, samples))
    pieces = [_columns(file, samples, kinds, track, found.of_sample, shown)]
    pauses = waits(file, decoded, known)
    if len(pauses.tid):
        pieces.append(_wait_columns(pauses, samples, known, track, found.of_sample))
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    order = np.argsort(columns["at_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    problems += _event_problems(file, kinds, samples, pauses)
    content = _about(file)
    content.tracks, content.processes, content.problems, content.lost = (
        _tracks(known),
        _processes(known),
        problems,
        _lost(file),
    )
    content.stacks = ImportedStacks(found.frames, found.stacks, columns)
    return content


# -- samples ---------------------------------------------------------------------------------------


def _kinds(file: perf_file.PerfFile) -> list[int]:
    """What the samples of each event are: index into SAMPLE_KINDS, or _NOT_SHOWN.

    One event is the CPU time: the first of cpu-clock and task-clock, else cycles (on every kind of
    core), else the first that is no tracepoint.
    """
    formats = formats_of(file)
    kinds, ranks = [], []
    for event in file.events:
        rank, kind = 0, _NOT_SHOWN
        if event.type == perf_file.SOFTWARE and event.config in _FAULTS:
            kind = _FAULT
        elif is_switch(event, formats) or is_off_cpu_event(event):
            kind = _OFFCPU
        elif event.type == perf_file.SOFTWARE:
            rank = {_CPU_CLOCK: 5, _TASK_CLOCK: 4}.get(event.config, 0)
        elif event.type == perf_file.HARDWARE and event.config & _KIND_MASK == _CYCLES:
            rank = 3
        elif not tracepoint(event, formats):
            rank = 2 if "cycles" in event.name else 1
        kinds.append(kind)
        ranks.append(rank if event.sample_type & rec.TID else 0)
    best = max(ranks, default=0)
    chosen = [number for number, rank in enumerate(ranks) if rank == best > 0]
    for number in _counted_once(file, chosen) if best == 3 else chosen[:1]:
        kinds[number] = _CPU
    return kinds


def _counted_once(file: perf_file.PerfFile, chosen: list[int]) -> list[int]:
    """Of these events, all cycles, those that count nothing twice: the widest on each kind of core,
    and what that leaves out.
    """
    counted = {number: file.events[number].counted() for number in chosen}
    by_width = sorted(chosen, key=lambda number: -len(counted[number]))
    found = []
    known: dict[int, set[tuple[str, str]]] = {}
    for number in by_width:
        kind_of_core = file.events[number].config & ~_KIND_MASK
        before = known.setdefault(kind_of_core, set())
        if before.isdisjoint(counted[number]):
            before |= counted[number]
            found.append(number)
    return found


def _is_wait(file: perf_file.PerfFile, samples: rec.PerfSamples) -> np.ndarray:
    """Which samples are shown as the waits that they begin."""
    formats = formats_of(file)
    found: np.ndarray = np.array([is_switch(event, formats) for event in file.events])[
        samples.event
    ]
    return found


def _columns(
    file: perf_file.PerfFile,
    samples: rec.PerfSamples,
    kinds: list[int],
    track: np.ndarray,
    stack: np.ndarray,
    rows: np.ndarray,
) -> dict[str, np.ndarray]:
    """Rows of the table `samples` for these samples."""
    chosen = samples.taken(rows)
    kind = np.array(kinds, np.int8)[chosen.event]
    weight = np.zeros(len(rows), np.int64)
    for number in distinct(chosen.event).tolist():
        mine = np.flatnonzero(chosen.event == number)
        if kinds[number] == _CPU:
            weight[mine] = _weights(file.events[number], chosen.taken(mine))
        elif kinds[number] == _OFFCPU:
            weight[mine] = np.maximum(chosen.period[mine], 0)
    in_kernel = (chosen.mode == rec.MODE_KERNEL) & (kind == _CPU)
    state = np.where(kind == _OFFCPU, _OTHER, np.where(in_kernel, _KERNEL, _USER)).astype(np.int8)
    began = off_cpu_began(chosen.time, weight, samples.time)
    return {
        "at_ns": np.where(kind == _OFFCPU, began, chosen.time),
        "track": track[rows],
        "stack": stack[rows],
        "weight_ns": weight,
        "count": np.where(kind == _FAULT, np.maximum(chosen.period, 1), 1),
        "kind": kind,
        "state": state,
        "idle": (chosen.tid == 0) & (kind == _CPU),
        "exact": kind == _OFFCPU,
        "waker": np.full(len(rows), -1, np.int64),
    }


def _weights(event: perf_file.PerfEvent, samples: rec.PerfSamples) -> np.ndarray:
    """The CPU time that each sample of `event` stands for."""
    is_clock = event.type == perf_file.SOFTWARE and event.config in (_CPU_CLOCK, _TASK_CLOCK)
    frequency = event.period if event.has("freq") else 0
    has_period = bool(event.sample_type & rec.PERIOD) or not frequency
    period = samples.period if has_period else None
    return weights(period, samples.time, samples.tid, is_clock, frequency)


def _wait_columns(
    pauses: Waits, samples: rec.PerfSamples, known: Threads, track: np.ndarray, stack: np.ndarray
) -> dict[str, np.ndarray]:
    """Rows of the table `samples` for these waits."""
    count = len(pauses.tid)
    has_sample = pauses.sample >= 0
    whose = known.tracks(pauses.tid, np.full(count, -1, np.int64), pauses.start_ns)
    woken = np.flatnonzero(pauses.waker > 0)
    wakers = np.full(count, -1, np.int64)
    end_ns = pauses.start_ns + pauses.dur_ns
    wakers[woken] = known.tracks(
        pauses.waker[woken], np.full(len(woken), -1, np.int64), end_ns[woken]
    )
    return {
        "at_ns": pauses.start_ns,
        "track": np.where(has_sample, np.append(track, -1)[pauses.sample], whose),
        "stack": np.append(stack, -1)[pauses.sample],
        "weight_ns": pauses.dur_ns,
        "count": np.ones(count, np.int64),
        "kind": np.full(count, _OFFCPU, np.int8),
        "state": np.where(pauses.preempted, _PREEMPTED, _OTHER).astype(np.int8),
        "idle": np.zeros(count, np.bool_),
        "exact": pauses.exact,
        "waker": wakers,
    }


# -- what else the file tells ----------------------------------------------------------------------


def _tracks(known: Threads) -> list[ImportedTrack]:
    return [
        ImportedTrack(one.process, one.name, one.tid, one.start_ns, one.end_ns)
        for one in known.threads
    ]


def _processes(known: Threads) -> list[ImportedProcess]:
    names = {
        one.process: one.name
        for one in reversed(known.threads)
        if one.tid == known.processes[one.process].pid
    }
    return [
        ImportedProcess(
            names.get(number, ""), None, max(one.pid, 0), one.ppid, one.start_ns, one.end_ns
        )
        for number, one in enumerate(known.processes)
    ]


def _about(file: perf_file.PerfFile) -> Imported:
    """Versions, machine, command and clock."""
    texts = {"perf": file.text(perf_file.VERSION), "Linux": file.text(perf_file.OSRELEASE)}
    clock = next(
        (
            _CLOCKS.get(one.clock, f"clock {one.clock}")
            for one in file.events
            if one.has("use_clockid")
        ),
        "",
    )
    machine = {
        "cpu": file.text(perf_file.CPUDESC),
        "arch": file.text(perf_file.ARCH),
        "clock": clock or _OWN_CLOCK,
    }
    content = Imported(host=file.text(perf_file.HOSTNAME), command=file.command())
    content.versions = {name: text for name, text in texts.items() if text}
    content.environment = {name: text for name, text in machine.items() if text}
    at = file.clock()
    if at is not None and clock:
        content.realtime_ns, content.realtime_at_ns = at[1], at[2]
    return content


def _zero_s(path: Path, file: perf_file.PerfFile, samples: rec.PerfSamples) -> float:
    """What CLOCK_REALTIME said at zero of the file's clock. Where that is not told, it is taken
    from when the file was written, and earlier than it was.
    """
    at, last_ns = file.clock(), int(samples.time.max(initial=0))
    if at is not None:
        return (at[1] - at[2]) / 1e9
    return path.stat().st_mtime - last_ns / 1e9 - _LATER_S if last_ns else 0.0


def _lost(file: perf_file.PerfFile) -> list[tuple[int, int]]:
    """When how many records were lost."""
    found: list[tuple[int, int]] = []
    for records, rows in rec.of_type(file, rec.LOST, rec.LOST_SAMPLES):
        time, _, _ = rec.moments(file, records, rows)
        # Records that are lost have a number of their event before the count, samples have not.
        offset = np.where(records.type[rows] == rec.LOST, 16, 8)
        count = records.words(records.start[rows] + offset)
        is_possible = (count > 0) & (count < 1 << 62)
        times = time[is_possible].tolist()
        counts = count[is_possible].tolist()
        found += zip(times, counts, strict=True)
    return found


def _file_problems(
    path: Path, file: perf_file.PerfFile, decoded: rec.Decoded, unwound: Unwound
) -> list[Problem]:
    """What is wrong with the file itself."""
    found = []
    if file.cut_at is not None or not file.finished:
        what = (
            f"{path.name} makes no sense from byte {file.cut_at:,} on"
            if file.cut_at is not None and file.finished
            else f"{path.name} was not finished: perf was killed, or the file was cut"
        )
        remedy = "end perf with Ctrl-C or SIGTERM, and copy the whole file"
        found.append(
            Problem(
                STACKS,
                "perf_cut",
                what,
                remedy,
                "everything behind it, and the builds of its libraries",
            )
        )
    if decoded.damaged or decoded.unknown:
        what = (
            f"{decoded.damaged + decoded.unknown:,} samples are damaged, or of events that the "
            "file does not tell"
        )
        found.append(Problem(STACKS, "perf_damaged", what, "record again", "these samples"))
    cut = unwound.stacks - unwound.to_root
    if cut:
        what = (
            f"{cut:,} of {unwound.stacks:,} copies of stacks in {path.name} (--call-graph dwarf) "
            "could not be unwound to the first function"
        )
        remedy = (
            "read it on the machine that recorded it, with the same libraries, or there "
            f"`perf script --no-inline -i {path.name} > stacks.txt` and open that; copy more "
            "(--call-graph dwarf,65528); or record with `layerscope run`"
        )
        found.append(Problem(STACKS, "perf_dwarf", what, remedy, "outer callers of these samples"))
    return found


def _event_problems(
    file: perf_file.PerfFile, kinds: list[int], samples: rec.PerfSamples, pauses: Waits
) -> list[Problem]:
    """What of the events is not shown."""
    found = []
    counts = np.bincount(samples.event, minlength=len(file.events)).tolist()
    formats = formats_of(file)
    left_out = [
        f"{event.name} ({count:,})"
        for event, kind, count in zip(file.events, kinds, counts, strict=True)
        if kind == _NOT_SHOWN
        and count
        and not tracepoint(event, formats).startswith(("sched_wak", "sched_switch"))
    ]
    if left_out:
        what = (
            "samples of other events than CPU time, faults and waits are not shown: "
            f"{', '.join(left_out)}"
        )
        remedy = "record them alone, and CPU time without them"
        found.append(Problem(STACKS, "perf_events", what, remedy, "these samples"))
    open_ended = int(np.count_nonzero(~pauses.exact))
    if open_ended and not pauses.is_complete:
        what = f"of {open_ended:,} of {len(pauses.tid):,} waits whose end is not in the file"
        remedy = "record the whole machine (-a), or with --switch-events"
        found.append(Problem(STACKS, "perf_waits", what, remedy, "how long these waits were"))
    throttled = sum(len(rows) for _, rows in rec.of_type(file, rec.THROTTLE))
    if throttled:
        what = f"the kernel paused the recording {throttled:,} times: it took too much CPU time"
        remedy = "record with a lower frequency (-F)"
        found.append(Problem(STACKS, "perf_throttled", what, remedy, "samples in between"))
    return found
