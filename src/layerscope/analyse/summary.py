"""The figures of the summary that `layerscope run` prints after the program's end.

One pass over the columns with NumPy and no database: the prompt waits for it. Averages are means
over the measured steps, which are all but the warm-up; without steps they are sums of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.losses import problems
from layerscope.analyse.module_times import ModuleTimes, module_times
from layerscope.analyse.ranks import SlowestRank, rank_times, slowest_rank
from layerscope.analyse.resources import Counters, Memory, Resources, memory_of, resources
from layerscope.analyse.step_times import Array, Arrays, Bools, MeasuredSteps, StepTimes, process_of_tracks
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.store.reader import Reader
from layerscope.store.run import RunInfo

TOP = 10

Floats = NDArray[np.float64]


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
    modules: ModuleTimes | None
    ranks: int
    slowest_rank: SlowestRank | None
    open_operators: list[OpenOperators]
    problems: tuple[Problem, ...]
    cost: Cost


def summarise(reader: Reader) -> Summary:
    """The summary of `reader`'s recording."""
    info = reader.run.info
    processes = reader.arrays("processes", ["process", "start_ns"])
    tracks = reader.arrays("tracks", ["track", "process", "name"])
    steps = MeasuredSteps(reader)
    counters = Counters(reader, tracks, processes)
    times = steps.times()
    sums = _sum_up(reader, steps, times, tracks)
    ranks = rank_times(reader)
    return Summary(
        info=info,
        folder=reader.run.path.name,
        processes=len(processes["process"]),
        steps=times,
        resources=resources(counters, steps, times, info),
        memory=memory_of(counters, steps, info),
        operators=_operators(sums, steps, times, tracks),
        modules=module_times(reader, sums.self_by_module, _divisor(times)) if sums else None,
        ranks=len(ranks),
        slowest_rank=slowest_rank(ranks),
        open_operators=_open_operators(reader),
        problems=problems(reader),
        cost=_cost(info),
    )


@dataclass(slots=True)
class _Sums:
    """Sums over all spans, filled piece by piece: by name for the ranking, by track for the steps."""

    names: Array
    self_by_name: Floats
    calls_by_name: Floats
    self_by_module: Floats  # at 0 what runs in no module, at 1 + key the others
    busy_by_track: Floats
    scopes_by_track: Floats
    whole_ns: float = 0.0
    outside_ns: float = 0.0


def _divisor(times: StepTimes | None) -> int:
    """What sums are divided by: the measured steps, or 1 for the whole run."""
    return times.count - times.warmup if times else 1


def _operators(
    sums: _Sums | None, steps: MeasuredSteps, times: StepTimes | None, tracks: Arrays
) -> OperatorTimes | None:
    if sums is None:
        return None
    if times is None:
        return _ranked(sums, 1, sums.whole_ns, None, 0.0)
    count = _divisor(times)
    busy_ns = float(sums.busy_by_track[_step_tracks(sums, steps, times, tracks)].sum())
    idle_ns = max(0.0, times.mean_ns - busy_ns / count) if busy_ns else None
    return _ranked(sums, count, times.mean_ns, idle_ns, sums.outside_ns / max(sums.whole_ns, 1))


def _sum_up(reader: Reader, steps: MeasuredSteps, times: StepTimes | None, tracks: Arrays) -> _Sums | None:
    """Sums of integers below 2**53, so the floating-point weights of bincount are exact."""
    process_of = process_of_tracks(tracks)
    number_of_tracks = len(process_of)
    none = np.zeros(0)
    sums = _Sums(np.zeros(0, object), none, none, none, np.zeros(number_of_tracks), np.zeros(number_of_tracks))
    scopes = ("module",) if steps.rule == "request" else ("optimizer", "loader")
    wanted = ["layer", "kind", "name", "track", "step", "self_ns", "weight"]
    if reader.has("modules"):
        wanted.append("module")
    for spans in reader.pieces("spans", wanted):
        self_ns = spans["self_ns"] * spans["weight"]
        ours = spans["layer"] == _code(spans["layer.names"], OPERATORS)
        if not ours.all():
            self_ns = np.where(ours, self_ns, 0)
        sums.whole_ns += float(self_ns.sum())
        chosen = ours
        if times is not None:
            measured, in_step = steps.of_spans(spans, process_of)
            chosen = measured & ours
            sums.outside_ns += float(self_ns[~in_step].sum())
            sums.busy_by_track += _by(spans["track"][measured], self_ns[measured], number_of_tracks)
            is_scope = np.isin(spans["kind"], [_code(spans["kind.names"], kind) for kind in scopes])
            sums.scopes_by_track += _by(spans["track"][is_scope], spans["weight"][is_scope], number_of_tracks)
        sums.names = spans["name.names"]
        codes, chosen_ns = spans["name"][chosen], self_ns[chosen]
        sums.self_by_name = _added(sums.self_by_name, _by(codes, chosen_ns, len(sums.names)))
        sums.calls_by_name = _added(sums.calls_by_name, _by(codes, spans["weight"][chosen], len(sums.names)))
        if "module" in spans:
            sums.self_by_module = _added(sums.self_by_module, _by(spans["module"][chosen] + 1, chosen_ns, 0))
    return sums if len(sums.names) else None


def _added(one: Floats, other: Floats) -> Floats:
    """The sum of two arrays, the shorter one filled up with zeros."""
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    longer[: len(shorter)] += shorter
    return longer


def _by(codes: Array, weights: Array, length: int) -> Floats:
    sums: Floats = np.bincount(codes, weights=weights, minlength=length).astype(np.float64)
    return sums


def _code(names: Array, name: str) -> int:
    found = np.flatnonzero(names == name)
    return int(found[0]) if len(found) else -2


def _step_tracks(sums: _Sums, steps: MeasuredSteps, times: StepTimes, tracks: Arrays) -> Bools:
    """Which tracks make steps.

    Of requests all that call modules; of steps that were marked the busiest of each process, or all if they overlap;
    of others the one of each process with the most optimizer and loader spans.
    """
    if steps.rule == "request":
        return np.asarray(sums.scopes_by_track > 0)
    if steps.rule == "mark" and times.at_once > len(steps.processes):
        return np.asarray(sums.busy_by_track > 0)
    most = sums.busy_by_track if steps.rule == "mark" else sums.scopes_by_track
    process_of = process_of_tracks(tracks)
    chosen = np.zeros(len(process_of), np.bool_)
    for process in steps.processes:
        mine = np.where(process_of == process, most, 0)
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
