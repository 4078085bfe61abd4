"""The figures of the summary that `layerscope run` prints after the program's end.

One pass over the columns with NumPy and no database: the prompt waits for it. Averages are means
over the measured steps, which are all but the warm-up; without steps they are sums of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.analyse.bulks import bulk_note
from layerscope.analyse.call_shapes import CallsOfShape, calls_by_shape
from layerscope.analyse.columns import code_of, has_name
from layerscope.analyse.failures import Failure
from layerscope.analyse.generation import Generation, generation
from layerscope.analyse.gpu.summary import GpuSummary, gpu_summary
from layerscope.analyse.late_devices import LateDevice, late_device
from layerscope.analyse.losses import problems
from layerscope.analyse.memory.at_peak import BlocksAtPeak, blocks_at_peak
from layerscope.analyse.module_times import ModuleTimes, module_times
from layerscope.analyse.onednn import OneDnn, called_names, onednn
from layerscope.analyse.open_operators import OpenOperators, open_operators
from layerscope.analyse.operator_kinds import worker_of
from layerscope.analyse.ranks import SlowestRank, rank_times, slowest_rank
from layerscope.analyse.recording_cost import Cost, cost_of
from layerscope.analyse.request_waits import times_of
from layerscope.analyse.resources import (
    Counters,
    MemoryUse,
    ResourceLimits,
    Resources,
    Switches,
    limits,
    memory_of,
    resources,
    switches,
)
from layerscope.analyse.span_groups import SpanGroups, grouped, sums_by
from layerscope.analyse.stacks.spinning import Spinning, spinning_of
from layerscope.analyse.step_times import (
    Array,
    Arrays,
    Bools,
    MeasuredSteps,
    StepTimes,
    process_of_tracks,
)
from layerscope.analyse.thinned import (
    Corrections,
    Thinned,
    is_thinned,
    summed,
    what_was_kept,
    whole_and_outside,
)
from layerscope.analyse.thread_times import ThreadTimes, thread_times
from layerscope.analyse.top_functions import TopFunctions, top_functions
from layerscope.analyse.work_breakdown import (
    KindTime,
    PrimitiveSum,
    PrimitiveTime,
    WorkSums,
    ranked_layer,
)
from layerscope.analyse.worth_a_try import pass_for_findings, worth_a_try
from layerscope.model.events import Problem
from layerscope.model.layers import ANSWERING, OPERATORS
from layerscope.recording.reader import Reader
from layerscope.recording.run import RunInfo

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings
    from layerscope.analyse.findings.span_pass import SpanPass

TOP = 10
# The kinds of spans that tell which threads make steps, by the rule of the steps.
_SCOPES = {"served": ("module",), "request": ("module",), "mark": ("submit",)}

Floats = NDArray[np.float64]


class OperatorRow(Struct):
    """Self time and calls of one name: of a step on average, or of the whole run; `share` of the
    same.

    `primitives`: what it called on its own thread; `worker`: what does its work where it called
    none.
    """

    name: str
    self_ns: float
    share: float
    calls: float
    primitives: tuple[PrimitiveTime, ...] = ()
    worker: str = ""


class OperatorTimes(Struct):
    """The operators with the most self time; `rest` sums up the other `rest_names` ones.

    `idle_ns` is the time of a step in which its thread ran no operator, None: not known, as where
    an engine ran more than fits into a step (`is_asynchronous`); `outside_share` the part of
    all self time that lies in no step. `layer`: ranges where the program has no operators. `kinds`:
    see `analyse.work_breakdown`. `primitives` are those with the most self time, the last row sums
    up the others; both are empty where none were recorded.
    """

    rows: list[OperatorRow]
    rest: OperatorRow
    rest_names: int
    idle_ns: float | None
    outside_share: float
    layer: str = OPERATORS
    kinds: list[KindTime] = field(default_factory=list)
    primitives: list[OperatorRow] = field(default_factory=list)
    is_asynchronous: bool = False


class Summary(Struct):
    """Everything the summary says. `steps`, `resources` and `memory` are None where nothing is
    known. `roles`: how many processes are a server, or the scheduler, of the ranks.
    """

    info: RunInfo
    folder: str
    processes: int
    roles: dict[str, int]
    steps: StepTimes | None
    resources: Resources | None
    switches: Switches | None
    limits: ResourceLimits
    memory: MemoryUse | None
    threads: ThreadTimes | None
    operators: OperatorTimes | None
    modules: ModuleTimes | None
    ranks: int
    slowest_rank: SlowestRank | None
    open_operators: list[OpenOperators]
    problems: tuple[Problem, ...]
    cost: Cost
    thinned: Thinned | None = None
    functions: TopFunctions | None = None  # where no operators ran
    onednn: OneDnn | None = None
    failures: list[Failure] = field(default_factory=list)
    generation: Generation | None = None
    by_shape: list[CallsOfShape] = field(default_factory=list)
    # The part of all CPU time in which threads waited on their CPU; None: not sampled.
    spinning: Spinning | None = None
    bulks: str = ""  # what is to be said of operators that were executed as one
    # None: they were not looked for, the recording is too short or too large for that.
    findings: RunFindings | None = None
    blocks: BlocksAtPeak | None = None  # where allocations were recorded
    gpu: GpuSummary | None = None
    late_device: LateDevice | None = None


def summarise(reader: Reader) -> Summary:
    """The summary of `reader`'s recording."""
    info = reader.run.info
    processes = reader.arrays("processes", ["process", "pid", "ppid", "role", "start_ns"])
    tracks = reader.arrays("tracks", ["track", "process", "name"])
    steps = MeasuredSteps(reader)
    counters = Counters(reader, tracks, processes)
    times = times_of(reader, steps)
    spans = pass_for_findings(reader, times)
    sums = _sum_up(reader, steps, times, tracks, spans)
    makes_steps = _step_tracks(sums, steps, times, tracks) if sums and times else None
    ranks = rank_times(reader)
    operators = _operators(sums, steps, times, tracks, info)
    kinds = [kind.name for kind in operators.kinds] if operators else []
    called = called_names(sums.names, sums.calls_by_name) if sums else []
    return Summary(
        info=info,
        folder=reader.run.path.name,
        processes=len(processes["process"]),
        roles=dict(Counter(filter(None, processes["role"].tolist()))),
        steps=times,
        resources=resources(counters, steps, times, info),
        switches=switches(counters, steps, times, info),
        limits=limits(counters, info),
        memory=memory_of(counters, steps, info),
        threads=thread_times(reader, steps, times, tracks, makes_steps),
        operators=operators,
        modules=module_times(reader, sums.self_by_module, _divisor(times)) if sums else None,
        ranks=len(ranks),
        slowest_rank=slowest_rank(ranks),
        open_operators=open_operators(reader),
        problems=problems(reader),
        cost=_cost(info, sums, times),
        thinned=what_was_kept(reader),
        functions=None if sums else top_functions(reader),
        onednn=onednn(info.versions, called, kinds),
        failures=steps.failures,
        generation=generation(reader, steps),
        by_shape=calls_by_shape(reader, steps, process_of_tracks(tracks)),
        spinning=spinning_of(reader),
        bulks=bulk_note(reader) if sums else "",
        findings=worth_a_try(reader, times, spans),
        blocks=blocks_at_peak(reader),
        gpu=gpu_summary(reader),
        late_device=late_device(reader),
    )


