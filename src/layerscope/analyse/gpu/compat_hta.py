"""The tables of GPUs with the numbers of HolisticTraceAnalysis (HTA) 0.6.0, for those who have them
from there: `layerscope table TRACE gpu --compat hta`.

Names and units of the columns are HTA's, and so are its mistakes: the last step is left out, times
are whole microseconds, waits of the host for a stream are busy time (`hta_events`). Means and
percentiles of queues and bandwidths are over their changes, not over time; of changes at the same
microsecond HTA leaves the order to chance, here what begins comes first. The tables without
--compat are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from layerscope.analyse.gpu.hta_events import (
    COMMUNICATION,
    COMPUTATION,
    MEMORY,
    TYPES,
    Doubles,
    HtaEvents,
    copy_name,
    read_events,
)
from layerscope.analyse.gpu.intervals import merged
from layerscope.analyse.gpu.sweep import Int64s, combined_ns
from layerscope.analyse.losses import problems
from layerscope.analyse.result import Result, ResultColumn, of_rows
from layerscope.model.errors import UsageError

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

EMPTY = "HTA has no row for this table here. Without --compat hta it has all that was recorded."
# In microseconds.
_KERNEL_WAIT_US = 30
_LONG_CALL_US = 50
_LONG_DELAY_US = 100
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
_QUEUED = (
    *_LAUNCHES,
    "cuLaunchKernel",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipMemcpyWithStream",
    "hipMemcpyAsync",
    "hipMemsetAsync",
)
# So many names of each type.
_MOST_KERNELS = 20
_OTHERS = "others"
# Of launches that a stream takes before the next one waits.
_FULL_QUEUE = 1024
_POSSIBLE = "Possible here: kernels --by name, queue --by blocked"
_QUARTILES = (0, 25, 50, 75, 100)
_DESCRIBED = ("count", "mean", "std", "min", "25%", "50%", "75%", "max")
_Row = tuple[Any, ...]


def build(reader: Reader, name: str, by: str | None = None) -> Result:
    """The table `name` as HTA has it; UsageError where HTA has none."""
    known = [one for one, _ in _TABLES]
    if name not in known:
        raise UsageError(
            f"{name} has no --compat hta: it is for {', '.join(sorted(dict.fromkeys(known)))}"
        )
    if (name, by) not in _TABLES:
        raise UsageError(f"{name} of HTA cannot be shown by {by}. {_POSSIBLE}")
    columns, rows_of = _TABLES[name, by]
    rows = [row for events in read_events(reader) for row in rows_of(events)]
    result = of_rows(name, columns, rows)
    return replace(result, empty=EMPTY, problems=problems(reader))


def _columns(first: str, others: str) -> tuple[ResultColumn, ...]:
    """The first ones are words and whole numbers."""
    texts = ("kernel_type", "idle_category", "name")
    found = []
    for name in first.split():
        type_ = "string" if name in texts else "int64"
        found.append(ResultColumn(name, type_, "", "as HTA has it"))
    for name in others.split():
        found.append(ResultColumn(name, "float64", "", "as HTA has it"))
    return tuple(found)


def _temporal(events: HtaEvents) -> Iterator[_Row]:
    """Idle, computing and the rest, and the part of communication beside computation."""
    start_us, end_us = _whole(events)
    span_us = int(end_us.max() - start_us.min())
    busy_us = merged(start_us, end_us).total_ns
    idle_us = span_us - busy_us
    is_one = events.kind == COMPUTATION
    compute_us = merged(start_us[is_one], end_us[is_one]).total_ns
    other_us = busy_us - compute_us
    times_us = (idle_us, compute_us, other_us)
    percents = [_percent(time_us, span_us) for time_us in times_us]
    yield (events.rank, *times_us, span_us, *percents, _overlap(events))


def _percent(part: float, whole: float) -> float | None:
    if not whole:
        return None
    share = 100 * part / whole
    return round(share, 2)


def _overlap(events: HtaEvents) -> float | None:
    sums = _combined(events)
    masks = np.arange(len(sums))
    communication = masks >> COMMUNICATION & 1 == 1
    computation = masks >> COMPUTATION & 1 == 1
    both = communication & computation
    together = sums[both].sum()
    whole = sums[communication].sum()
    return _percent(together, whole)


def _combined(events: HtaEvents) -> Int64s:
    """The time of each combination of types."""
    typed = events.chosen(events.kind < len(TYPES))
    return combined_ns(*_whole(typed), typed.kind, len(TYPES))


def _whole(events: HtaEvents) -> tuple[Int64s, Int64s]:
    """Starts and ends: they are whole microseconds. None lasts less than nothing."""
    start_us = events.start_us.astype(np.int64)
    end_us = events.end_us.astype(np.int64)
    return start_us, np.maximum(end_us, start_us)


def _types(events: HtaEvents) -> Iterator[_Row]:
    sums = _combined(events)[1:]
    whole_us = int(sums.sum())
    found = []
    for mask, lasted_us in enumerate(sums.tolist(), 1):
        if not lasted_us:
            continue
        names = [name for place, name in enumerate(TYPES) if mask >> place & 1]
        found.append((" overlapping ".join(names), lasted_us))
    found.sort(key=lambda one: -one[1])
    for name, lasted_us in found:
        share = 100 * lasted_us / whole_us
        yield (events.rank, name, lasted_us, round(share, 1))


def _kernels(events: HtaEvents) -> Iterator[_Row]:
    """Of each type the names with the largest sums; the other ones together.

    Where there are others, HTA has grouped twice: all but the sums are those of sums.
    """
    for kind, type_name in enumerate(TYPES):
        its = events.chosen(events.kind == kind)
        lasted_us = its.end_us - its.start_us
        names, place = np.unique(its.name.astype(np.str_), return_inverse=True)
        sums_us = np.bincount(place, lasted_us, len(names)).astype(np.float64)
        order = np.argsort(-sums_us, kind="stable")
        is_cut = len(names) > _MOST_KERNELS
        for one in order[:_MOST_KERNELS].tolist():
            of_name = sums_us[one : one + 1] if is_cut else lasted_us[place == one]
            yield (events.rank, type_name, str(names[one]), *_sums(of_name))
        if is_cut:
            others_us = sums_us[order[_MOST_KERNELS:]]
            yield (events.rank, type_name, _OTHERS, *_sums(others_us))


def _sums(lasted_us: Doubles) -> _Row:
    deviation = 0.0
    if len(lasted_us) > 1:
        deviation = float(lasted_us.std(ddof=1))
    most, least = float(lasted_us.max()), float(lasted_us.min())
    return (float(lasted_us.sum()), most, least, deviation, float(lasted_us.mean()))


def _idle(events: HtaEvents) -> Iterator[_Row]:
    """Of each stream the gaps by their cause; `other` has the first piece of work, too."""
    work = events.chosen(events.is_work)
    for stream in dict.fromkeys(work.stream.tolist()):
        mine = work.chosen(work.stream == stream)
        gap_us = mine.start_us[1:] - mine.end_us[:-1]
        is_host = mine.call_us[1:] > mine.end_us[:-1]
        is_kernel = ~is_host & (gap_us < _KERNEL_WAIT_US)
        is_other = ~(is_host | is_kernel)
        causes = {"host_wait": is_host, "kernel_wait": is_kernel, "other": is_other}
        whole_us = float(gap_us.sum())
        for cause, its in causes.items():
            if not its.any() and cause != "other":
                continue
            idle_us = float(gap_us[its].sum())
            ratio = None
            if whole_us:
                ratio = round(idle_us / whole_us, 2)
            yield (events.rank, stream, cause, idle_us, ratio)


def _launches(events: HtaEvents) -> Iterator[_Row]:
    """Sums over the calls of CUDA's runtime that launch, one for each piece of work."""
    mine = events.chosen(np.isin(events.call, _LAUNCHES))
    cpu_us = mine.called_us - mine.call_us
    gpu_us = mine.end_us - mine.start_us
    delay_us = np.maximum(mine.start_us - mine.called_us, 0)
    counts = [len(mine)]
    is_long = cpu_us > _LONG_CALL_US
    is_short = ~is_long & (gpu_us < cpu_us)
    is_late = delay_us > _LONG_DELAY_US
    for chosen in (is_short, is_long, is_late):
        counts.append(int(chosen.sum()))
    sums = [float(one.sum()) for one in (cpu_us, gpu_us, delay_us)]
    mean, most = None, None
    if len(mine):
        mean, most = float(delay_us.mean()), float(delay_us.max())
    yield (events.rank, *counts, *sums, mean, most)


