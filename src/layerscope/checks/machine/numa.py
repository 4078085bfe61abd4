"""Several memory nodes, and whether a program is bound to one of them."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted
from layerscope.host.numa import Node
from layerscope.model import units

ORDER = 60

_NEAR = 10  # the distance of a node to itself (ACPI SLIT)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    nodes = seen.machine.numa
    if not nodes:
        yield Check("numa", "NUMA", UNSEEN, "the kernel does not report it")
        return
    with_cpus = [node for node in nodes if node.cpus]
    without_memory = [node.number for node in with_cpus if not node.memory_bytes]
    used = [node for node in with_cpus if {*node.cpus} & {*seen.machine.cpu.allowed}]
    if len(with_cpus) < 2:
        more = len(nodes) - len(with_cpus)
        yield Check(
            "numa", "NUMA", OK, "one node" + (f", and {more} of memory alone" if more else "")
        )
    elif len(used) < 2:
        yield _bound(used, len(with_cpus))
    else:
        what = (
            f"{counted(len(with_cpus), 'node')}, no binding: the CPUs of {len(used)} of them "
            "may be used"
        )
        farthest = _farthest(used, [node.number for node in nodes])
        what += (
            f", the farthest memory {farthest / _NEAR:.2g} times as far" if farthest > _NEAR else ""
        )
        what += f"; without memory: {', '.join(map(str, without_memory))}" if without_memory else ""
        best = max(used, key=lambda node: (node.free_bytes, -node.number)).number
        yield Check(
            "numa",
            "NUMA",
            WARNING if seen.machine.process else NOTE,
            what,
            "Threads read memory of other nodes, which is slower, and how much of it differs from "
            "run to run. One process for each node is usually fastest.",
            f"numactl --cpunodebind={best} --membind={best} python train.py",
        )


def _bound(used: list[Node], of: int) -> Check:
    if not used:
        return Check(
            "numa", "NUMA", UNSEEN, f"{of} nodes; which of them has the allowed CPUs is not known"
        )
    node = used[0]
    return Check(
        "numa",
        "NUMA",
        OK,
        f"the allowed CPUs are those of node {node.number} of {of}, which has "
        f"{units.size(node.free_bytes)} free",
    )


def _farthest(used: list[Node], numbers: list[int]) -> int:
    """The largest distance between two nodes in use; of what is not told, the distance of a node to
    itself.
    """
    wanted = {node.number for node in used}
    told = [
        distance
        for node in used
        for number, distance in zip(numbers, node.distances, strict=False)
        if number in wanted
    ]
    return max(told, default=_NEAR)