def _cost(info: RunInfo, sums: _Sums | None, times: StepTimes | None) -> Cost:
    """What recording cost; of the steps too, where there are some."""
    if sums is None or times is None or sums.layer != OPERATORS:
        return cost_of(info)
    spans = float(sums.calls_by_name.sum()) / _divisor(times)
    return cost_of(info, spans, times.mean_ns)


class _Sums(Struct):
    """Sums over all spans, filled piece by piece: by name for the ranking, by track for the
    steps.
    """

    names: Array
    self_by_name: Floats
    calls_by_name: Floats
    self_by_module: Floats  # at 0 what runs in no module, at 1 + key the others
    busy_by_track: Floats
    scopes_by_track: Floats
    backward_by_track: Floats  # how many backward functions
    layer: str = OPERATORS
    work: WorkSums | None = None
    whole_ns: float = 0.0
    outside_ns: float = 0.0
    # What makes sums over the spans that were read those over all, by name.
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    # Whether threads submit operators, which an engine executes on others.
    is_asynchronous: bool = False


def _divisor(times: StepTimes | None) -> int:
    """What sums are divided by: the measured steps that have operators, or 1."""
    return (times.detailed or times.measured) if times else 1


def _operators(
    sums: _Sums | None,
    steps: MeasuredSteps,
    times: StepTimes | None,
    tracks: Arrays,
    info: RunInfo,
) -> OperatorTimes | None:
    if sums is None:
        return None
    everywhere = np.ones(len(sums.busy_by_track), np.bool_)
    if times is None:
        found = _ranked(sums, 1, sums.whole_ns, None, 0.0)
        return _with_primitives(found, sums, everywhere, 1, 0.0, info)
    count = _divisor(times)
    chosen = _step_tracks(sums, steps, times, tracks)
    chosen |= _backward_tracks(sums, chosen, tracks)
    if sums.is_asynchronous:
        chosen = np.asarray(sums.busy_by_track > 0)
    busy_ns = float(sums.busy_by_track[chosen].sum())
    whole_ns = times.detailed_ns
    idle_ns = max(0.0, whole_ns - busy_ns / count) if busy_ns else None
    if sums.is_asynchronous and busy_ns > whole_ns * count:
        idle_ns = None
    found = _ranked(sums, count, whole_ns, idle_ns, sums.outside_ns / max(sums.whole_ns, 1))
    return _with_primitives(found, sums, chosen, count, whole_ns, info)


