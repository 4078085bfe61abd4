"""What the kernel lets this process do, as far as its own files say."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from layerscope.host import files

_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_WORDS = ("docker", "containerd", "kubepods", "libpod", "lxc")
# Bits of capabilities(7) by which a process may look at others.
CAPABILITIES = {
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
# In a user namespace of its own a process has all of them, but perf events, names of the kernel and
# BPF ask for those of the first one; Yama alone asks for that of the other process's (ns_capable in
# security/yama/yama_lsm.c).
_OF_ANY_NAMESPACE = ("CAP_SYS_PTRACE",)
_FIRST_NAMESPACE = ["0", "0", "4294967295"]  # user_namespaces(7): every user is who he is
_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}
_TRACEFS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")


class Kernel(msgspec.Struct, frozen=True):
    """`seccomp`: off, strict, filter, or empty where it is not told. None: no such setting, or it
    is hidden.

    `pmus`: counting units that perf_event_open knows; `cpu` and its like are those of the
    processor. `tracefs_readable`: None where none is mounted, or that is hidden. `capabilities`:
    those of CAPABILITIES in effect, in a user namespace without those that count only outside of
    it.
    """

    perf_event_paranoid: int | None = None
    ptrace_scope: int | None = None
    seccomp: str = ""
    no_new_privileges: bool = False
    is_container: bool = False
    release: str = ""
    kptr_restrict: int | None = None
    perf_event_mlock_kb: int | None = None
    perf_event_max_stack: int | None = None
    pmus: tuple[str, ...] = ()
    tracefs_readable: bool | None = None
    capabilities: tuple[str, ...] = ()
    numa_balancing: bool | None = None


def facts(root: Path = Path("/")) -> Kernel:
    """The settings that concern recorders and the speed of programs."""
    status = files.fields(root / "proc/self/status")
    group = files.text(root / "proc/self/cgroup")
    settings = root / "proc/sys/kernel"
    balancing = files.number(settings / "numa_balancing")
    return Kernel(
        perf_event_paranoid=files.number(settings / "perf_event_paranoid"),
        ptrace_scope=files.number(settings / "yama/ptrace_scope"),
        seccomp=_SECCOMP.get(status.get("Seccomp", ""), ""),
        no_new_privileges=status.get("NoNewPrivs", "") == "1",
        is_container=any((root / name).exists() for name in _CONTAINER_FILES)
        or any(word in group for word in _CONTAINER_WORDS),
        release=files.text(settings / "osrelease"),
        kptr_restrict=files.number(settings / "kptr_restrict"),
        perf_event_mlock_kb=files.number(settings / "perf_event_mlock_kb"),
        perf_event_max_stack=files.number(settings / "perf_event_max_stack"),
        pmus=files.names(root / "sys/bus/event_source/devices"),
        tracefs_readable=_tracefs(root),
        capabilities=_capabilities(
            status.get("CapEff", ""), files.text(root / "proc/self/uid_map").split()
        ),
        numa_balancing=None if balancing is None else balancing != 0,
    )


def _tracefs(root: Path) -> bool | None:
    """The folder where it is mounted is there, and empty, without it; mounted, it is root's
    alone.
    """
    for name in _TRACEFS:
        folder = root / name
        if os.path.exists(folder / "trace"):  # False too where a folder on the way is closed to us
            return os.access(folder / "trace", os.R_OK)
        if os.path.isdir(folder) and not os.access(folder, os.X_OK):
            return False
    return None


def _capabilities(mask: str, users: list[str]) -> tuple[str, ...]:
    """Those of `mask` (hex) that count; `users`: words of uid_map, none where the kernel has no
    user namespaces.
    """
    try:
        effective = int(mask, 16)
    except ValueError:
        return ()
    here = CAPABILITIES if not users or users == _FIRST_NAMESPACE else _OF_ANY_NAMESPACE
    return tuple(name for name in here if effective >> CAPABILITIES[name] & 1)
