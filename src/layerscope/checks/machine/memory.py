"""Memory that is left, the limits of the group, and swap."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import ERROR, NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import percent
from layerscope.model import units

ORDER = 120

# Of what there is: below the first a program that grows is ended soon, below the second it is about
# to be.
_LITTLE, _ALMOST_NONE = 0.10, 0.02
# Of the swap: what is there may be of programs that sleep.
_MUCH_SWAP = 0.10
# The kernel's default is 60; from 100 on it would rather write out memory of programs than forget
# cached files.
_EAGER = 100


def check(seen: Seen) -> Iterator[Check]:
    """Memory, then swap."""
    yield _memory(seen)
    yield _swap(seen)


def _memory(seen: Seen) -> Check:
    memory, group, process = seen.machine.memory, seen.machine.cgroup, seen.machine.process
    if memory.available_bytes is None or not memory.total_bytes:
        return Check("memory", "memory", UNSEEN, "the kernel does not report how much is left")
    left, of, whose = memory.available_bytes, memory.total_bytes, "of this machine"
    if (
        group.memory_limit_bytes is not None
        and group.memory_limit_bytes - group.memory_used_bytes < left
    ):
        left, of = (
            max(0, group.memory_limit_bytes - group.memory_used_bytes),
            group.memory_limit_bytes,
        )
        whose = "that the control group may use"
    what = f"{units.size(left)} are left of the {units.size(of)} {whose}"
    what += f"; process {process.pid} has {units.size(process.memory_bytes)}" if process else ""
    if left >= _LITTLE * of:
        return Check("memory", "memory", OK, what)
    remedy = "smaller batches, fewer loader workers"
    if group.memory_limit_bytes == of:
        remedy += (
            ", or a larger limit: docker update --memory=N CONTAINER, in Kubernetes "
            "resources.limits.memory"
        )
    return Check(
        "memory",
        "memory",
        ERROR if left < _ALMOST_NONE * of else WARNING,
        f"{what} ({percent(left / of)})",
        "When it is used up the kernel kills the program (its exit status is 137), or others wait "
        "for it.",
        remedy,
    )


def _swap(seen: Seen) -> Check:
    memory = seen.machine.memory
    if memory.swap_bytes is None:
        return Check("swap", "swap", UNSEEN, "the kernel does not report it")
    if not memory.swap_bytes:
        return Check("swap", "swap", OK, "none")
    used = memory.swap_used_bytes or 0
    what = f"{units.size(used)} of {units.size(memory.swap_bytes)} used"
    what += "" if memory.swappiness is None else f"; swappiness {memory.swappiness}"
    if used > _MUCH_SWAP * memory.swap_bytes:
        return Check(
            "swap",
            "swap",
            NOTE,
            what,
            "Memory of programs lies on disk: touching it again takes a thousand times longer.",
            "free memory, then as root: swapoff -a && swapon -a",
        )
    if memory.swappiness is not None and memory.swappiness >= _EAGER:
        return Check(
            "swap",
            "swap",
            NOTE,
            what,
            "Memory of programs is written out rather than cached files are forgotten.",
            "sysctl vm.swappiness=10",
        )
    return Check("swap", "swap", OK, what)
