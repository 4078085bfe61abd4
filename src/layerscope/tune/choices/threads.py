"""How many threads compute: one, half of the cores, all cores, the CPU limit, all CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 10, 1
# Libraries take OMP_NUM_THREADS where their own variable is not set; where the user has set that,
# it would win.
_OWN = (
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def choices(place: TuneContext) -> Iterator[Setting]:
    """Each number once, without that of the default where it is known."""
    names = variables(place)
    if not names:
        return
    by_default = default(place)
    for count, because in numbers(place).items():
        if count == by_default:
            continue
        environment = dict.fromkeys(names, str(count))
        yield Setting(f"threads={count}", environment, because=because)


def variables(place: TuneContext) -> list[str]:
    """By which the program is told how many threads compute; none where it reads none that is
    known.
    """
    reads_omp = libraries.reads_omp_threads(place) is not False
    has_tensorflow = libraries.has(place, "libtensorflow")
    names = ["OMP_NUM_THREADS"] if reads_omp else []
    names += [name for name in _OWN if name in place.environment and (reads_omp or has_tensorflow)]
    return [*names, *(["TF_NUM_INTRAOP_THREADS"] if has_tensorflow else [])]


def numbers(place: TuneContext) -> dict[int, str]:
    """Each number with why it may be good. Beyond a limit of CPU time they would only be
    throttled.
    """
    cpu = place.machine.cpu
    logical = len(cpu.allowed) or len(cpu.online) or 1
    granted = max(1, int(cpu.granted)) if 0 < cpu.granted < logical else logical
    cores = min(len(cpu.allowed_cores) or cpu.cores or logical, granted)
    found = {granted: "as many as the limit of CPU time leaves"} if granted < logical else {}
    found.setdefault(1, "nothing to distribute, no thread to wait for")
    found.setdefault(cores, "one for each core")
    found.setdefault(max(1, cores // 2), "half of them: less memory traffic, and room for others")
    found.setdefault(granted, "one for each CPU that the kernel counts")
    return found


def default(place: TuneContext) -> int | None:
    """How many the program has as it is, where that is known."""
    first = place.environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if first.isdecimal():
        return int(first)
    cpu = place.machine.cpu
    # A runtime of OpenMP begins one thread for each CPU it may use, one with MKL one for each
    # core: the same number where no core has two hardware threads. None of them knows of a limit of
    # CPU time.
    cores = len(cpu.allowed_cores) or (cpu.cores if len(cpu.allowed) == len(cpu.online) else None)
    is_same = len(cpu.allowed) in (1, cores)
    return len(cpu.allowed) if is_same and cpu.allowed else None
