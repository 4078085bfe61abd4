"""The limits of the control group that a process is in (a container, a batch job, a service), and what they cost it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Version 1 says "no limit" by a number that is larger than any memory.
_NO_LIMIT_BYTES = 1 << 60
_V1_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """`version` 1, 2, or 0 where there is none. A limit is the tightest on the way up; None: there is none.

    `memory_used_bytes` is what counts against the limit and could not be given back: without cached files.
    """

    version: int = 0
    memory_limit_bytes: int | None = None
    memory_used_bytes: int = 0
    cpus: float | None = None


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
    is_hidden: bool = False  # it is in a group whose files are not there

    @property
    def key(self) -> tuple[Path, ...]:
        """What two processes of one group have in common."""
        return (*self.cpu[:1], *self.memory[:1])

    def usage(self) -> Usage:
        """What it has used so far."""
        if not self.version:
            return Usage()
        time_name, time_ns = ("throttled_usec", 1000) if self.version == 2 else ("throttled_time", 1)
        told = [_lines(folder / "cpu.stat") for folder in self.cpu]
        throttled = [lines["nr_throttled"] for lines in told if "nr_throttled" in lines]
        throttled_ns = [lines[time_name] * time_ns for lines in told if time_name in lines]
        names = ("memory.max", "memory.current") if self.version == 2 else _V1_MEMORY
        limit, at = _tightest(self.memory, names[0])
        used = _read(at / names[1]).strip() if limit and at else ""
        return Usage(
            sum(throttled) if throttled else None, sum(throttled_ns) if throttled_ns else None,
            int(used) if used.isdigit() else None, limit,
        )  # fmt: skip


def group_of(pid: int, root: Path = Path("/")) -> Group:
    """The group of process `pid`."""
    groups = dict(_groups(root, str(pid)))
    base = root / "sys/fs/cgroup"
    if not groups:
        return Group()
    if "memory" not in groups and "cpu" not in groups:
        leaf = base / groups.get("", "/").lstrip("/")
        folders = tuple(_upward(leaf, base))
        return Group(2, folders, folders) if (base / "cgroup.controllers").exists() else Group(is_hidden=True)
    cpu, memory = (
        tuple(_upward(base / name / groups[name].lstrip("/"), base / name))
        if name in groups and (base / name).is_dir() else ()
        for name in ("cpu", "memory")
    )  # fmt: skip
    return Group(1, cpu, memory, is_hidden="cpu" in groups and not cpu)


def facts(root: Path = Path("/")) -> Cgroup:
    """The limits of the group of this process."""
    groups = dict(_groups(root))
    base = root / "sys/fs/cgroup"
    if not groups:
        return Cgroup()
    if "memory" not in groups and "cpu" not in groups:
        leaf = base / groups.get("", "/").lstrip("/")
        limit, at = _tightest(_upward(leaf, base), "memory.max")
        cpus = min((found for folder in _upward(leaf, base) if (found := _quota_v2(folder))), default=None)
        return Cgroup(2, limit, _used(at, "memory.current", "inactive_file") if limit and at else 0, cpus)
    memory = base / "memory" / groups.get("memory", "/").lstrip("/")
    cpu = base / "cpu" / groups.get("cpu", "/").lstrip("/")
    limit, at = _tightest(_upward(memory, base / "memory"), _V1_MEMORY[0])
    cpus = min((found for folder in _upward(cpu, base / "cpu") if (found := _quota_v1(folder))), default=None)
    used_bytes = _used(at, _V1_MEMORY[1], "total_inactive_file") if limit and at else 0
    return Cgroup(1, limit, used_bytes, cpus)


def _groups(root: Path, process: str = "self") -> Iterator[tuple[str, str]]:
    """(controller, path of the group); of version 2 the controller is empty."""
    for line in _read(root / "proc" / process / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        # In a container without a namespace of its own the path leads out of what is mounted there.
        yield from ((controller, "/" if ".." in path else path) for controller in controllers.split(","))


def _upward(leaf: Path, base: Path) -> Iterator[Path]:
    """The group and those above it; the mounted one alone where ours is not visible."""
    if not leaf.is_dir():
        leaf = base
    yield leaf
    yield from (parent for parent in leaf.parents if parent == base or base in parent.parents)


def _tightest(folders: Iterable[Path], name: str) -> tuple[int | None, Path | None]:
    """The smallest limit, and the group that has it; without a limit the first group."""
    folders = tuple(folders)
    found = [(int(text), folder) for folder in folders if (text := _read(folder / name).strip()).isdigit()]
    limits = [pair for pair in found if pair[0] < _NO_LIMIT_BYTES]
    return min(limits, key=lambda pair: pair[0]) if limits else (None, next(iter(folders), None))


def _used(folder: Path, name: str, cached: str) -> int:
    used = _read(folder / name).strip()
    return max(0, int(used) - _lines(folder / "memory.stat").get(cached, 0)) if used.isdigit() else 0


def _lines(path: Path) -> dict[str, int]:
    """The lines of a file like `cpu.stat`: a name and a number each."""
    words = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = (_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
