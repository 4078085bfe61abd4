"""The limits of the control group that a process is in (a container, a batch job, a service), and
what they cost it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from layerscope.host import files

# Version 1 says "no limit" by a number that is larger than any memory.
_NO_LIMIT_BYTES = 1 << 60
_V1_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2_MEMORY = ("memory.max", "memory.current")
# Lines of memory.stat: what the kernel gives back before it kills anybody. Files that were read
# twice are "active".
_V1_CACHED = ("total_inactive_file", "total_active_file")
_V2_CACHED = ("inactive_file", "active_file", "slab_reclaimable")


class Cgroup(msgspec.Struct, frozen=True):
    """`version` 1, 2, or 0 where there is none or none is visible. A limit is the tightest on the
    way up; None: there is none, or none is visible: of memory where `is_memory_hidden`, of all else
    where the group `is_hidden`.

    `memory_limit_bytes` is that of the group on the way up that has the least room left,
    `memory_used_bytes` what counts against it and could not be given back: without cached files.
    `memory_lower_bytes`: a limit that is smaller and yet leaves more room; None: there is none.
    `memory_swap_bytes`: swap that may be used beside the memory. `cpuset`: CPUs that the group
    allows, empty where it does not tell. `periods`, `throttled`, `throttled_ns`: as in Throttling,
    of the group on the way up that was throttled in the largest share of its periods, since it was
    made.
    """

    version: int = 0
    memory_limit_bytes: int | None = None
    memory_used_bytes: int = 0
    cpus: float | None = None
    memory_swap_bytes: int | None = None
    cpuset: tuple[int, ...] = ()
    periods: int | None = None
    throttled: int | None = None
    throttled_ns: int | None = None
    is_hidden: bool = False
    is_memory_hidden: bool = False
    memory_lower_bytes: int | None = None

    @property
    def memory_most_bytes(self) -> int | None:
        """What may be used at most, whoever uses memory beside: the smallest limit. None: there is
        none.
        """
        return (
            self.memory_limit_bytes if self.memory_lower_bytes is None else self.memory_lower_bytes
        )


class Throttling(Struct, frozen=True):
    """What the limit of CPU time of one group did. None: not told.

    `throttled`: in how many of its `periods` threads were kept off their CPUs; `throttled_ns`: for
    how long, each CPU by itself.
    """

    periods: int | None = None
    throttled: int | None = None
    throttled_ns: int | None = None

    @property
    def share(self) -> float:
        """Of its periods."""
        if not self.throttled:
            return 0.0
        if not self.periods:
            return 1.0
        return self.throttled / self.periods


def most_throttled(groups: Iterable[Throttling]) -> Throttling:
    """The one that was throttled in the largest share of its periods.

    Groups on the way up count the same stretches of time: added up, the shares of those with a
    limit would be diluted.
    """
    told = [group for group in groups if group.throttled is not None]
    return max(
        told,
        key=lambda group: (group.share, group.throttled, group.periods or 0),
        default=Throttling(),
    )


class CgroupUsage(Struct, frozen=True):
    """What a group has used so far, and those around it. None: not told.

    `throttled`, `throttled_ns`: as in Throttling, added up over the groups on the way up.
    `memory_bytes`: of the group with the smallest limit of memory, cached files included; known
    where there is a limit.
    """

    throttled: int | None = None
    throttled_ns: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


class Group(Struct, frozen=True):
    """Where to read what the group of a process has used; no folders where it has none, or it is
    not visible.
    """

    version: int = 0
    cpu: tuple[Path, ...] = ()  # the group and those above it
    memory: tuple[Path, ...] = ()
    cpuset: tuple[Path, ...] = ()
    is_hidden: bool = (
        False  # it is in a group whose files are not there; of version 1 those of its CPU time
    )
    is_memory_hidden: bool = False

    @property
    def key(self) -> tuple[Path, ...]:
        """What two processes of one group have in common."""
        cpu = self.cpu[:1]
        memory = self.memory[:1]
        return (*cpu, *memory)

    def usage(self) -> CgroupUsage:
        """What it has used so far."""
        if not self.version:
            return CgroupUsage()
        told = self.throttling()
        throttled, throttled_ns = (
            sum(values) if (values := [value for value in each if value is not None]) else None
            for each in ([one.throttled for one in told], [one.throttled_ns for one in told])
        )
        names = _V2_MEMORY if self.version == 2 else _V1_MEMORY
        limit, at = _tightest(self.memory, names[0])
        used = files.number(at / names[1]) if limit and at else None
        return CgroupUsage(throttled, throttled_ns, used, limit)

    def throttling(self) -> tuple[Throttling, ...]:
        """What the limits of CPU time did so far: its own, then those above it."""
        name, unit_ns = ("throttled_usec", 1000) if self.version == 2 else ("throttled_time", 1)
        told = (_lines(folder / "cpu.stat") for folder in self.cpu)
        return tuple(
            Throttling(
                lines.get("nr_periods"),
                lines.get("nr_throttled"),
                lines[name] * unit_ns if name in lines else None,
            )
            for lines in told
        )


def group_of(pid: int | None = None, root: Path = Path("/")) -> Group:
    """The group of process `pid`, else of this one."""
    ours = dict(_groups(root, "self"))
    groups = ours
    if pid is not None:
        groups = dict(_groups(root, str(pid)))
    base = root / "sys/fs/cgroup"
    if not groups:
        return Group()

    def folders(controller: str, mounted: Path) -> tuple[Path, ...]:
        path = groups.get(controller, "/")
        is_ours = path == ours.get(controller)
        upward = _upward(mounted, path, is_ours=is_ours)
        return tuple(upward)

    def mounted_folders(controller: str) -> tuple[Path, ...]:
        mounted = base / controller
        if controller not in groups:
            return ()
        if not mounted.is_dir():
            return ()
        return folders(controller, mounted)

    if "memory" not in groups and "cpu" not in groups:
        found: tuple[Path, ...] = ()
        if _is_v2(base):
            found = folders("", base)
        if not found:
            return Group(is_hidden=True, is_memory_hidden=True)
        return Group(2, found, found, found)
    cpu = mounted_folders("cpu")
    memory = mounted_folders("memory")
    cpuset = mounted_folders("cpuset")
    is_hidden = "cpu" in groups and not cpu
    is_memory_hidden = "memory" in groups and not memory
    return Group(1, cpu, memory, cpuset, is_hidden, is_memory_hidden)


def facts(root: Path = Path("/"), pid: int | None = None) -> Cgroup:
    """The limits of the group of process `pid`, else of this one."""
    group = group_of(pid, root)
    if not group.version:
        return Cgroup(is_hidden=group.is_hidden, is_memory_hidden=group.is_memory_hidden)
    is_v2 = group.version == 2
    names, cached = (_V2_MEMORY, _V2_CACHED) if is_v2 else (_V1_MEMORY, _V1_CACHED)
    limit, used = _fullest(group.memory, names, cached)
    least, _ = _tightest(group.memory, names[0])
    quota_of = _quota_v2 if is_v2 else _quota_v1
    quotas = map(quota_of, group.cpu)
    if is_v2:
        swap_bytes, _ = _tightest(group.memory, "memory.swap.max")
        cpuset = _cpuset(group.cpuset, "cpuset.cpus.effective")
    else:
        swap_bytes = _swap_v1(group.memory, least)
        cpuset = _cpuset(group.cpuset, "cpuset.effective_cpus")
    throttling = most_throttled(group.throttling())
    return Cgroup(
        version=group.version,
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        cpus=min((quota for quota in quotas if quota), default=None),
        memory_swap_bytes=swap_bytes,
        cpuset=cpuset,
        periods=throttling.periods,
        throttled=throttling.throttled,
        throttled_ns=throttling.throttled_ns,
        is_hidden=group.is_hidden,
        is_memory_hidden=group.is_memory_hidden,
        memory_lower_bytes=least if least != limit else None,
    )


def _is_v2(base: Path) -> bool:
    return (base / "cgroup.controllers").exists()


def _groups(root: Path, process: str) -> Iterator[tuple[str, str]]:
    """(controller, path of the group); of version 2 the controller is empty."""
    text = files.text(root / "proc" / process / "cgroup")
    for line in text.splitlines():
        _, _, behind_number = line.partition(":")
        controllers, _, path = behind_number.partition(":")
        for controller in controllers.split(","):
            yield controller, path


def _upward(base: Path, path: str, is_ours: bool) -> Iterator[Path]:
    """The group and those above it.

    In a container the path of our own group may lead nowhere, or out of what is mounted there: then
    what is mounted is our group. Another process is in that group only where its path is ours; else
    nothing of its group is visible.
    """
    leaf = base / path.lstrip("/")
    if ".." in path.split("/") or not os.path.isdir(
        leaf
    ):  # false, too, of a name that no folder can have
        if not is_ours:
            return
        leaf = base
    yield leaf
    yield from (parent for parent in leaf.parents if parent == base or base in parent.parents)


def _tightest(folders: Iterable[Path], name: str) -> tuple[int | None, Path | None]:
    """The smallest limit, and the group that has it; without a limit the first group."""
    folders = tuple(folders)
    tightest: int | None = None
    owner = folders[0] if folders else None
    for folder in folders:
        limit = files.number(folder / name)
        if limit is None or not 0 <= limit < _NO_LIMIT_BYTES:
            continue
        if tightest is None or limit < tightest:
            tightest, owner = limit, folder
    return tightest, owner


def _fullest(
    folders: Iterable[Path], names: tuple[str, str], cached: Iterable[str]
) -> tuple[int | None, int]:
    """The limit that leaves the least room, and what of it is used and could not be given back."""
    name_of_limit, name_of_usage = names
    limited = []
    for folder in folders:
        limit, _ = _tightest((folder,), name_of_limit)
        if limit is not None:
            used = _used(folder, name_of_usage, cached)
            limited.append((limit, used))
    return min(limited, key=lambda pair: (pair[0] - pair[1], pair[0]), default=(None, 0))


def _used(folder: Path, name: str, cached: Iterable[str]) -> int:
    """Bytes of the group that cannot be given back at once: without these lines of its
    statistics.
    """
    used = files.number(folder / name)
    if used is None:
        return 0
    statistics = _lines(folder / "memory.stat")
    can_go = sum(statistics.get(line, 0) for line in cached)
    return max(0, used - can_go)


def _swap_v1(folders: Iterable[Path], memory: int | None) -> int | None:
    """Version 1 limits memory and swap together."""
    both, _ = _tightest(folders, "memory.memsw.limit_in_bytes")
    if both is None:
        return None
    swap = both - (memory or 0)
    return max(0, swap)


def _cpuset(folders: Iterable[Path], name: str) -> tuple[int, ...]:
    """What the group leaves; of those above only where it does not tell (then it has no such
    files).
    """
    for folder in folders:
        if cpus := files.listed(files.text(folder / name)) or files.listed(
            files.text(folder / "cpuset.cpus")
        ):
            return cpus
    return ()


def _lines(path: Path) -> dict[str, int]:
    """The lines of a file like `cpu.stat`: a name and a number each."""
    found = {}
    for line in files.text(path).splitlines():
        words = line.split()
        if len(words) != 2:
            continue
        name, number = words
        value = files.whole(number)
        if value is not None and value >= 0:
            found[name] = value
    return found


def _quota_v2(folder: Path) -> float | None:
    text = files.text(folder / "cpu.max")
    words = text.split()[:2]
    if len(words) < 2:
        return None
    return _share(words)


def _quota_v1(folder: Path) -> float | None:
    quota = files.text(folder / "cpu.cfs_quota_us")
    period = files.text(folder / "cpu.cfs_period_us")
    return _share([quota, period])


def _share(words: list[str]) -> float | None:
    """CPUs that a quota and its period make; None where there is no limit."""
    quota, period = map(files.whole, words)
    if not quota or not period:
        return None
    if quota < 0 or period < 0:
        return None
    return quota / period