def _queue(events: HtaEvents) -> Iterator[_Row]:
    launched = events.chosen(np.isin(events.call, _QUEUED))
    for stream in np.unique(launched.stream).tolist():
        is_mine = launched.stream == stream
        mine = launched.chosen(is_mine)
        at_us = (mine.call_us, mine.start_us)
        more = np.ones(len(mine))
        length = _after_changes(at_us, more)
        yield (events.rank, stream, *_described(length))


def _blocked(events: HtaEvents) -> Iterator[_Row]:
    """How long the queue of a stream was full, and the part of the time from the first launch to
    the last end.
    """
    launched = events.chosen(np.isin(events.call, _QUEUED))
    for stream in np.unique(launched.stream).tolist():
        mine = launched.chosen(launched.stream == stream)
        at_us = (mine.call_us, mine.start_us)
        length = _after_changes(at_us, np.ones(len(mine)))
        changes_us = np.sort(np.concatenate(at_us))
        is_full = length[:-1] >= _FULL_QUEUE
        full_us = float(np.diff(changes_us)[is_full].sum())
        if full_us:
            whole_us = float(events.end_us.max() - launched.call_us.min())
            yield (events.rank, stream, full_us, full_us / whole_us)


def _bandwidth(events: HtaEvents) -> Iterator[_Row]:
    copies = events.chosen(events.kind == MEMORY)
    copies = copies.chosen(~np.isnan(copies.rate))
    kind = np.array([copy_name(name) for name in copies.name.tolist()], np.object_)
    for name in sorted(set(kind.tolist())):
        mine = copies.chosen(kind == name)
        lasted_us = mine.end_us - mine.start_us
        # What took no time is said to have taken a microsecond.
        lasted_us = np.where(lasted_us == 0, 1, lasted_us)
        end_us = mine.start_us + lasted_us
        level = _after_changes((mine.start_us, end_us), mine.rate)
        running = level[level > 0]
        if len(running):
            yield (events.rank, name, *_described(running))


