"""What the summary says of CPU time, switches, page faults, memory and I/O, and of what the thread
of the steps did.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.resources import MemoryUse, ResourceLimits, Switches
from layerscope.analyse.summary import Summary
from layerscope.model import units

# Shares of a thread's time, and bytes of a run, below which there is nothing to say.
_LEAST_SHARE = 0.01
_LEAST_WAITING = 0.02
_LEAST_BYTES = 1_000_000
# Spinning, and waiting for a CPU, as parts of the CPU time.
_LEAST_SPINNING = 0.05
_LEAST_DELAY = 0.1
# A peak this much above what is held at the end is worth saying.
_HIGH = 1.1
# The states of a thread that waits, see `ingest.waiting`.
WAITS = {
    "preempted": "runnable but waiting for a CPU (contention)",
    "gil": "waiting for the GIL",
    "lock": "waiting for locks",
    "barrier": "waiting for OpenMP threads",
    "pool": "waiting for work (thread pool)",
    "sleep": "sleeping",
    "yield": "in sched_yield",
    "pipe": "waiting for pipes",
    "socket": "waiting for sockets",
    "file": "waiting for files",
    "event": "waiting for events",
    "page_fault": "waiting for page faults from disk",
    "child": "waiting for child processes",
    "join": "waiting for other threads to end or to do its work",
    "backward": "waiting for the backward pass, which another thread runs",
    "gpu": "waiting for the GPU",
    "stopped": "stopped by a signal",
    "other": "waiting for other reasons",
    "unknown": "waiting, too short to see why",
}


def resource_facts(summary: Summary, noun: str) -> Iterator[str]:
    """One line each. `noun`: what a step is called; empty where there are none."""
    resources = summary.resources
    whole_run = " in the whole run" if noun else ""
    per = f" a {noun}" if noun and resources is not None and resources.per_step else whole_run
    if resources is None:
        yield "CPU time and page faults were not recorded"
    else:
        of = f" of {resources.cpus:g}" if resources.cpus else ""
        noun_of_cpus = "CPU" if resources.cpus == 1 else "CPUs"
        busy = f"{resources.busy_cpus:.1f}{of} {noun_of_cpus} busy"
        if resources.kernel_ns is not None:
            busy += f", {units.duration(resources.kernel_ns)} in the kernel"
        yield f"CPU {units.duration(resources.cpu_ns)}{per}: {busy}"
    yield from _spinning(summary)
    switches = summary.switches
    if switches is not None:
        per_switch = f" a {noun}" if noun and switches.per_step else whole_run
        yield _switches(switches, per_switch)
        delay_ns = switches.delay_ns or 0
        if resources is not None and switches.per_step == resources.per_step:
            least_ns = _LEAST_DELAY * resources.cpu_ns
            if delay_ns and delay_ns > least_ns:
                delay = units.duration(delay_ns)
                # What a process did after its last reading, up to a second before its end, is not
                # in it.
                if not switches.per_step:
                    delay = f"at least {delay}"
                yield f"waiting for a CPU {delay}{per_switch}, all threads (contention)"
    if summary.limits.throttled:
        yield _throttled(summary.limits)
    if resources is not None and resources.faults_minor is not None:
        disk = units.amount(resources.faults_major) if resources.faults_major else "none"
        yield f"page faults {units.amount(resources.faults_minor)}{per}, {disk} from disk"
    yield _memory(summary.memory)
    yield _storage(summary.limits, whole_run)


def _spinning(summary: Summary) -> Iterator[str]:
    """CPU time that is spent waiting."""
    if summary.spinning is None:
        return
    gpu = summary.spinning.for_gpu
    others = summary.spinning.all - gpu
    if others >= _LEAST_SPINNING:
        share = f"{100 * others:.0f} %"
        yield f"{share} of the CPU time is spinning: threads wait without giving up the CPU"
    if gpu >= _LEAST_SPINNING:
        share = f"{100 * gpu:.0f} %"
        yield f"{share} of the CPU time waits for the GPU, without giving up the CPU"


def _switches(switches: Switches, per: str) -> str:
    if not switches.count:
        return ""
    parts = [
        f"switches {units.amount(switches.count)}{per}",
        f"{units.amount(switches.forced)} forced",
    ]
    if switches.migrations:
        parts.append(f"{units.amount(switches.migrations)} to another CPU")
    return ", ".join(parts)


def _throttled(limits: ResourceLimits) -> str:
    times = f"{limits.throttled:,} times"
    if limits.throttled_ns:
        duration = units.duration(limits.throttled_ns)
        times += f", {duration}"
    return f"throttled {times}: its control group has too few CPUs"


def _memory(memory: MemoryUse | None) -> str:
    if memory is None:
        return "memory was not recorded"
    peak = units.size(memory.peak_bytes)
    if memory.end_bytes is None:
        return f"memory at most {peak}"
    end = units.size(memory.end_bytes)
    size = f"memory {end} at the end"
    if memory.growth_bytes is None:
        return f"{size}, at most {peak}" if peak != end else size
    if memory.is_growing:
        return f"{size}, growing: +{units.size(memory.growth_bytes)} from first to last third"
    if memory.peak_bytes > _HIGH * memory.end_bytes:
        return f"{size}, not growing, at most {peak}"
    return f"{size}, not growing"


def _storage(limits: ResourceLimits, whole_run: str) -> str:
    transfers = (("read", limits.read_bytes), ("wrote", limits.write_bytes))
    parts = [
        f"{what} {units.size(size)}"
        for what, size in transfers
        if size is not None and size >= _LEAST_BYTES
    ]
    return f"disk: {', '.join(parts)}{whole_run}" if parts else ""


def thread_line(summary: Summary, noun: str) -> str:
    """What the thread of the steps, or the main thread, did with its time; empty where it hardly
    waited.
    """
    times = summary.threads
    if times is None or sum(share for _, share in times.waits) < _LEAST_WAITING:
        return ""
    whose = "Main thread"
    if times.per_step:
        kind = "training" if noun == "step" else noun
        whose = f"{kind} thread".capitalize()
        if times.threads > 1:
            whose = f"{times.threads} {kind} threads"
    waits = [
        f"{share:.0%} {WAITS.get(state, state)}"
        for state, share in times.waits
        if share >= _LEAST_SHARE
    ]
    untold = 1 - times.cpu - sum(share for _, share in times.waits)
    rest = f", {untold:.0%} not sampled" if untold >= _LEAST_WAITING else ""
    return f"{whose}: {times.cpu:.0%} running, {', '.join(waits)}{rest}".replace("%", " %")
