"""What gives a recorder the rights that it lacks: the words that `platform` and `doctor` both
say.
"""

from __future__ import annotations

import os

KERNEL_FRAMES = "sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0"
FILTER = "allow it in the seccomp profile of the container"


def events(is_container: bool) -> str:
    """What lets perf_event_open be called. In a container the capability passes the setting and the
    usual filter.
    """
    return (
        "docker run --cap-add PERFMON IMAGE"
        if is_container
        else "sysctl kernel.perf_event_paranoid=2"
    )


def see_everything() -> str:
    """What lets the kernel and other programs be recorded too. Who is root already lacks the
    capability.
    """
    return (
        "record as root"
        if os.geteuid()
        else "give this root CAP_PERFMON: docker run --cap-add PERFMON IMAGE"
    )


def see_process() -> str:
    """What lets a process be read; empty for root, who is refused by something else."""
    return "run this as root, or as its user" if os.geteuid() else ""


def ptrace(scope: int) -> str:
    """What lets stacks of waits be read under Yama's `ptrace_scope`. Nobody can lower 3 before the
    next boot.
    """
    return "sysctl kernel.yama.ptrace_scope=1" + " at boot" * (scope > 2)