def _after_changes(at_us: tuple[Doubles, Doubles], more: Doubles) -> Doubles:
    """The level after each change: at the first times `more` begins, at the second ones it ends."""
    order = np.argsort(np.concatenate(at_us), kind="stable")
    change = np.concatenate((more, -more))
    found: Doubles = np.cumsum(change[order])
    return found


def _described(values: Doubles) -> _Row:
    """What `DataFrame.describe` says of them."""
    count = len(values)
    mean = float(values.mean())
    deviation = None
    if count > 1:
        deviation = float(values.std(ddof=1))
    quartiles: Doubles = np.percentile(values, _QUARTILES)
    return (count, mean, deviation, *quartiles.tolist())


def _prefixed(prefix: str) -> str:
    return " ".join(f"{prefix}_{name}" for name in _DESCRIBED)


_TABLES: dict[
    tuple[str, str | None], tuple[tuple[ResultColumn, ...], Callable[[HtaEvents], Iterator[_Row]]]
] = {
    ("gpu", None): (
        _columns(
            "rank",
            "idle_time(us) compute_time(us) non_compute_time(us) kernel_time(us) idle_time_pctg "
            "compute_time_pctg non_compute_time_pctg comp_comm_overlap_pctg",
        ),
        _temporal,
    ),
    ("kernels", None): (_columns("rank kernel_type", "sum percentage"), _types),
    ("kernels", "name"): (
        _columns("rank kernel_type name", "sum(us) max(us) min(us) stddev mean(us)"),
        _kernels,
    ),
    ("queue", "blocked"): (
        _columns("rank stream", "duration_at_max_queue_length relative_duration"),
        _blocked,
    ),
    ("idle", None): (_columns("rank stream idle_category", "idle_time idle_time_ratio"), _idle),
    ("launches", None): (
        _columns(
            "rank n short_gpu runtime_outliers launch_delay_outliers",
            "cpu_sum gpu_sum delay_sum delay_mean delay_max",
        ),
        _launches,
    ),
    ("queue", None): (_columns("rank stream", _prefixed("queue_length")), _queue),
    ("copies", None): (_columns("rank name", _prefixed("memory_bw_gbps")), _bandwidth),
}
