"""CPU time, page faults, switches, memory and I/O of the processes, from the readings of their
counters.

Figures of a step are the growth between the readings around the measured steps, in proportion to
the length of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from layerscope.analyse.by_step import system_readings
from layerscope.analyse.step_times import FEWEST_FOR_DRIFT, Arrays, MeasuredSteps, StepTimes
from layerscope.model.layers import ANSWERING, GROUP_COUNTERS
from layerscope.model.median import median
from layerscope.recording.reader import Reader
from layerscope.recording.run import RunInfo

# The medians of the first and of the last third differ by more than this: a growth.
GROWTH = 0.05
# With fewer readings of a counter between the first and the last step its growth says little about
# them.
FEWEST_READINGS = 3
# What an allocator may take between two thirds without being a leak.
GROWTH_BYTES = 16_000_000
# A process that was not read for so long before the last reading of any had ended by then.
READINGS_APART_NS = 2_500_000_000


class Resources(Struct):
    """CPU time and page faults of all processes: of a step on average, or of the whole run. None:
    not recorded.
    """

    per_step: bool
    cpu_ns: float
    kernel_ns: float | None
    busy_cpus: float
    cpus: float | None
    faults_minor: float | None
    faults_major: float | None


class MemoryUse(Struct):
    """Resident memory. `growth_bytes` lies between the first and last third of the measured steps;
    None: unknown.
    """

    end_bytes: int | None
    peak_bytes: int
    growth_bytes: int | None = None
    is_growing: bool = False


class Switches(Struct):
    """What the scheduler did with all threads: in a step on average, or in the whole run. None: not
    recorded.

    `delay_ns`: the time in which they could run and had no CPU, added up.
    """

    per_step: bool
    count: float
    forced: float
    migrations: float | None = None
    delay_ns: float | None = None


class ResourceLimits(Struct):
    """What the whole run read from and wrote to storage, and how a limit of CPU time held it up.
    None: not recorded.

    `throttled` counts periods of the limit; `throttled_ns` is each CPU's time, added up.
    """

    read_bytes: int | None
    write_bytes: int | None
    throttled: int | None
    throttled_ns: int | None


class Counters:
    """The readings of the processes' counters, and of their control groups'."""

    def __init__(self, reader: Reader, tracks: Arrays, processes: Arrays) -> None:
        self.started = dict(
            zip(processes["process"].tolist(), processes["start_ns"].tolist(), strict=True)
        )
        # The kernel adds what a process read and wrote to its parent when that has waited for it.
        is_root = ~np.isin(processes["ppid"], processes["pid"])
        self.roots: list[int] = processes["process"][is_root].tolist()
        self.readings = system_readings(reader, tracks, [])
        self.of_groups = system_readings(reader, tracks, [], GROUP_COUNTERS)

    def growth(self, name: str, begin_ns: int, end_ns: int) -> float | None:
        """By how much the cumulative counter `name` grew in all processes, between the readings
        interpolated.
        """
        total = None
        for (process, counter), (at_ns, values) in self.readings.items():
            if counter == name:
                # It counts from the start of its process; that point is not among the readings.
                start_ns = min(self.started.get(process, int(at_ns[0])), int(at_ns[0]))
                at, value = np.append(start_ns, at_ns), np.append(0, values)
                total = (total or 0.0) + float(
                    np.interp(end_ns, at, value) - np.interp(begin_ns, at, value)
                )
        return total

    def is_dense(self, name: str, begin_ns: int, end_ns: int) -> bool:
        """Whether readings of counter `name` are close enough to each other to describe this
        stretch.
        """
        most = 0
        for (_, counter), (at_ns, _) in self.readings.items():
            if counter == name:
                is_within = (at_ns >= begin_ns) & (at_ns <= end_ns)
                readings = int(np.count_nonzero(is_within))
                most = max(most, readings)
        return most >= FEWEST_READINGS

    def total(self, name: str, of: Sequence[int] | None = None) -> int | None:
        """The last readings of the cumulative counter `name` added up, of the processes `of`; None:
        of all.
        """
        found = [
            int(values[-1])
            for (process, counter), (_, values) in self.readings.items()
            if counter == name
            if of is None or process in of
        ]
        return sum(found) if found else None

    def total_of_groups(self, name: str) -> int | None:
        """The last readings of counter `name` of the control groups added up."""
        found = [
            int(values[-1])
            for (_, counter), (_, values) in self.of_groups.items()
            if counter == name
        ]
        return sum(found) if found else None

    def covered(self, begin_ns: int, end_ns: int, processes: Sequence[int]) -> tuple[int, int]:
        """The part of this stretch in which the CPU time of all of `processes` is known."""
        none = (np.zeros(1, np.int64), None)
        for process in processes:
            at_ns, _ = self.readings.get((process, "cpu_ns"), none)
            first_ns = int(at_ns[0])
            started_ns = self.started.get(process, first_ns)
            begin_ns = max(begin_ns, min(started_ns, first_ns))
            last_ns = int(at_ns[-1])
            end_ns = min(end_ns, last_ns)
        return begin_ns, end_ns


def resources(
    counters: Counters, steps: MeasuredSteps, times: StepTimes | None, info: RunInfo
) -> Resources | None:
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
    step_ns = _step_ns(times)

    def per_step(name: str) -> float | None:
        growth = counters.growth(name, begin_ns, end_ns)
        if growth is None:
            return None
        covered_ns = end_ns - begin_ns
        return growth / covered_ns * step_ns

    cpu_ns = per_step("cpu_ns")
    if cpu_ns is None:
        return None
    return Resources(
        per_step=True,
        cpu_ns=cpu_ns,
        kernel_ns=per_step("system_ns"),
        busy_cpus=cpu_ns / max(step_ns, 1),
        cpus=info.granted_cpus,
        faults_minor=per_step("faults_minor"),
        faults_major=per_step("faults_major"),
    )


def _step_ns(times: StepTimes) -> float:
    """The part of the run that a step has."""
    # A rate times the length of a step, not a sum divided by the steps: between the steps of two
    # epochs lies evaluation, which belongs to no step. Requests overlap, and the program waits for
    # the next one or prepares it between them: each has its part of everything.
    return 1e9 / times.per_second if times.rule in ANSWERING else times.mean_ns


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
        cpus=info.granted_cpus,
        faults_minor=program.faults_minor,
        faults_major=program.faults_major,
    )


def switches(
    counters: Counters, steps: MeasuredSteps, times: StepTimes | None, info: RunInfo
) -> Switches | None:
    """What the scheduler did: in a step, or in the run where steps are too few for that."""
    begin_ns = steps.begin_ns
    end_ns = steps.end_ns
    if times is not None and counters.is_dense("switches_forced", begin_ns, end_ns):
        part = _step_ns(times) / (end_ns - begin_ns)
        names = ("switches_voluntary", "switches_forced", "migrations", "delay_ns")
        grown = [counters.growth(name, begin_ns, end_ns) for name in names]
        a_step = [None if one is None else one * part for one in grown]
        voluntary, forced, migrations, delay_ns = a_step
        voluntary = voluntary or 0.0
        forced = forced or 0.0
        return Switches(
            per_step=True,
            count=voluntary + forced,
            forced=forced,
            migrations=migrations,
            delay_ns=delay_ns,
        )
    # What the system said at the end has threads in it that nobody could read in time.
    voluntary = info.program.switches_voluntary
    forced = info.program.switches_forced
    if voluntary is None or forced is None:
        voluntary = counters.total("switches_voluntary")
        forced = counters.total("switches_forced")
    if voluntary is None or forced is None:
        return None
    return Switches(
        per_step=False,
        count=voluntary + forced,
        forced=forced,
        migrations=counters.total("migrations"),
        delay_ns=counters.total("delay_ns"),
    )


def limits(counters: Counters, info: RunInfo) -> ResourceLimits:
    """What storage and the control group had to do with the run."""
    read_bytes, write_bytes = info.program.storage_read_bytes, info.program.storage_written_bytes
    return ResourceLimits(
        counters.total("storage_read_bytes", counters.roots) if read_bytes is None else read_bytes,
        counters.total("storage_written_bytes", counters.roots)
        if write_bytes is None
        else write_bytes,
        counters.total_of_groups("throttled"),
        counters.total_of_groups("throttled_ns"),
    )


def memory_of(counters: Counters, steps: MeasuredSteps, info: RunInfo) -> MemoryUse | None:
    """Of the processes that have steps, else of all; those of a loader share most of their pages
    with them.
    """
    all_rss = {
        p: readings for (p, name), readings in counters.readings.items() if name == "rss_bytes"
    }
    rss = {p: readings for p, readings in all_rss.items() if p in steps.processes} or all_rss
    if not rss:
        return MemoryUse(None, info.program.max_rss_bytes) if info.program.max_rss_bytes else None
    # The last reading of a process may fall into its end, when its memory is already given back.
    until_ns = max(int(at_ns[-1]) for at_ns, _ in rss.values() if len(at_ns))
    living = [
        values
        for at_ns, values in rss.values()
        if len(at_ns) and at_ns[-1] >= until_ns - READINGS_APART_NS
    ]
    end_bytes = sum(int(values[values > 0][-1]) for values in living if (values > 0).any()) or None
    peaks = [readings for p in rss if (readings := counters.readings.get((p, "rss_peak_bytes")))]
    most_bytes = max(int(values.max(initial=0)) for _, values in (*rss.values(), *peaks))
    memory = MemoryUse(end_bytes, max(info.program.max_rss_bytes, most_bytes, end_bytes or 0))
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
        first, last = (
            first + median(within[:third]),
            last + median(within[-third:]),
        )
    memory.growth_bytes = round(last - first)
    memory.is_growing = memory.growth_bytes > max(GROWTH * first, GROWTH_BYTES)
    return memory