def _with_primitives(
    found: OperatorTimes,
    sums: _Sums,
    tracks: Bools,
    divisor: int,
    whole_ns: float,
    info: RunInfo,
) -> OperatorTimes:
    """The same with the primitives of the operators; `whole_ns` is the time that the kinds of work
    add up to.
    """
    found.layer = sums.layer
    found.is_asynchronous = sums.is_asynchronous
    if sums.work is not None:
        is_mkl = sums.work.is_mkl or "mkl" in info.versions
        found.kinds = sums.work.kinds(tracks, divisor, whole_ns, is_mkl, info.has_python)
        found.primitives = _primitives(sums.work.primitives(divisor), whole_ns)
        if found.kinds and sums.layer == OPERATORS:
            for row in found.rows:
                row.worker = worker_of(row.name, "MKL" if is_mkl else "BLAS")
    return found


def _primitives(sums: list[PrimitiveSum], whole_ns: float) -> list[OperatorRow]:
    """The first of these, and a row for all others; without `whole_ns` shares are of all
    primitives.
    """
    whole_ns = max(whole_ns or sum(one.ns for one in sums), 1)
    shown = list(sums[:TOP])
    rest = sums[TOP:]
    if rest:
        rest_ns = sum(one.ns for one in rest)
        rest_count = sum(one.count for one in rest)
        shown.append(PrimitiveSum(f"{len(rest):,} more", rest_ns, rest_count))
    return [OperatorRow(one.name, one.ns, one.ns / whole_ns, one.count) for one in shown]


