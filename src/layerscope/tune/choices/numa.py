"""On which memory node the program runs, and where its memory lies, where there are several."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.host.numa import Node
from layerscope.tune import libraries
from layerscope.tune.choices.binding import listed
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 50, 2
# Nodes are much alike: more of them would be tried in vain.
_MOST = 2


def choices(place: TuneContext) -> Iterator[Setting]:
    """One node alone, for the first of them, and memory dealt out over all."""
    nodes = own_nodes(place)
    if len(nodes) < 2:
        return
    has_numactl = libraries.command(place, "numactl") is not None
    for node in nodes[:_MOST]:
        name = f"node={node.number}"
        because = "memory of its own node is nearer"
        if has_numactl:
            yield Setting(name, prefix=numactl(node.number), because=because)
        elif libraries.command(place, "taskset"):
            allowed = set(place.machine.cpu.allowed)
            of_node = allowed.intersection(node.cpus)
            cpus = tuple(sorted(of_node))
            taskset = ("taskset", "-c", listed(cpus))
            yield Setting(name, prefix=taskset, because=because)
    if has_numactl:
        because = "all memory controllers work"
        interleaved = ("numactl", "--interleave=all")
        yield Setting("memory=interleaved", prefix=interleaved, because=because)


def notes(place: TuneContext) -> Iterator[str]:
    """What numactl would be needed for."""
    nodes = own_nodes(place)
    if len(nodes) > 1 and libraries.command(place, "numactl") is None:
        yield (
            f"there are {len(nodes)} memory nodes and no numactl: on which of them memory lies was "
            "not tried; install numactl (the package has the same name)"
        )


def own_nodes(place: TuneContext) -> list[Node]:
    """Those with memory whose CPUs the program may use."""
    allowed = set(place.machine.cpu.allowed)
    nodes = []
    for node in place.machine.numa:
        is_allowed = not allowed.isdisjoint(node.cpus)
        if is_allowed and node.memory_bytes:
            nodes.append(node)
    return nodes


def numactl(node: int) -> tuple[str, ...]:
    """The words that keep a program on one node, and its memory as long as there is room there."""
    cpus = f"--cpunodebind={node}"
    memory = f"--preferred={node}"
    return ("numactl", cpus, memory)
