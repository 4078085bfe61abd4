"""Another OpenMP runtime in place of libgomp: Intel's, which understands its calls."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 45, 2
# The wheel intel-openmp and conda put it beside Python; these are Intel's own installer's.
_ONEAPI = (
    "/opt/intel/oneapi/compiler/latest/lib",
    "/opt/intel/oneapi/compiler/latest/linux/compiler/lib/intel64_lin",
)


def choices(place: TuneContext) -> Iterator[Setting]:
    """Where the program has libgomp, more than one CPU, and libiomp5 is found and may be
    preloaded.
    """
    if not libraries.has(place, "libgomp") or libraries.has(place, "libiomp5", "libomp"):
        return
    is_alone = len(place.machine.cpu.allowed) == 1
    found = (
        None
        if is_alone or libraries.no_preload(place)
        else libraries.find(place, ("libiomp5.so",), _ONEAPI)
    )
    if found is None:
        return
    yield Setting(
        "openmp=intel", preload=(found,), because="another runtime forks and joins its threads"
    )
    yield Setting(
        "openmp=intel blocktime=0",
        {"KMP_BLOCKTIME": "0"},
        (found,),
        because="its threads sleep as soon as they wait",
    )
