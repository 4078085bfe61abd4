"""CPU time, page faults and memory of the processes, from the readings of their counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerscope.analyse.step_times import FEWEST_FOR_DRIFT, Arrays, Int64s, MeasuredSteps, StepTimes
from layerscope.model.layers import PROCESS_COUNTERS
from layerscope.store.reader import Reader
from layerscope.store.run import RunInfo

# The medians of the first and of the last third differ by more than this: a growth.
GROWTH = 0.05
# What an allocator may take between two thirds without being a leak.
GROWTH_BYTES = 16_000_000


@dataclass(slots=True)
class Resources:
    """CPU time and page faults of all processes: of a step on average, or of the whole run. None: not recorded."""

    per_step: bool
    cpu_ns: float
    kernel_ns: float | None
    busy_cpus: float
    cpus: float | None
    faults_minor: float | None
    faults_major: float | None


@dataclass(slots=True)
class Memory:
    """Resident memory. `growth_bytes` lies between the first and last third of the measured steps; None: unknown."""

    end_bytes: int | None
    peak_bytes: int
    growth_bytes: int | None = None
    is_growing: bool = False


class Counters:
    """The readings of the processes' counters, not of those that the program made, whatever these are called."""

    def __init__(self, reader: Reader, tracks: Arrays, processes: Arrays) -> None:
        columns = reader.arrays("counters", ["track", "at_ns", "name", "value"])
        of_track = dict(zip(tracks["track"].tolist(), tracks["process"].tolist(), strict=True))
        self.started = dict(zip(processes["process"].tolist(), processes["start_ns"].tolist(), strict=True))
        self.readings: dict[tuple[int, str], tuple[Int64s, Int64s]] = {}
        ours = np.flatnonzero(np.isin(columns["track"], tracks["track"][tracks["name"] == PROCESS_COUNTERS]))
        track, name = columns["track"][ours], columns["name"][ours]
        order = np.lexsort((columns["at_ns"][ours], name, track))
        begins = np.flatnonzero((np.diff(track[order]) != 0) | (np.diff(name[order]) != 0)) + 1
        for rows in np.split(ours[order], begins) if len(ours) else ():
            key = of_track[int(columns["track"][rows[0]])], str(columns["name.names"][columns["name"][rows[0]]])
            self.readings[key] = columns["at_ns"][rows], columns["value"][rows]

    def growth(self, name: str, begin_ns: int, end_ns: int) -> float | None:
        """By how much the cumulative counter `name` grew in all processes, between the readings interpolated."""
        total = None
        for (process, counter), (at_ns, values) in self.readings.items():
            if counter == name:
                # It counts from the start of its process; that point is not among the readings.
                start_ns = min(self.started.get(process, int(at_ns[0])), int(at_ns[0]))
                at, value = np.append(start_ns, at_ns), np.append(0, values)
                total = (total or 0.0) + float(np.interp(end_ns, at, value) - np.interp(begin_ns, at, value))
        return total

    def covered(self, begin_ns: int, end_ns: int, processes: Sequence[int]) -> tuple[int, int]:
        """The part of this stretch in which the CPU time of all of `processes` is known."""
        for process in processes:
            at_ns, _ = self.readings.get((process, "cpu_ns"), (np.zeros(1, np.int64), None))
            begin_ns = max(begin_ns, min(self.started.get(process, int(at_ns[0])), int(at_ns[0])))
            end_ns = min(end_ns, int(at_ns[-1]))
        return begin_ns, end_ns


def resources(counters: Counters, steps: MeasuredSteps, times: StepTimes | None, info: RunInfo) -> Resources | None:
    """CPU time and page faults of a step or, where that is not known, of the run."""
    return _resources_per_step(counters, steps, times, info) or _resources_of_run(info)


def _resources_per_step(
    counters: Counters, steps: MeasuredSteps, times: StepTimes | None, info: RunInfo
) -> Resources | None:
    if times is None:
        return None
    begin_ns, end_ns = counters.covered(steps.begin_ns, steps.end_ns, steps.processes)
    if end_ns <= begin_ns:
        return None
    # A rate times the length of a step, not a sum divided by the steps: between the steps of two
    # epochs lies evaluation, which belongs to no step. Requests overlap, and the program waits for the
    # next one or prepares it between them: each has its part of everything.
    step_ns = 1e9 / times.per_second if times.rule == "request" else times.mean_ns

    def per_step(name: str) -> float | None:
        grown = counters.growth(name, begin_ns, end_ns)
        return None if grown is None else grown / (end_ns - begin_ns) * step_ns

    cpu_ns = per_step("cpu_ns")
    if cpu_ns is None:
        return None
    return Resources(
        per_step=True,
        cpu_ns=cpu_ns,
        kernel_ns=per_step("system_ns"),
        busy_cpus=cpu_ns / max(step_ns, 1),
        cpus=_cpus(info),
        faults_minor=per_step("faults_minor"),
        faults_major=per_step("faults_major"),
    )


def _resources_of_run(info: RunInfo) -> Resources | None:
    program = info.program
    if not program.wall_ns:
        return None
    cpu_ns = program.user_ns + program.system_ns
    return Resources(
        per_step=False,
        cpu_ns=cpu_ns,
        kernel_ns=program.system_ns,
        busy_cpus=cpu_ns / program.wall_ns,
        cpus=_cpus(info),
        faults_minor=program.faults_minor,
        faults_major=program.faults_major,
    )


def _cpus(info: RunInfo) -> float | None:
    cpus = info.host.get("cpus")
    return cpus if isinstance(cpus, (int, float)) else None


def memory_of(counters: Counters, steps: MeasuredSteps, info: RunInfo) -> Memory | None:
    """Of the processes that have steps, else of all; those of a loader share most of their pages with them."""
    all_rss = {p: readings for (p, name), readings in counters.readings.items() if name == "rss_bytes"}
    rss = {p: readings for p, readings in all_rss.items() if p in steps.processes} or all_rss
    if not rss:
        return Memory(None, info.program.max_rss_bytes) if info.program.max_rss_bytes else None
    # The last reading of a process may fall into its end, when its memory is already given back.
    end_bytes = sum(int(values[values > 0][-1]) for _, values in rss.values() if (values > 0).any()) or None
    most_bytes = max(int(values.max(initial=0)) for _, values in rss.values())
    memory = Memory(end_bytes, max(info.program.max_rss_bytes, most_bytes, end_bytes or 0))
    if not memory.peak_bytes:
        return None
    if not steps.processes:
        return memory
    first = last = 0.0
    for at_ns, values in rss.values():
        within = values[(at_ns >= steps.begin_ns) & (at_ns <= steps.end_ns) & (values > 0)]
        if len(within) < FEWEST_FOR_DRIFT:
            return memory
        third = len(within) // 3
        first, last = first + float(np.median(within[:third])), last + float(np.median(within[-third:]))
    memory.growth_bytes = round(last - first)
    memory.is_growing = memory.growth_bytes > max(GROWTH * first, GROWTH_BYTES)
    return memory
