"""The settings of the article on profiling deep learning frameworks: one thread, half a socket, one socket, all."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.choices.binding import listed
from layerscope.tune.choices.numa import own_nodes
from layerscope.tune.setting import Place, Setting


def choices(place: Place) -> Iterator[Setting]:
    """Each once; one that would use the same CPUs with as many threads as one before is left out."""
    cpu = place.machine.cpu
    allowed = cpu.allowed or cpu.online
    cores = max(1, min(cpu.cores or len(allowed), len(allowed)))
    per_socket = max(1, cores // (cpu.sockets or 1))
    nodes = own_nodes(place)
    # Node by node, since a socket's CPUs need not have neighbouring numbers; of each the first hardware threads.
    near = tuple(number for node in nodes for number in node.cpus if number in allowed) or allowed
    made = {
        "one-thread": (1, near[:1]), "half-socket": (max(1, per_socket // 2), near[: max(1, per_socket // 2)]),
        "one-socket": (per_socket, near[:per_socket]),
    }  # fmt: skip
    seen = set()
    for name, (count, cpus) in made.items():
        if count not in seen:
            seen.add(count)
            prefix = _prefix(place, cpus, nodes[0].number if nodes else None)
            yield Setting(f"preset={name}", _threads(count), prefix=prefix, because="threads on cores of their own")
    yield Setting("preset=all-cores", _threads(cores), because=f"{cores} threads wherever the kernel puts them")


def _threads(count: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(count)}


def _prefix(place: Place, cpus: tuple[int, ...], node: int | None) -> tuple[str, ...]:
    """numactl as in the article; taskset where there is none, nothing where there is neither or no CPU is known."""
    if not cpus:
        return ()
    if libraries.command(place, "numactl") and node is not None:
        return ("numactl", f"--physcpubind={listed(cpus)}", f"--membind={node}")
    return ("taskset", "-c", listed(cpus)) if libraries.command(place, "taskset") else ()
