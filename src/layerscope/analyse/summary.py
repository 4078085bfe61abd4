"""The figures of the summary that `layerscope run` prints after the program's end.

One pass over the columns with NumPy and no database: the prompt waits for it. Averages are means
over the measured steps, which are all but the warm-up; without steps they are sums of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.losses import problems
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS, PHASES
from layerscope.store.reader import Reader
from layerscope.store.run import RunInfo

TOP = 10
# Fewer steps than this say nothing about a trend.
FEWEST_FOR_DRIFT = 9
OUTLIER = 2.0
# The medians of the first and of the last third differ by more than this: a drift, a growth.
GROWTH = 0.05
# What an allocator may take between two thirds without being a leak.
GROWTH_BYTES = 16_000_000

_PHASE_COLUMNS = dict(zip(PHASES, ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns"), strict=True))

Array = NDArray[Any]
Arrays = dict[str, Array]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class StepTimes:
    """How long the measured steps take. `drift` is the median of the last third over that of the first."""

    rule: str
    count: int
    warmup: int
    processes: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    phases_ns: dict[str, float]
    outliers: int
    slowest_ns: int
    drift: float | None


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


@dataclass(slots=True)
class OperatorRow:
    """Self time and calls of one name: of a step on average, or of the whole run; `share` of the same."""

    name: str
    self_ns: float
    share: float
    calls: float


@dataclass(slots=True)
class OperatorTimes:
    """The operators with the most self time; `rest` sums up the other `rest_names` ones.

    `idle_ns` is the time of a step in which its thread ran no operator; `outside_share` the part of
    all self time that lies in no step.
    """

    rows: list[OperatorRow]
    rest: OperatorRow
    rest_names: int
    idle_ns: float | None
    outside_share: float


@dataclass(slots=True)
class OpenOperators:
    """The operators of one thread that had not ended when the recording did, outermost first."""

    thread: str
    names: list[str]


@dataclass(slots=True)
class Cost:
    """What recording cost: CPU time of our processes beside the program, also as fractions of its own.

    `inside` is the fraction that was spent in the program itself, None where it is not known.
    """

    inside: float | None
    beside_ns: dict[str, int]
    beside: dict[str, float]
    size_bytes: int


@dataclass(slots=True)
class Summary:
    """Everything the summary says. `steps`, `resources` and `memory` are None where nothing is known."""

    info: RunInfo
    folder: str
    processes: int
    steps: StepTimes | None
    resources: Resources | None
    memory: Memory | None
    operators: OperatorTimes | None
    open_operators: list[OpenOperators]
    problems: tuple[Problem, ...]
    cost: Cost


def summarise(reader: Reader) -> Summary:
    """The summary of `reader`'s recording."""
    info = reader.run.info
    processes = reader.arrays("processes", ["process", "start_ns"])
    tracks = reader.arrays("tracks", ["track", "process"])
    steps = _Steps(reader)
    counters = _Counters(reader, tracks, processes)
    times = steps.times()
    return Summary(
        info=info,
        folder=reader.run.path.name,
        processes=len(processes["process"]),
        steps=times,
        resources=_resources_per_step(counters, steps, times, info) or _resources_of_run(info),
        memory=_memory(counters, steps, info),
        operators=_operators(reader, steps, times, tracks),
        open_operators=_open_operators(reader),
        problems=problems(reader),
        cost=_cost(info),
    )


