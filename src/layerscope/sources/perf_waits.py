"""Waits in `perf.data`: from when a thread left its CPU until it had one again.

Three sources tell: records of switches (`perf record --switch-events`), the tracepoint
sched:sched_switch, whose sample has the stack, and the software event context-switches, which has
the stack too. Of the last two only recordings of the whole machine tell when a thread came back;
else its next sample says that it had come back by then.
"""

from __future__ import annotations

import re
import struct

import numpy as np
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.sources import perf_file
from layerscope.sources import perf_records as rec
from layerscope.sources.perf_file import PerfFile
from layerscope.sources.perf_threads import Threads

# Fields of sched_switch and sched_wakeup where the file does not tell its own: name -> (offset,
# bytes).
_KNOWN = {
    "sched_switch": {"prev_pid": (24, 4), "prev_state": (32, 8), "next_pid": (56, 4)},
    "sched_wakeup": {"pid": (24, 4)},
    "sched_waking": {"pid": (24, 4)},
    "sched_wakeup_new": {"pid": (24, 4)},
}
_FORMAT = re.compile(rb"name: (\w+)\nID: (\d+)\nformat:\n(.*?)\nprint fmt", re.DOTALL)
_FIELD = re.compile(rb"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")
# TASK_STATE bits: a thread that could have gone on is in none of them.
_STATES = 0xFF
# Threads that were woken, when, and by which threads.
_Wakes = tuple[np.ndarray, np.ndarray, np.ndarray]
_NEEDED = {name: set(fields) for name, fields in _KNOWN.items()}
WAKES = ("sched_wakeup", "sched_waking", "sched_wakeup_new")
_CONTEXT_SWITCHES, _BPF_OUTPUT = 3, 10
_OFF_CPU = "offcpu-time"
OUT, IN, SEEN = 0, 1, 2


class Waits(Struct):
    """Waits by row: whose, when, the sample that has the stack (-1: none), how long (0: nobody
    knows), whether that is exact, whether the thread could have run, and who woke it: a thread id
    (0: not told).

    `is_complete`: every end of a wait is told, but of those that go on when the recording ends.
    """

    tid: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray
    sample: np.ndarray
    exact: np.ndarray
    preempted: np.ndarray
    waker: np.ndarray
    is_complete: bool


class Formats(Struct):
    """Fields of tracepoints: by number its name, and by name the place and size of each field."""

    names: dict[int, str] = field(default_factory=dict)
    fields: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)


def formats_of(file: PerfFile) -> Formats:
    """What the file says about its tracepoints."""
    found = Formats(fields=dict(_KNOWN))
    content = file.features.get(perf_file.TRACING_DATA, b"")
    for name_bytes, number, text in _FORMAT.findall(content):
        name = name_bytes.decode()
        places = {}
        for field_name, offset, size in _FIELD.findall(text):
            places[field_name.decode()] = (int(offset), int(size))
        found.names[int(number)] = name
        found.fields[name] = places
    return found


def tracepoint(event: perf_file.PerfEvent, known: Formats) -> str:
    """The name of a tracepoint without its system; "" of any other event."""
    if event.type != perf_file.TRACEPOINT:
        return ""
    name = known.names.get(event.config)
    if name:
        return name
    _, _, name_in_event = event.name.rpartition(":")
    return name_in_event


def is_switch(event: perf_file.PerfEvent, known: Formats) -> bool:
    """Whether the samples of an event are those of threads that leave their CPU."""
    if tracepoint(event, known) == "sched_switch":
        return True
    is_software = event.type == perf_file.SOFTWARE
    return is_software and event.config == _CONTEXT_SWITCHES


def is_off_cpu(name: str) -> bool:
    """Whether an event of this name is that of `perf record --off-cpu`: its periods are how long
    waits were.
    """
    return name.partition(":")[0] == _OFF_CPU


def is_off_cpu_event(event: perf_file.PerfEvent) -> bool:
    """The same of an event in perf.data."""
    return (
        event.type == perf_file.SOFTWARE and event.config == _BPF_OUTPUT and is_off_cpu(event.name)
    )


def off_cpu_began(time: np.ndarray, dur_ns: np.ndarray, times: np.ndarray) -> np.ndarray:
    """When such waits began: they are told when they end. None began before the first of all
    `times`.
    """
    latest = np.iinfo(np.int64).max
    first = times.min(initial=latest)
    began: np.ndarray = np.maximum(time - dur_ns, first)
    return began


def with_times(time: np.ndarray) -> tuple[np.ndarray, list[Problem]]:
    """The times of samples, and what to say of those that have none: they get the last one.

    perf writes the sums of short waits (--off-cpu) when it ends, with a time of ~0 << 32 that puts
    them behind all others; as a signed number it is less than 0.
    """
    is_none = time < 0
    count = int(np.count_nonzero(is_none))
    if not count:
        return time, []
    what = (
        f"{count:,} samples have no time of their own: perf writes sums of waits (--off-cpu) "
        "when it ends"
    )
    remedy = "record each switch: --switch-events, or -e sched:sched_switch"
    return np.where(is_none, time.max(initial=0), time), [
        Problem(STACKS, "perf_no_own_time", what, remedy, "when these waits were")
    ]


