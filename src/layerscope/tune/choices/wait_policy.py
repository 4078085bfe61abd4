"""How threads wait for each other: asleep, or spinning on their CPU.

Spinning answers sooner, and takes the CPU from whoever could work meanwhile. libgomp spins for some
milliseconds unless told otherwise, Intel's and LLVM's runtime for 200 ms.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 20, 1
_SPINS_MS = {
    "0": "threads sleep as soon as they wait",
    "1": "threads spin for 1 ms, then sleep",
    "200": "threads spin for 200 ms, then sleep",
}


def choices(place: TuneContext) -> Iterator[Setting]:
    """By the runtime that the program has, where there are CPUs for two threads."""
    if libraries.has_openmp(place) is False or len(place.machine.cpu.allowed) == 1:
        return
    if libraries.has(place, "libiomp5", "libomp"):
        now = place.environment.get("KMP_BLOCKTIME", "200")
        for value, because in _SPINS_MS.items():
            if value != now:
                yield Setting(f"blocktime={value}", {"KMP_BLOCKTIME": value}, because=because)
        return
    now = place.environment.get("OMP_WAIT_POLICY", "").lower()
    if now != "passive":
        yield Setting(
            "wait=passive",
            {"OMP_WAIT_POLICY": "passive"},
            because="threads sleep as soon as they wait",
        )
    if now != "active":
        yield Setting(
            "wait=active",
            {"OMP_WAIT_POLICY": "active"},
            because="threads spin as long as they wait",
        )