def _sum_up(
    reader: Reader,
    steps: MeasuredSteps,
    times: StepTimes | None,
    tracks: Arrays,
    others: SpanPass | None = None,
) -> _Sums | None:
    """Sums of integers below 2**53, so the floating-point weights of bincount are exact. `others`
    are shown all spans too, where all are read.
    """
    process_of = process_of_tracks(tracks)
    none, count = np.zeros(0), len(process_of)
    busy, of_scopes, backward = (np.zeros(count) for _ in range(3))
    sums = _Sums(np.zeros(0, object), none, none, none, busy, of_scopes, backward)
    sums.layer = ranked_layer(reader)
    scopes = _SCOPES.get(steps.rule, ("optimizer", "loader"))
    wanted = ["layer", "kind", "name", "track", "step", "self_ns", "weight", "unfinished"]
    if reader.has("modules"):
        wanted.append("module")
    if reader.has("primitives"):
        sums.work = WorkSums(reader, count, sums.layer)
        wanted += sums.work.columns
    if not is_thinned(reader) or sums.layer != OPERATORS:
        files = _with_primitives_read(sums, reader.files("spans"))
        if is_thinned(reader):
            others = None
        if others is not None:
            wanted += [name for name in others.columns if name not in wanted]
        for spans in reader.pieces("spans", wanted, files=files):
            _add_spans(sums, spans, steps, times, process_of, scopes, others)
        if others is not None:
            others.is_read = True
        if sums.work is not None:
            sums.work.finish()
        sums.scale = np.ones(len(sums.names))
        return sums if len(sums.names) else None
    # The prompt waits: what `totals` knows need not be added up again. The rest is read off both
    # ends of the run.
    corrections = Corrections()
    files = _with_primitives_read(sums, corrections.files(reader))
    for spans in reader.pieces("spans", wanted, files=files):
        measured, in_step = _add_spans(sums, spans, steps, times, process_of, scopes)
        ended = has_name(spans, "layer", OPERATORS) & ~spans["unfinished"]
        corrections.leave_out(spans, ended & in_step & ~measured)
    if sums.work is not None:
        sums.work.finish()
    _make_exact(sums, corrections, reader, steps if times is not None else None)
    return sums


def _with_primitives_read(sums: _Sums, files: Iterable[Path]) -> Iterable[Path]:
    """The same files of spans; the primitives in each are read before it."""
    if sums.work is None:
        return files
    return sums.work.files(files)


def _make_exact(
    sums: _Sums, corrections: Corrections, reader: Reader, steps: MeasuredSteps | None
) -> None:
    """Replace what was read of some spans by what is known of all."""
    sampled = sums.self_by_name
    classes = ("step",) if steps else ("step", "outside")
    exact = corrections.applied(reader, sums.names, classes, steps.processes if steps else None)
    sums.names, sums.self_by_name, sums.calls_by_name, sums.self_by_module = exact
    factor = float(sums.self_by_name.sum()) / max(float(sampled.sum()), 1.0)
    sums.busy_by_track *= factor
    sums.scale = np.full(len(sums.names), factor)
    some = np.flatnonzero(sampled)
    sums.scale[some] = sums.self_by_name[some] / sampled[some]
    if sums.work is not None:
        sums.work.scale(factor)
    sums.whole_ns, sums.outside_ns = whole_and_outside(reader)


def _add_spans(
    sums: _Sums,
    spans: Arrays,
    steps: MeasuredSteps,
    times: StepTimes | None,
    process_of: Array,
    scopes: tuple[str, ...],
    others: SpanPass | None = None,
) -> tuple[Bools, Bools]:
    """Add a piece up; which of its spans lie in measured steps, or count where there are none, and
    which in any.
    """
    every = np.ones(len(spans["track"]), np.bool_)
    measured, in_step = every, ~every
    if times is not None:
        measured, in_step = steps.of_spans(spans, process_of)
    groups = grouped(spans, measured, in_step)
    if others is not None:
        others.add(spans, groups)
    if sums.work is not None:
        sums.work.add(spans, measured, groups)
    _add_groups(sums, groups, scopes, times is not None, len(process_of))
    return measured, in_step


