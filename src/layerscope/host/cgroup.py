"""The limits of the control group that a process is in (a container, a batch job, a service), and what they cost it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from layerscope.host import files

# Version 1 says "no limit" by a number that is larger than any memory.
_NO_LIMIT_BYTES = 1 << 60
_V1_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2_MEMORY = ("memory.max", "memory.current")


class Cgroup(msgspec.Struct, frozen=True):
    """`version` 1, 2, or 0 where there is none or none is visible. A limit is the tightest on the way up; None: there
    is none, or, where the group `is_hidden`, none is visible.

    `memory_used_bytes` is what counts against the limit and could not be given back: without cached files.
    `memory_swap_bytes`: swap that may be used beside the memory. `cpuset`: CPUs that the group allows, empty where it
    does not tell. `periods`, `throttled`, `throttled_ns`: as in Usage, since the group was made.
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


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group has used so far, and those around it. None: not told.

    `throttled`: in how many periods of a limit of CPU time threads were kept off their CPUs; `throttled_ns`: for how
    long, each CPU by itself. Both are added up over the groups on the way up. `memory_bytes`: of the group with the
    tightest limit of memory, cached files included; known where there is a limit.
    """

    throttled: int | None = None
    throttled_ns: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Where to read what the group of a process has used; no folders where it has none, or it is not visible."""

    version: int = 0
    cpu: tuple[Path, ...] = ()  # the group and those above it
    memory: tuple[Path, ...] = ()
    cpuset: tuple[Path, ...] = ()
    is_hidden: bool = False  # it is in a group whose files are not there

    @property
    def key(self) -> tuple[Path, ...]:
        """What two processes of one group have in common."""
        return (*self.cpu[:1], *self.memory[:1])

    def usage(self) -> Usage:
        """What it has used so far."""
        if not self.version:
            return Usage()
        _, throttled, throttled_ns = self.throttling()
        names = _V2_MEMORY if self.version == 2 else _V1_MEMORY
        limit, at = _tightest(self.memory, names[0])
        used = files.number(at / names[1]) if limit and at else None
        return Usage(throttled, throttled_ns, used, limit)

    def throttling(self) -> tuple[int | None, int | None, int | None]:
        """Periods of its limits of CPU time, those in which threads were kept off their CPUs, and for how many ns."""
        time_name, time_ns = ("throttled_usec", 1000) if self.version == 2 else ("throttled_time", 1)
        told = [_lines(folder / "cpu.stat") for folder in self.cpu]
        found = [[lines[name] for lines in told if name in lines] for name in ("nr_periods", "nr_throttled", time_name)]
        periods, throttled, time = (sum(values) if values else None for values in found)
        return periods, throttled, None if time is None else time * time_ns


def group_of(pid: int | None = None, root: Path = Path("/")) -> Group:
    """The group of process `pid`, else of this one."""
    groups = dict(_groups(root, "self" if pid is None else str(pid)))
    base = root / "sys/fs/cgroup"
    if not groups:
        return Group()
    if "memory" not in groups and "cpu" not in groups:
        folders = tuple(_upward(base / groups.get("", "/").lstrip("/"), base))
        return Group(2, folders, folders, folders) if _is_v2(base) else Group(is_hidden=True)
    cpu, memory, cpuset = (
        tuple(_upward(base / name / groups[name].lstrip("/"), base / name))
        if name in groups and (base / name).is_dir() else ()
        for name in ("cpu", "memory", "cpuset")
    )  # fmt: skip
    return Group(1, cpu, memory, cpuset, is_hidden="cpu" in groups and not cpu)


def facts(root: Path = Path("/"), pid: int | None = None) -> Cgroup:
    """The limits of the group of process `pid`, else of this one."""
    group = group_of(pid, root)
    if not group.version:
        return Cgroup(is_hidden=group.is_hidden)
    is_v2 = group.version == 2
    names, cached = (_V2_MEMORY, "inactive_file") if is_v2 else (_V1_MEMORY, "total_inactive_file")
    limit, at = _tightest(group.memory, names[0])
    quotas = (_quota_v2(folder) if is_v2 else _quota_v1(folder) for folder in group.cpu)
    periods, throttled, throttled_ns = group.throttling()
    return Cgroup(
        version=group.version,
        memory_limit_bytes=limit,
        memory_used_bytes=_used(at, names[1], cached) if limit and at else 0,
        cpus=min((quota for quota in quotas if quota), default=None),
        memory_swap_bytes=_tightest(group.memory, "memory.swap.max")[0] if is_v2 else _swap_v1(group.memory, limit),
        cpuset=_cpuset(group.cpuset, "cpuset.cpus.effective" if is_v2 else "cpuset.effective_cpus"),
        periods=periods,
        throttled=throttled,
        throttled_ns=throttled_ns,
        is_hidden=group.is_hidden,
    )


def _is_v2(base: Path) -> bool:
    return (base / "cgroup.controllers").exists()


def _groups(root: Path, process: str) -> Iterator[tuple[str, str]]:
    """(controller, path of the group); of version 2 the controller is empty."""
    for line in files.text(root / "proc" / process / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        # In a container without a namespace of its own the path leads out of what is mounted there.
        yield from ((controller, "/" if ".." in path else path) for controller in controllers.split(","))


def _upward(leaf: Path, base: Path) -> Iterator[Path]:
    """The group and those above it; the mounted one alone where ours is not visible."""
    if not os.path.isdir(leaf):  # false, too, of a name that no folder can have
        leaf = base
    yield leaf
    yield from (parent for parent in leaf.parents if parent == base or base in parent.parents)


def _tightest(folders: Iterable[Path], name: str) -> tuple[int | None, Path | None]:
    """The smallest limit, and the group that has it; without a limit the first group."""
    folders = tuple(folders)
    told = ((files.number(folder / name), folder) for folder in folders)
    limits = [(limit, folder) for limit, folder in told if limit is not None and 0 <= limit < _NO_LIMIT_BYTES]
    return min(limits, key=lambda pair: pair[0]) if limits else (None, next(iter(folders), None))


def _used(folder: Path, name: str, cached: str) -> int:
    used = files.number(folder / name)
    return 0 if used is None else max(0, used - _lines(folder / "memory.stat").get(cached, 0))


def _swap_v1(folders: Iterable[Path], memory: int | None) -> int | None:
    """Version 1 limits memory and swap together."""
    both, _ = _tightest(folders, "memory.memsw.limit_in_bytes")
    return None if both is None else max(0, both - (memory or 0))


def _cpuset(folders: Iterable[Path], name: str) -> tuple[int, ...]:
    """What the group leaves; of those above only where it does not tell (then it has no such files)."""
    for folder in folders:
        if cpus := files.listed(files.text(folder / name)) or files.listed(files.text(folder / "cpuset.cpus")):
            return cpus
    return ()


def _lines(path: Path) -> dict[str, int]:
    """The lines of a file like `cpu.stat`: a name and a number each."""
    words = (line.split() for line in files.text(path).splitlines())
    pairs = ((pair[0], files.whole(pair[1])) for pair in words if len(pair) == 2)
    return {name: value for name, value in pairs if value is not None and value >= 0}


def _quota_v2(folder: Path) -> float | None:
    return _share([*files.text(folder / "cpu.max").split(), "", ""][:2])


def _quota_v1(folder: Path) -> float | None:
    return _share([files.text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")])


def _share(words: list[str]) -> float | None:
    """CPUs that a quota and its period make; None where there is no limit."""
    quota, period = map(files.whole, words)
    return quota / period if quota and period and quota > 0 and period > 0 else None
