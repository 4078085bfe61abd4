"""What a machine, a control group and a process did while we looked: the difference of two
readings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from layerscope.host import cgroup, files, noise
from layerscope.host.cgroup import Throttling
from layerscope.host.noise import CpuTime

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Watched(Struct, frozen=True):
    """Over `seconds`. None: not told.

    `periods`, `throttled`, `throttled_ns`: as in cgroup.Throttling, of the control group on the way
    up that was throttled in the largest share of its periods meanwhile. `steal_share`,
    `busy_share`: of the machine's time. `process_cpus`: CPUs that the process used on average (the
    kernel counts in steps of a hundredth of a second); `family_cpus`: the same with all that it
    started, and what those started; `process_threads`: how many of its threads used any, of the
    `threads_left` that it had in the end; `threads_begun`, `threads_ended`: how many of those are
    new since the first reading, and how many of that one are gone; `faults`: its page faults.
    """

    seconds: float
    periods: int | None = None
    throttled: int | None = None
    throttled_ns: int | None = None
    steal_share: float | None = None
    busy_share: float | None = None
    process_cpus: float | None = None
    process_threads: int | None = None
    faults: int | None = None
    family_cpus: float | None = None
    threads_left: int | None = None
    threads_begun: int = 0
    threads_ended: int = 0


class Reading(Struct, frozen=True):
    """What the kernel had counted at one moment. `group`: the folders that say so; `start`: when
    the process began, in ticks since the machine did; `threads_ns`: CPU time of each of its
    threads; `family_ns`: that of the process and its descendants, those that have ended with them.
    """

    at_ns: int
    group: tuple[Path, ...] = ()
    throttling: tuple[Throttling, ...] = ()
    cpu: CpuTime | None = None
    start: int | None = None
    process_ns: int | None = None
    faults: int | None = None
    threads_ns: Mapping[int, int] = field(default_factory=dict)
    family_ns: int | None = None


def watch(seconds: float, root: Path = Path("/"), pid: int | None = None) -> Watched:
    """Look for `seconds` at the machine and at process `pid`, else at the control group of this
    one.
    """
    before = read(root, pid)
    time.sleep(seconds)
    return difference(before, read(root, pid))


def read(root: Path = Path("/"), pid: int | None = None) -> Reading:
    """What is counted now; of a process only where one is named."""
    group = cgroup.group_of(pid, root)
    start = process_ns = faults = family_ns = None
    threads: dict[int, int] = {}
    if pid is not None:
        fields = _stat(root / "proc" / str(pid))
        if fields:
            faults, process_ns, start = (
                fields[7] + fields[9],
                (fields[11] + fields[12]) * _TICK_NS,
                fields[19],
            )
            family_ns = _family_ns(root / "proc", pid)
        threads = _threads(root / "proc" / str(pid) / "task")
    return Reading(
        time.monotonic_ns(),
        group.key,
        group.throttling(),
        noise.cpu_time(root),
        start,
        process_ns,
        faults,
        threads,
        family_ns,
    )


def difference(before: Reading, after: Reading) -> Watched:
    """What happened between two readings; of what was another thing then, or ran backwards, nothing
    is told.
    """
    seconds = (after.at_ns - before.at_ns) / 1e9
    is_same_group = before.group == after.group
    levels = zip(before.throttling, after.throttling, strict=False) if is_same_group else ()
    worst = cgroup.most_throttled(_throttled_since(*level) for level in levels)
    is_same = before.start is not None and before.start == after.start
    used_ns = process_threads = faults = None
    if is_same:
        used_ns = _grown(before.process_ns, after.process_ns)
        process_threads = _busy_threads(before.threads_ns, after.threads_ns)
        faults = _grown(before.faults, after.faults)
    process_cpus = family_cpus = None
    if used_ns is not None and seconds > 0:
        # Time of a child that nobody waited for is lost with it: the family has used what the
        # process has, at least.
        family_ns = max(used_ns, _grown(before.family_ns, after.family_ns) or 0)
        process_cpus = used_ns / 1e9 / seconds
        family_cpus = family_ns / 1e9 / seconds
    steal, busy = _shares(before.cpu, after.cpu)
    threads_left = None
    begun = ended = 0
    if is_same and after.threads_ns:
        were = before.threads_ns.keys()
        are = after.threads_ns.keys()
        threads_left = len(are)
        begun = len(are - were)
        ended = len(were - are)
    return Watched(
        seconds=seconds,
        periods=worst.periods,
        throttled=worst.throttled,
        throttled_ns=worst.throttled_ns,
        steal_share=steal,
        busy_share=busy,
        process_cpus=process_cpus,
        family_cpus=family_cpus,
        process_threads=process_threads,
        faults=faults,
        threads_left=threads_left,
        threads_begun=begun,
        threads_ended=ended,
    )


def _throttled_since(before: Throttling, after: Throttling) -> Throttling:
    return Throttling(
        _grown(before.periods, after.periods),
        _grown(before.throttled, after.throttled),
        _grown(before.throttled_ns, after.throttled_ns),
    )


def _shares(before: CpuTime | None, after: CpuTime | None) -> tuple[float | None, float | None]:
    """Of stolen and of used CPU time between two readings."""
    if before is None or after is None:
        return None, None
    total = after.total - before.total
    if total <= 0:
        return None, None
    # The kernel corrects idle time backwards at times.
    idle = max(0, after.idle - before.idle)
    steal = max(0, after.steal - before.steal)
    used = total - idle - steal
    return min(1.0, steal / total), max(0.0, used / total)


def _busy_threads(before: Mapping[int, int], after: Mapping[int, int]) -> int | None:
    if not after:
        return None
    busy = 0
    for thread, used_ns in after.items():
        used_before_ns = before.get(thread, 0)
        if used_ns > used_before_ns:
            busy += 1
    return busy


def _grown(before: int | None, after: int | None) -> int | None:
    """By how much a counter has grown; None where that is not known."""
    if before is None or after is None:
        return None
    if after < before:
        return None
    return after - before


def _threads(folder: Path) -> dict[int, int]:
    """CPU time of each thread: exact by schedstat, where the kernel has it, else in its ticks."""
    found: dict[int, int] = {}
    for name in files.names(folder):
        if not name.isdecimal():
            continue
        used_ns = _used_ns(folder / name)
        if used_ns is not None:
            found[int(name)] = used_ns
    return found


def _used_ns(folder: Path) -> int | None:
    text = files.text(folder / "schedstat")
    first, _, _ = text.partition(" ")
    exact = files.whole(first)
    if exact is not None:
        return exact
    fields = _stat(folder)
    if not fields:
        return None
    user, system = fields[11], fields[12]
    ticks = user + system
    return ticks * _TICK_NS


def _family_ns(proc: Path, pid: int) -> int:
    """CPU time of process `pid` and all its descendants; of those that were waited for their
    parents have it.
    """
    children: dict[int, list[int]] = {}
    used_ns: dict[int, int] = {}
    for name in files.names(proc):
        if name.isdecimal() and (fields := _stat(proc / name)):
            children.setdefault(fields[1], []).append(int(name))
            used_ns[int(name)] = sum(fields[11:15]) * _TICK_NS
    total_ns, todo = 0, [pid]
    while todo:
        process = todo.pop()
        total_ns += used_ns.get(process, 0)
        todo += children.pop(process, [])
    return total_ns


def _stat(folder: Path) -> tuple[int, ...]:
    """Fields of proc(5)'s stat from the third on (the first, a letter, as 0); empty where it is not
    told in full.

    4 ppid, 10 minflt, 12 majflt, 14 utime, 15 stime, 16 cutime, 17 cstime, 22 starttime are here 1,
    7, 9, 11, 12, 13, 14, 19.
    """
    # The name in parentheses may hold spaces and parentheses itself: split after the last one.
    words = files.text(folder / "stat").rpartition(")")[2].split()
    numbers = [files.whole(word) for word in words[1:20]]
    known = [number for number in numbers if number is not None]
    return (0, *known) if len(known) == len(numbers) == 19 else ()