def _add_groups(
    sums: _Sums, groups: SpanGroups, scopes: tuple[str, ...], has_steps: bool, tracks: int
) -> None:
    """Add up groups of spans."""
    columns, measured = groups.columns, groups.measured
    ours = has_name(columns, "layer", sums.layer)
    self_ns = np.where(ours, groups.self_ns, 0)
    sums.whole_ns += float(self_ns.sum())
    if has_steps:
        track = columns["track"]
        sums.outside_ns += float(self_ns[~groups.in_step].sum())
        sums.busy_by_track += sums_by(track[measured], self_ns[measured], tracks)
        scope_codes = [code_of(columns["kind.names"], kind) for kind in scopes]
        is_scope = np.isin(columns["kind"], scope_codes)
        sums.scopes_by_track += sums_by(track[is_scope], groups.calls[is_scope], tracks)
        is_backward = columns["kind"] == code_of(columns["kind.names"], "backward")
        sums.backward_by_track += sums_by(track[is_backward], groups.calls[is_backward], tracks)
    is_submission = columns["kind"] == code_of(columns["kind.names"], "submit")
    sums.is_asynchronous |= bool(is_submission.any())
    chosen = measured & ours
    sums.names = columns["name.names"]
    name, names = columns["name"][chosen], len(sums.names)
    chosen_ns, calls = self_ns[chosen], groups.calls[chosen]
    sums.self_by_name = summed(sums.self_by_name, sums_by(name, chosen_ns, names))
    sums.calls_by_name = summed(sums.calls_by_name, sums_by(name, calls, names))
    if "module" in columns:
        module = columns["module"][chosen] + 1
        sums.self_by_module = summed(sums.self_by_module, sums_by(module, chosen_ns, 0))


def _step_tracks(sums: _Sums, steps: MeasuredSteps, times: StepTimes, tracks: Arrays) -> Bools:
    """Which tracks make steps.

    Of requests all that call modules; of steps that were marked the busiest of each process, or the
    one that submits most to an engine, or all if they overlap; of others the one of each process
    with the most optimizer and loader spans.
    """
    if steps.rule in ANSWERING:
        return np.asarray(sums.scopes_by_track > 0)
    if steps.rule == "mark" and times.at_once > len(steps.processes):
        return np.asarray(sums.busy_by_track > 0)
    most = sums.scopes_by_track
    if steps.rule == "mark" and not most.any():
        most = sums.busy_by_track
    if sums.work is not None and not most.any():  # only primitives
        most = sums.work.spent.sum(axis=1)
    process_of = process_of_tracks(tracks)
    chosen = np.zeros_like(process_of, np.bool_)
    for process in steps.processes:
        mine = np.where(process_of == process, most, 0)
        if mine.any():
            chosen[np.argmax(mine)] = True
    return chosen


def _backward_tracks(sums: _Sums, step_tracks: Bools, tracks: Arrays) -> Bools:
    """Which tracks run backward functions in the processes of these: autograd's threads do for
    GPUs, while the threads that make the steps wait.
    """
    process_of = process_of_tracks(tracks)
    makes_steps = np.isin(process_of, process_of[step_tracks])
    return makes_steps & (sums.backward_by_track > 0)


def _ranked(
    sums: _Sums, divisor: int, whole_ns: float, idle_ns: float | None, outside_share: float
) -> OperatorTimes:
    self_by_name = sums.self_by_name / divisor
    calls_by_name = sums.calls_by_name / divisor
    called = np.flatnonzero(calls_by_name)
    order = called[np.argsort(-self_by_name[called], kind="stable")]

    def row(name: str, at: NDArray[np.intp]) -> OperatorRow:
        spent_ns = float(self_by_name[at].sum())
        calls = float(calls_by_name[at].sum())
        share = spent_ns / max(whole_ns, 1)
        return OperatorRow(name, spent_ns, share, calls)

    top = order[:TOP]
    others = order[TOP:]
    rows = [row(str(sums.names[at]), np.array([at])) for at in top]
    if sums.work is not None:
        primitives = sums.work.by_operator(divisor, sums.scale)
        for operator, at in zip(rows, top.tolist(), strict=True):
            operator.primitives = tuple(primitives.get(at, ()))
    return OperatorTimes(rows, row("", others), len(others), idle_ns, outside_share)
