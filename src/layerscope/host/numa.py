"""The memory nodes of a machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from layerscope.host import files


class Node(msgspec.Struct, frozen=True):
    """`distances`: to each node in the order of their numbers, 10 = itself (ACPI SLIT)."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int
    free_bytes: int
    distances: tuple[int, ...]


def facts(root: Path = Path("/")) -> tuple[Node, ...]:
    """The nodes, by number; empty where the kernel does not report them. A node without memory or
    CPUs is one, too.
    """
    folder = root / "sys/devices/system/node"
    told = files.listed(files.text(folder / "online")) or sorted(
        number
        for name in files.names(folder)
        if (number := files.whole(name.removeprefix("node"))) is not None
    )
    return tuple(
        _node(folder / f"node{number}", number)
        for number in told
        if (folder / f"node{number}").is_dir()
    )


def _node(folder: Path, number: int) -> Node:
    # Lines such as `Node 0 MemTotal:  14903500 kB`.
    memory = {
        name.split()[-1]: value for name, value in files.fields(folder / "meminfo").items() if name
    }
    distances = [files.whole(word) for word in files.text(folder / "distance").split()]
    return Node(
        number,
        files.listed(files.text(folder / "cpulist")),
        files.sized(memory.get("MemTotal", "")) or 0,
        files.sized(memory.get("MemFree", "")) or 0,
        tuple(distance for distance in distances if distance is not None),
    )
