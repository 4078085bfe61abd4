"""What gives a recorder the rights that it lacks: the words that `platform` and `doctor` both say."""

from __future__ import annotations

EVENTS = "sysctl kernel.perf_event_paranoid=2, or docker run --cap-add PERFMON"
KERNEL_FRAMES = "sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0"
FILTER = "allow it in the seccomp profile of the container"


def ptrace(scope: int) -> str:
    """What lets stacks of waits be read under Yama's `ptrace_scope`. Nobody can lower 3 before the next boot."""
    return "sysctl kernel.yama.ptrace_scope=1" + " at boot" * (scope > 2)
