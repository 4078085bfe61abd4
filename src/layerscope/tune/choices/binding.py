"""On which CPUs threads stay: bound to cores, on fast cores only, without hyperthreads."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 40, 2
# Who has set one of these has bound the threads, and two ways of binding fight each other.
_BOUND = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY")


def choices(place: TuneContext) -> Iterator[Setting]:
    """None where there is one CPU."""
    cpu = place.machine.cpu
    if len(cpu.allowed) < 2:
        return
    if libraries.has_openmp(place) is not False and not any(
        name in place.environment for name in _BOUND
    ):
        yield from _bound(place)
    kinds = {
        "fast": (cpu.faster, "a slow core holds up all that wait for it"),
        "cores": (cpu.allowed_cores, "two hardware threads of a core share its vector units"),
    }
    for name, (cpus, because) in kinds.items():
        chosen = tuple(sorted(set(cpus) & set(cpu.allowed)))
        if libraries.command(place, "taskset") and chosen and len(chosen) < len(cpu.allowed):
            yield Setting(f"cpus={name}", prefix=("taskset", "-c", listed(chosen)), because=because)


def _bound(place: TuneContext) -> Iterator[Setting]:
    now = place.environment.get("OMP_PROC_BIND", "").lower()
    far = (place.machine.cpu.sockets or 1) > 1 or len(place.machine.numa) > 1
    told = {"close": "a thread finds what it left in its cache"}
    if far:
        told["spread"] = "threads share the caches and the memory of all sockets"
    for value, because in told.items():
        if value != now:
            yield Setting(
                f"bind={value}", {"OMP_PROC_BIND": value, "OMP_PLACES": "cores"}, because=because
            )


def listed(cpus: tuple[int, ...]) -> str:
    """Numbers as a list of the kernel's: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)