class Moments(Struct):
    """What is known of threads in time: when they leave, come, or were seen on a CPU."""

    tid: list[np.ndarray] = field(default_factory=list)
    time: list[np.ndarray] = field(default_factory=list)
    what: list[np.ndarray] = field(default_factory=list)
    sample: list[np.ndarray] = field(default_factory=list)
    preempted: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        tid: np.ndarray,
        time: np.ndarray,
        what: int,
        sample: np.ndarray | None = None,
        preempted: np.ndarray | None = None,
    ) -> None:
        """Take in moments of one kind."""
        count = len(tid)
        self.tid.append(tid.astype(np.int64))
        self.time.append(time)
        self.what.append(np.full(count, what, np.int8))
        self.sample.append(np.full(count, -1) if sample is None else sample)
        self.preempted.append(np.zeros(count, np.bool_) if preempted is None else preempted)


def waits(file: PerfFile, decoded: rec.Decoded, threads: Threads) -> Waits:
    """All waits that `file` tells of, whose threads are these."""
    known, samples = formats_of(file), decoded.samples
    found = Moments()
    is_complete = _add_switch_records(found, file)
    wakes: list[_Wakes] = []
    for number, event in enumerate(file.events):
        name = tracepoint(event, known)
        fields = _fields(decoded.raws, known.fields.get(name, {}))
        if not _NEEDED.get(name, set()) <= fields.keys():
            continue
        rows = np.flatnonzero(samples.event == number)
        time, tid, raw = samples.time[rows], samples.tid[rows], samples.raw[rows]
        if name == "sched_switch":
            before, after = fields["prev_pid"][raw], fields["next_pid"][raw]
            is_runnable = fields["prev_state"][raw] & _STATES == 0
            found.add(before, time, OUT, rows, is_runnable)
            found.add(after, time, IN)
            is_complete |= bool((before == 0).any())
        elif name in WAKES:
            woken = fields["pid"][raw]
            wakes.append((woken, time, tid))
        elif is_switch(event, known):
            found.add(tid, time, OUT, rows)
        elif not name and not is_off_cpu_event(event):
            found.add(tid, time, SEEN)
    result = paired(found, is_complete, threads)
    result.waker = wakers(result, wakes)
    return result


def _add_switch_records(found: Moments, file: PerfFile) -> bool:
    """Add what records of switches tell; whether there are any."""
    has_any = False
    for records, rows in rec.of_type(file, rec.SWITCH, rec.SWITCH_CPU_WIDE):
        time, _, tid = rec.moments(file, records, rows)
        misc = records.misc[rows]
        is_out = (misc & rec.SWITCH_OUT) > 0
        forced = (misc & rec.SWITCH_PREEMPTED) > 0
        found.add(tid[is_out], time[is_out], OUT, preempted=forced[is_out])
        found.add(tid[~is_out], time[~is_out], IN)
        has_any = True
    return has_any


