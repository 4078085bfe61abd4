"""What the kernel lets this process do, as far as its own files say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_WORDS = ("docker", "containerd", "kubepods", "libpod", "lxc")
_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """`seccomp`: off, strict, filter, or empty where it is not told. None: no such setting, or it is hidden."""

    perf_event_paranoid: int | None = None
    ptrace_scope: int | None = None
    seccomp: str = ""
    no_new_privileges: bool = False
    is_container: bool = False


def facts(root: Path = Path("/")) -> Kernel:
    """The settings that concern recorders."""
    status = dict(line.partition(":")[::2] for line in _read(root / "proc/self/status").splitlines())
    group = _read(root / "proc/self/cgroup")
    return Kernel(
        perf_event_paranoid=_number(root / "proc/sys/kernel/perf_event_paranoid"),
        ptrace_scope=_number(root / "proc/sys/kernel/yama/ptrace_scope"),
        seccomp=_SECCOMP.get(status.get("Seccomp", "").strip(), ""),
        no_new_privileges=status.get("NoNewPrivs", "").strip() == "1",
        is_container=any((root / name).exists() for name in _CONTAINER_FILES)
        or any(word in group for word in _CONTAINER_WORDS),
    )


def _number(path: Path) -> int | None:
    try:
        return int(_read(path))
    except ValueError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