class _Steps:
    """The table of the steps, and the moments between which they are measured."""

    def __init__(self, reader: Reader) -> None:
        names = ["step", "process", "rule", "start_ns", "dur_ns", "warmup", *_PHASE_COLUMNS.values()]
        self.columns = reader.arrays("steps", names)
        self.measured = ~self.columns["warmup"].astype(np.bool_)
        self.processes: list[int] = np.unique(self.columns["process"]).tolist()
        start = self.columns["start_ns"][self.measured]
        end = start + self.columns["dur_ns"][self.measured]
        self.begin_ns = int(start.min(initial=np.iinfo(np.int64).max))
        self.end_ns = int(end.max(initial=0))

    def times(self) -> StepTimes | None:
        """None when there are no steps."""
        order = np.argsort(self.columns["start_ns"][self.measured], kind="stable")
        dur_ns = self.columns["dur_ns"][self.measured][order]
        if not len(dur_ns):
            return None
        median = float(np.median(dur_ns))
        return StepTimes(
            rule=str(self.columns["rule.names"][self.columns["rule"][0]]),
            count=len(self.measured),
            warmup=int(np.count_nonzero(~self.measured)),
            processes=len(self.processes),
            mean_ns=float(dur_ns.mean()),
            p50_ns=median,
            p95_ns=float(_percentile(dur_ns, 95)),
            phases_ns={p: float(self.columns[c][self.measured].mean()) for p, c in _PHASE_COLUMNS.items()},
            outliers=int(np.count_nonzero(dur_ns > OUTLIER * median)),
            slowest_ns=int(dur_ns.max()),
            drift=_drift(dur_ns) if len(dur_ns) >= FEWEST_FOR_DRIFT else None,
        )

    def measured_slots(self) -> tuple[Bools, Int64s]:
        """A flag for every step, laid out process after process, and where the steps of a process begin in it."""
        size = int(self.columns["step"].max(initial=-1)) + 1
        flags = np.zeros(size * (max(self.processes, default=-1) + 1), np.bool_)
        flags[(self.columns["process"] * size + self.columns["step"])[self.measured]] = True
        return flags, np.arange(max(self.processes, default=-1) + 1) * size


