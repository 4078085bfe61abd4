"""The limits of the control group that this process is in: a container, a batch job, a service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Version 1 says "no limit" by a number that is larger than any memory.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Cgroup:
    """`version` 1, 2, or 0 where there is none. A limit is the tightest on the way up; None: there is none.

    `memory_used_bytes` is what counts against the limit and could not be given back: without cached files.
    """

    version: int = 0
    memory_limit_bytes: int | None = None
    memory_used_bytes: int = 0
    cpus: float | None = None


def facts(root: Path = Path("/")) -> Cgroup:
    """The limits of the group of this process."""
    groups = dict(_groups(root))
    base = root / "sys/fs/cgroup"
    if not groups:
        return Cgroup()
    if "memory" not in groups and "cpu" not in groups:
        leaf = base / groups.get("", "/").lstrip("/")
        limit, at = _tightest(leaf, base, "memory.max")
        cpus = min((found for folder in _upward(leaf, base) if (found := _quota_v2(folder))), default=None)
        return Cgroup(2, limit, _used(at, "memory.current", "inactive_file") if limit else 0, cpus)
    memory = base / "memory" / groups.get("memory", "/").lstrip("/")
    cpu = base / "cpu" / groups.get("cpu", "/").lstrip("/")
    limit, at = _tightest(memory, base / "memory", "memory.limit_in_bytes")
    cpus = min((found for folder in _upward(cpu, base / "cpu") if (found := _quota_v1(folder))), default=None)
    used_bytes = _used(at, "memory.usage_in_bytes", "total_inactive_file") if limit else 0
    return Cgroup(1, limit, used_bytes, cpus)


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """(controller, path of the group); of version 2 the controller is empty."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        # In a container without a namespace of its own the path leads out of what is mounted there.
        yield from ((controller, "/" if ".." in path else path) for controller in controllers.split(","))


def _upward(leaf: Path, base: Path) -> Iterator[Path]:
    """The group and those above it; the mounted one alone where ours is not visible."""
    if not leaf.is_dir():
        leaf = base
    yield leaf
    yield from (parent for parent in leaf.parents if parent == base or base in parent.parents)


def _tightest(leaf: Path, base: Path, name: str) -> tuple[int | None, Path]:
    """The smallest limit, and the group that has it."""
    found = [(int(text), folder) for folder in _upward(leaf, base) if (text := _read(folder / name).strip()).isdigit()]
    limits = [pair for pair in found if pair[0] < _NO_LIMIT_BYTES]
    return min(limits, key=lambda pair: pair[0]) if limits else (None, leaf)


def _used(folder: Path, name: str, cached: str) -> int:
    used = _read(folder / name).strip()
    lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
    given_back = next((int(line[1]) for line in lines if len(line) == 2 and line[0] == cached), 0)
    return max(0, int(used) - given_back) if used.isdigit() else 0


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
