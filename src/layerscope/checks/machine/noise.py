"""Who else uses this machine: how far times measured now can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted, percent

ORDER = 80

_TIMES_VARY = (
    "Times vary with what others do: compare by many interleaved runs (layerscope tune "
    "does), or by CPU time."
)
# Per cent of the last 10 s in which some task waited (the kernel's "some avg10").
_PRESSED = {"CPU": (10.0, 40.0), "memory": (1.0, 10.0), "disk": (10.0, 40.0)}
_WAITING = {
    "CPU": "Threads that want to run are more than the CPUs.",
    "memory": "Programs wait until the kernel has freed memory.",
    "disk": "Programs wait for disks: loaders, checkpoints, swap.",
}
_REMEDIES = {"CPU": "top -o %CPU", "memory": "top -o %MEM", "disk": "iostat -x 5"}
_STOLEN = (0.01, 0.05)
# CPUs that other programs use, of those that are online.
_OTHERS = (0.10, 0.30)


def check(seen: Seen) -> Iterator[Check]:
    """Load, pressure, and what the hypervisor takes."""
    yield _others(seen) or _load(seen)
    yield _pressure(seen)
    yield _steal(seen)


def _others(seen: Seen) -> Check | None:
    """What other programs took while we watched one; None where that is not known."""
    watched, online = seen.watched, len(seen.machine.cpu.online)
    if watched is None or watched.busy_share is None or watched.process_cpus is None or not online:
        return None
    # Workers and ranks that the process started are no others.
    ours = watched.process_cpus if watched.family_cpus is None else watched.family_cpus
    others = max(0.0, watched.busy_share * online - ours)
    what = (
        f"other programs used {counted(round(others, 1), 'CPU')} of {online} in "
        f"{watched.seconds:.3g} s"
    )
    state = _state(others / online, _OTHERS)
    return Check("load", "load", state, what, _TIMES_VARY if state != OK else "")


def _load(seen: Seen) -> Check:
    load, online = seen.machine.noise.load, len(seen.machine.cpu.online)
    if load is None or not online:
        return Check("load", "load", UNSEEN, "the kernel does not report it")
    what = (
        f"{load[0]:.3g} tasks wanted a CPU or a disk in the last minute, on "
        f"{counted(online, 'CPU')}"
    )
    if load[0] > online:
        return Check("load", "load", WARNING, what, _TIMES_VARY, "top -o %CPU")
    # Something runs here besides us, and there are CPUs left for it.
    state = OK if load[0] <= 0.5 * online else NOTE
    return Check("load", "load", state, what, _TIMES_VARY if state != OK else "")


def _pressure(seen: Seen) -> Check:
    noise = seen.machine.noise
    pressures = {
        "CPU": noise.pressure_cpu,
        "memory": noise.pressure_memory,
        "disk": noise.pressure_io,
    }
    known = {name: value for name, value in pressures.items() if value is not None}
    if not known:
        evidence = "the kernel does not report it (CONFIG_PSI, Linux 4.20)"
        return Check("pressure", "pressure", UNSEEN, evidence)
    states = {name: _state(value, _PRESSED[name]) for name, value in known.items()}
    parts = ", ".join(f"{name} {value:.3g} %" for name, value in known.items())
    evidence = f"some thread waited, of the last 10 s: {parts}"
    for worst in (WARNING, NOTE):
        pressed = [name for name, state in states.items() if state == worst]
        if pressed:
            lost = " ".join(_WAITING[name] for name in pressed)
            remedy = _REMEDIES[pressed[-1]]
            return Check("pressure", "pressure", worst, evidence, lost, remedy)
    return Check("pressure", "pressure", OK, evidence)


def _steal(seen: Seen) -> Check:
    watched, since = seen.watched, seen.machine.noise.steal_share
    if watched is not None and watched.steal_share is not None:
        share, when = watched.steal_share, f"in {watched.seconds:.3g} s"
    elif since is not None:
        share, when = since, "since the machine started"
    else:
        return Check("steal", "steal", UNSEEN, "the kernel does not report it")
    state = _state(share, _STOLEN)
    what = f"{percent(share)} of the CPU time {when} went to other machines of the host"
    lost = "The CPUs are slower than they seem, and no program here can see when."
    remedy = "a machine with CPUs of its own (dedicated, not burstable)"
    return Check("steal", "steal", state, what, *((lost, remedy) if state != OK else ()))


def _state(value: float, limits: tuple[float, float]) -> str:
    worth_a_note, worth_a_warning = limits
    if value >= worth_a_warning:
        return WARNING
    if value >= worth_a_note:
        return NOTE
    return OK