def _fields(raws: list[bytes], places: dict[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    """The numbers in these fields, by text in `raws`; 0 where a text is too short."""
    found = {}
    for name, (at, size) in places.items():
        numbers = _field(raws, at, size)
        found[name] = np.array(numbers, np.int64)
    return found


def _field(raws: list[bytes], at: int, size: int) -> list[int]:
    """Only of 4 or 8 bytes; else 0."""
    formats = {4: "<i", 8: "<q"}
    if size not in formats:
        return [0] * len(raws)
    unpack = struct.Struct(formats[size]).unpack_from
    numbers = []
    for raw in raws:
        is_there = len(raw) >= at + size
        numbers.append(unpack(raw, at)[0] if is_there else 0)
    return numbers


class _Switches(Struct):
    """Moments by thread, then time. `same`: each is of the same thread as the one before."""

    tid: np.ndarray
    time: np.ndarray
    what: np.ndarray
    sample: np.ndarray
    preempted: np.ndarray
    track: np.ndarray
    same: np.ndarray


def _switches(found: Moments, is_complete: bool, threads: Threads) -> _Switches:
    none = np.zeros(0, np.int64)
    tid = np.concatenate([none, *found.tid])
    time = np.concatenate([none, *found.time])
    what = np.concatenate([none, *found.what])
    sample = np.concatenate([none, *found.sample])
    preempted = np.concatenate([np.zeros(0, np.bool_), *found.preempted])
    is_chosen = tid > 0
    if is_complete:
        # Where each switch is told, a sample between two of them says nothing more.
        is_chosen &= what != SEEN
    chosen = np.flatnonzero(is_chosen)
    order = np.lexsort((time[chosen], tid[chosen]))
    chosen = chosen[order]
    tid, time = tid[chosen], time[chosen]
    track = threads.at(tid, time)
    is_same_tid = np.diff(tid) == 0
    is_same_track = np.diff(track) == 0
    same = np.zeros(len(tid), np.bool_)
    same[1:] = is_same_tid & is_same_track
    return _Switches(tid, time, what[chosen], sample[chosen], preempted[chosen], track, same)


def paired(found: Moments, is_complete: bool, threads: Threads) -> Waits:
    """Waits from when a thread left until it came. What `threads` leave their CPU for when they
    ended is no wait, and another one that has the number of one before it did not come back.
    """
    all_ = _switches(found, is_complete, threads)
    is_out = all_.what == OUT
    # A switch that two sources tell of is one wait; where some are not told, each is one.
    begins = is_out.copy()
    if is_complete:
        begins[1:] &= ~(is_out[:-1] & all_.same[1:])
    first = np.flatnonzero(begins)
    stack, forced = _of_waits(all_, is_out, begins)
    following = _following(all_, is_out, first, is_complete)
    limit = _ends_of_threads(threads)[all_.track[first]]
    start_ns, ended = all_.time[first], following >= 0
    last = np.minimum(all_.time.max(initial=0), limit) if is_complete else start_ns
    end_ns = np.where(ended, all_.time[following], last)
    exact = ended & (all_.what[following] == IN) if len(all_.tid) else ended
    kept = np.flatnonzero(start_ns < limit)
    return Waits(
        all_.tid[first][kept],
        start_ns[kept],
        np.maximum(end_ns - start_ns, 0)[kept],
        stack[kept],
        exact[kept],
        forced[kept],
        np.zeros(len(kept), np.int64),
        is_complete,
    )


def _of_waits(
    all_: _Switches, is_out: np.ndarray, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sample that has the stack of each wait (-1: none), and whether its CPU was taken away."""
    group = np.cumsum(begins) - 1
    count = int(np.count_nonzero(begins))
    has_stack = is_out & (all_.sample >= 0)
    # The last assignment counts: that of the first sample.
    rows = np.flatnonzero(has_stack)[::-1]
    stack = np.full(count, -1, np.int64)
    stack[group[rows]] = all_.sample[rows]
    forced = np.zeros(count, np.bool_)
    is_forced = is_out & all_.preempted
    forced[group[is_forced]] = True
    return stack, forced


def _following(
    all_: _Switches, is_out: np.ndarray, first: np.ndarray, is_complete: bool
) -> np.ndarray:
    """The moment that ends each wait; -1: none is known."""
    following: np.ndarray = _next(~is_out, np.cumsum(~all_.same))[first]
    if is_complete:
        return following
    is_next = (first + 1 < len(is_out)) & (following == first + 1)
    return np.where(is_next, following, -1)


def _ends_of_threads(threads: Threads) -> np.ndarray:
    """By thread when it ended; the last place is for threads that are not known."""
    never_ns = np.iinfo(np.int64).max
    ends_ns = np.full(len(threads.threads) + 1, never_ns)
    for place, thread in enumerate(threads.threads):
        if thread.end_ns is not None:
            ends_ns[place] = thread.end_ns
    return ends_ns


def _next(marked: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The next marked row of the same group behind each row; -1: there is none. Rows of a group lie
    together.
    """
    count = len(marked)
    places = np.where(marked, np.arange(count), count)
    at_or_behind = np.minimum.accumulate(places[::-1])[::-1]
    behind = np.append(at_or_behind, count)[1:]
    inside = np.flatnonzero(behind < count)
    behind = behind[inside]
    is_same = group[behind] == group[inside]
    found = np.full(count, -1, np.int64)
    found[inside] = np.where(is_same, behind, -1)
    return found


def wakers(found: Waits, wakes: list[_Wakes]) -> np.ndarray:
    """Who woke each thread last before its wait ended; 0: nobody is told."""
    waker = np.zeros(len(found.tid), np.int64)
    if not wakes or not len(found.tid):
        return waker
    woken, time, by = (np.concatenate(column) for column in zip(*wakes, strict=True))
    order = np.lexsort((time, woken))
    time, by = time[order], by[order]
    threads, first = np.unique(woken[order], return_index=True)
    ends_ns = found.start_ns + found.dur_ns
    times = np.split(time, first[1:])
    for thread, begin, times_ns in zip(threads.tolist(), first.tolist(), times, strict=True):
        # Waits lie by thread.
        first_wait, behind_waits = np.searchsorted(found.tid, [thread, thread + 1])
        of_thread = slice(first_wait, behind_waits)
        last = np.searchsorted(times_ns, ends_ns[of_thread], side="right") - 1
        is_in_wait = times_ns[np.maximum(last, 0)] >= found.start_ns[of_thread]
        is_known = (last >= 0) & is_in_wait
        rows = first_wait + np.flatnonzero(is_known)
        waker[rows] = by[begin + last[is_known]]
    return waker