def _percentile(values: Array, percent: int) -> int:
    """The smallest value that `percent` % of the values do not exceed."""
    at = -(-percent * len(values) // 100) - 1
    return int(np.partition(values, at)[at])


def _drift(values: Array) -> float:
    third = len(values) // 3
    return float(np.median(values[-third:]) / max(np.median(values[:third]), 1))


class _Counters:
    """The readings of the processes' counters."""

    def __init__(self, reader: Reader, tracks: Arrays, processes: Arrays) -> None:
        columns = reader.arrays("counters", ["track", "at_ns", "name", "value"])
        of_track = dict(zip(tracks["track"].tolist(), tracks["process"].tolist(), strict=True))
        self.started = dict(zip(processes["process"].tolist(), processes["start_ns"].tolist(), strict=True))
        names = [str(name) for name in columns["name.names"]]
        self.readings: dict[tuple[int, str], tuple[Int64s, Int64s]] = {}
        keys = columns["track"].astype(np.int64) * max(len(names), 1) + columns["name"]
        for key in np.unique(keys).tolist():
            rows = np.flatnonzero(keys == key)
            rows = rows[np.argsort(columns["at_ns"][rows], kind="stable")]
            track, name = divmod(key, len(names))
            at_ns, values = columns["at_ns"][rows], columns["value"][rows]
            self.readings[of_track[track], names[name]] = at_ns, values

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


def _resources_per_step(counters: _Counters, steps: _Steps, times: StepTimes | None, info: RunInfo) -> Resources | None:
    if times is None:
        return None
    begin_ns, end_ns = counters.covered(steps.begin_ns, steps.end_ns, steps.processes)
    if end_ns <= begin_ns:
        return None

    def per_step(name: str) -> float | None:
        # A rate times the length of a step, not a sum divided by the steps: between the steps of two
        # epochs lies evaluation, which belongs to no step.
        grown = counters.growth(name, begin_ns, end_ns)
        return None if grown is None else grown / (end_ns - begin_ns) * times.mean_ns

    cpu_ns = per_step("cpu_ns")
    if cpu_ns is None:
        return None
    return Resources(
        per_step=True,
        cpu_ns=cpu_ns,
        kernel_ns=per_step("system_ns"),
        busy_cpus=cpu_ns / max(times.mean_ns, 1),
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


def _memory(counters: _Counters, steps: _Steps, info: RunInfo) -> Memory | None:
    """Of the processes that have steps, else of all; those of a loader share most of their pages with them."""
    all_rss = {p: readings for (p, name), readings in counters.readings.items() if name == "rss_bytes"}
    rss = {p: readings for p, readings in all_rss.items() if p in steps.processes} or all_rss
    if not rss:
        return Memory(None, info.program.max_rss_bytes) if info.program.max_rss_bytes else None
    # The last reading of a process may fall into its end, when its memory is already given back.
    end_bytes = sum(int(values[values > 0][-1]) for _, values in rss.values() if (values > 0).any()) or None
    memory = Memory(end_bytes, max(info.program.max_rss_bytes, end_bytes or 0))
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


@dataclass(slots=True)
class _Sums:
    """Sums over all spans, filled piece by piece: by name for the ranking, by track for the steps."""

    names: Array
    self_by_name: Floats
    calls_by_name: Floats
    busy_by_track: Floats
    scopes_by_track: Floats
    whole_ns: float = 0.0
    outside_ns: float = 0.0


def _operators(reader: Reader, steps: _Steps, times: StepTimes | None, tracks: Arrays) -> OperatorTimes | None:
    sums = _sum_up(reader, steps, times, tracks)
    if sums is None:
        return None
    if times is None:
        return _ranked(sums, 1, sums.whole_ns, None, 0.0)
    count = times.count - times.warmup
    busy_ns = float(sums.busy_by_track[_step_tracks(sums, steps, tracks)].sum())
    idle_ns = max(0.0, times.mean_ns - busy_ns / count) if busy_ns else None
    return _ranked(sums, count, times.mean_ns, idle_ns, sums.outside_ns / max(sums.whole_ns, 1))


def _sum_up(reader: Reader, steps: _Steps, times: StepTimes | None, tracks: Arrays) -> _Sums | None:
    """Sums of integers below 2**53, so the floating-point weights of bincount are exact."""
    number_of_tracks = int(tracks["track"].max(initial=-1)) + 1
    none = np.zeros(0)
    sums = _Sums(np.zeros(0, object), none, none, np.zeros(number_of_tracks), np.zeros(number_of_tracks))
    wanted = ["layer", "kind", "name", "track", "step", "self_ns", "weight"]
    for spans in reader.pieces("spans", wanted):
        self_ns = spans["self_ns"] * spans["weight"]
        ours = spans["layer"] == _code(spans["layer.names"], OPERATORS)
        if not ours.all():
            self_ns = np.where(ours, self_ns, 0)
        sums.whole_ns += float(self_ns.sum())
        chosen = ours
        if times is not None:
            measured, in_step = _in_measured_steps(spans, steps, tracks)
            chosen = measured & ours
            sums.outside_ns += float(self_ns[~in_step].sum())
            sums.busy_by_track += _by(spans["track"][measured], self_ns[measured], number_of_tracks)
            kinds = [_code(spans["kind.names"], kind) for kind in ("optimizer", "loader")]
            is_scope = np.isin(spans["kind"], kinds)
            sums.scopes_by_track += _by(spans["track"][is_scope], spans["weight"][is_scope], number_of_tracks)
        sums.names = spans["name.names"]
        more = len(sums.names) - len(sums.self_by_name)
        codes = spans["name"][chosen]
        sums.self_by_name = np.pad(sums.self_by_name, (0, more)) + _by(codes, self_ns[chosen], len(sums.names))
        sums.calls_by_name = np.pad(sums.calls_by_name, (0, more)) + _by(
            codes, spans["weight"][chosen], len(sums.names)
        )
    return sums if len(sums.names) else None


def _by(codes: Array, weights: Array, length: int) -> Floats:
    sums: Floats = np.bincount(codes, weights=weights, minlength=length).astype(np.float64)
    return sums


def _code(names: Array, name: str) -> int:
    found = np.flatnonzero(names == name)
    return int(found[0]) if len(found) else -2


def _process_of(tracks: Arrays) -> Int64s:
    """The process of every track, by its key."""
    processes = np.zeros(int(tracks["track"].max(initial=-1)) + 1, np.int64)
    processes[tracks["track"]] = tracks["process"]
    return processes


def _in_measured_steps(spans: Arrays, steps: _Steps, tracks: Arrays) -> tuple[Bools, Bools]:
    """Which spans lie in a measured step, and which in any."""
    in_step = spans["step"] >= 0
    flags, first_slot = steps.measured_slots()
    if len(steps.processes) == 1:
        slot = spans["step"] + first_slot[-1]
    else:
        # A process beyond the last one with steps has no span in a step: any slot will do.
        by_track = first_slot[np.minimum(_process_of(tracks), len(first_slot) - 1)]
        slot = by_track[spans["track"]] + spans["step"]
    return in_step & flags[np.where(in_step, slot, 0)], in_step


def _step_tracks(sums: _Sums, steps: _Steps, tracks: Arrays) -> Bools:
    """Which tracks make steps: of each process the one with the most optimizer and loader spans."""
    process_of = _process_of(tracks)
    chosen = np.zeros(len(process_of), np.bool_)
    for process in steps.processes:
        mine = np.where(process_of == process, sums.scopes_by_track, 0)
        if mine.any():
            chosen[np.argmax(mine)] = True
    return chosen


def _ranked(sums: _Sums, divisor: int, whole_ns: float, idle_ns: float | None, outside_share: float) -> OperatorTimes:
    self_by_name, calls_by_name = sums.self_by_name / divisor, sums.calls_by_name / divisor
    called = np.flatnonzero(calls_by_name)
    order = called[np.argsort(-self_by_name[called], kind="stable")]

    def row(name: str, at: NDArray[np.intp]) -> OperatorRow:
        spent = float(self_by_name[at].sum())
        return OperatorRow(name, spent, spent / max(whole_ns, 1), float(calls_by_name[at].sum()))

    rows = [row(str(sums.names[at]), order[index : index + 1]) for index, at in enumerate(order[:TOP])]
    return OperatorTimes(rows, row("", order[TOP:]), len(order[TOP:]), idle_ns, outside_share)


def _open_operators(reader: Reader) -> list[OpenOperators]:
    left = []
    for spans in reader.pieces("spans", ["unfinished", "track", "depth", "name"]):
        rows = np.flatnonzero(spans["unfinished"])
        left += [
            (int(spans["track"][row]), int(spans["depth"][row]), str(spans["name.names"][spans["name"][row]]))
            for row in rows.tolist()
        ]
    if not left:
        return []
    tracks = reader.arrays("tracks", ["track", "tid", "name"])
    threads = {
        int(track): f"{name or 'thread'} {tid if tid >= 0 else f'#{track}'}"
        for track, tid, name in zip(tracks["track"], tracks["tid"], tracks["name"], strict=True)
    }
    found: dict[int, list[tuple[int, str]]] = {}
    for track, depth, name in left:
        found.setdefault(track, []).append((depth, name))
    return [
        OpenOperators(threads[track], [name for _, name in sorted(chain)]) for track, chain in sorted(found.items())
    ]


def _cost(info: RunInfo) -> Cost:
    program_ns = info.program.user_ns + info.program.system_ns
    inside_ns = sum(layer.cpu_ns for layer in info.layers)
    cost = info.cost
    parts = {"drainer": cost.drainer_cpu_ns, "converter": cost.converter_cpu_ns, "session": cost.session_cpu_ns}
    beside_ns = {name: cpu_ns for name, cpu_ns in parts.items() if cpu_ns}
    return Cost(
        inside=inside_ns / program_ns if inside_ns and program_ns else None,
        beside_ns=beside_ns,
        beside={name: cpu_ns / program_ns for name, cpu_ns in beside_ns.items()} if program_ns else {},
        size_bytes=cost.raw_bytes + cost.tables_bytes,
    )
