"""The settings of the article on profiling deep learning frameworks: one thread, half a socket, one
socket, all.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.choices.binding import listed
from layerscope.tune.choices.numa import own_nodes
from layerscope.tune.choices.threads import variables
from layerscope.tune.setting import Setting, TuneContext


def choices(place: TuneContext) -> Iterator[Setting]:
    """Each once; one that would use the same CPUs with as many threads as one before is left
    out.
    """
    cpu = place.machine.cpu
    allowed = cpu.allowed or cpu.online
    cores = len(cpu.allowed_cores) or max(1, min(cpu.cores or len(allowed), len(allowed)))
    per_socket = max(1, cores // (cpu.sockets or 1))
    nodes = own_nodes(place)
    # Node by node, since a socket's CPUs need not have neighbouring numbers; of each core one
    # hardware thread first.
    near = tuple(number for node in nodes for number in node.cpus if number in allowed) or allowed
    near = tuple(sorted(near, key=lambda number: number not in cpu.allowed_cores))
    made = {
        "one-thread": (1, near[:1]),
        "half-socket": (max(1, per_socket // 2), near[: max(1, per_socket // 2)]),
        "one-socket": (per_socket, near[:per_socket]),
    }
    names = variables(place) or ["OMP_NUM_THREADS"]
    seen = set()
    for name, (count, cpus) in made.items():
        if count not in seen:
            seen.add(count)
            told = tuple(str(node.number) for node in nodes if set(node.cpus) & set(cpus))
            yield Setting(
                f"preset={name}",
                dict.fromkeys(names, str(count)),
                prefix=_prefix(place, cpus, told),
                because="threads on cores of their own",
            )
    because = f"{cores} threads wherever the kernel puts them"
    yield Setting("preset=all-cores", dict.fromkeys(names, str(cores)), because=because)


def _prefix(place: TuneContext, cpus: tuple[int, ...], nodes: tuple[str, ...]) -> tuple[str, ...]:
    """numactl as in the article; taskset where there is none, nothing where there is neither or no
    CPU is known.
    """
    if not cpus:
        return ()
    if libraries.command(place, "numactl") and nodes:
        return ("numactl", f"--physcpubind={listed(cpus)}", f"--membind={','.join(nodes)}")
    return ("taskset", "-c", listed(cpus)) if libraries.command(place, "taskset") else ()
