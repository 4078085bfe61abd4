"""What a profiler may see here, and the command that lets it see more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from layerscope.checks import rights
from layerscope.checks.check import NOTE, OK, UNSEEN, Check, Seen
from layerscope.host.kernel import Kernel

ORDER = 200

# The default of the kernel: room for the events of one user in each CPU.
_MLOCK_KB = 516
_TIMERS = "timers of the program take the place of events."
# The PMUs of cores: x86 and most others, hybrid Intel, ARM.
_CORE_PMU = re.compile(
    r"cpu|cpu_core|cpu_atom|armv\d+_.*|apple_.*_pmu|arm_.*_pmu|power_pmu|cpum_cf"
)


def check(seen: Seen) -> Iterator[Check]:
    """Events, names of the kernel, stacks of waits, hardware counters, filters of system calls."""
    kernel = seen.machine.kernel
    has_perf = bool({"CAP_PERFMON", "CAP_SYS_ADMIN"} & {*kernel.capabilities})
    yield _events(kernel, has_perf)
    yield _kernel_frames(kernel, has_perf)
    yield _ptrace(kernel)
    yield _counters(seen)
    yield _filter(kernel)


def _events(kernel: Kernel, has_perf: bool) -> Check:
    paranoid, room = kernel.perf_event_paranoid, kernel.perf_event_mlock_kb
    if paranoid is None:
        return Check(
            "perf_events",
            "perf events",
            UNSEEN,
            "the kernel has no perf_event_paranoid, or hides it",
        )
    what = f"perf_event_paranoid is {paranoid}"
    if has_perf:
        return Check(
            "perf_events", "perf events", OK, f"{what}, which this user's rights go beyond"
        )
    if paranoid > 2:
        return Check(
            "perf_events",
            "perf events",
            NOTE,
            what,
            f"perf_event_open is refused: {_TIMERS}",
            rights.events(kernel.is_container),
        )
    if kernel.seccomp == "filter":
        # Docker's, Podman's and Kubernetes' usual ones let it pass for those who have the right to
        # it.
        remedy = rights.events(True) if kernel.is_container else "layerscope doctor"
        return Check(
            "perf_events",
            "perf events",
            NOTE,
            f"{what}, but a seccomp filter may refuse perf_event_open",
            f"Where it does, {_TIMERS}",
            remedy,
        )
    if room is not None and room < _MLOCK_KB:
        return Check(
            "perf_events",
            "perf events",
            NOTE,
            f"{what}, perf_event_mlock_kb is {room}",
            "Events of programs with many threads have no room.",
            f"sysctl kernel.perf_event_mlock_kb={_MLOCK_KB}",
        )
    return Check(
        "perf_events",
        "perf events",
        OK,
        f"{what}: every thread of your own programs can be sampled",
    )


def _kernel_frames(kernel: Kernel, has_perf: bool) -> Check:
    code, subject = "kernel_frames", "kernel frames"
    if kernel.perf_event_paranoid is None or kernel.kptr_restrict is None:
        return Check(code, subject, UNSEEN, "the kernel hides kptr_restrict or perf_event_paranoid")
    what = (
        f"kptr_restrict is {kernel.kptr_restrict}, perf_event_paranoid {kernel.perf_event_paranoid}"
    )
    # kernel/kallsyms.c (kallsyms_show_value): 0 shows addresses to all up to paranoid 1, else as 1
    # to those with CAP_SYSLOG, no other right; 2 to nobody.
    is_open = kernel.kptr_restrict == 0 and kernel.perf_event_paranoid <= 1
    has_names = is_open or (kernel.kptr_restrict < 2 and "CAP_SYSLOG" in kernel.capabilities)
    has_frames = kernel.perf_event_paranoid <= 1 or has_perf
    if has_frames and has_names:
        return Check(code, subject, OK, what)
    lost = (
        "Functions of the kernel have no names."
        if has_frames
        else "Time in the kernel is one frame."
    )
    return Check(code, subject, NOTE, what, lost, rights.KERNEL_FRAMES)


def _ptrace(kernel: Kernel) -> Check:
    code, subject, scope = "ptrace", "ptrace", kernel.ptrace_scope
    if scope is None:
        return Check(code, subject, OK, "no Yama: processes of your own can be read")
    if scope < 2 or (scope == 2 and "CAP_SYS_PTRACE" in kernel.capabilities):
        return Check(
            code,
            subject,
            OK,
            f"ptrace_scope is {scope}: programs that layerscope starts can be read",
        )
    return Check(
        code,
        subject,
        NOTE,
        f"ptrace_scope is {scope}",
        "Of threads that wait no stack is read, and the reason of few waits is known.",
        rights.ptrace(scope),
    )


def _counters(seen: Seen) -> Check:
    code, subject, pmus = "hardware_counters", "counters", seen.machine.kernel.pmus
    if not pmus:
        return Check(code, subject, UNSEEN, "the kernel does not list its counting units")
    if any(_CORE_PMU.fullmatch(name) for name in pmus):
        return Check(code, subject, OK, "hardware counters of the cores are there")
    remedy = (
        "a machine without a hypervisor, or one that passes its counters on (libvirt: <pmu "
        "state='on'/>)"
    )
    return Check(
        code,
        subject,
        NOTE,
        "no hardware counters",
        "Instructions, cache misses and memory traffic cannot be counted.",
        remedy if seen.machine.cpu.is_virtual else "",
    )


def _filter(kernel: Kernel) -> Check:
    code, subject = "seccomp", "system calls"
    if not kernel.seccomp:
        return Check(code, subject, UNSEEN, "whether they are filtered is not known")
    if kernel.seccomp == "off":
        return Check(code, subject, OK, "no filter")
    where = " of the container" * kernel.is_container
    return Check(
        code,
        subject,
        NOTE,
        f"a seccomp filter{where} refuses some",
        "Recorders may lack what it refuses.",
        "layerscope doctor",
    )
