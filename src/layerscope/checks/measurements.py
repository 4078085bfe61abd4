"""Tries out, in throw-away processes of the program's Python, what its libraries and the memory
reach here.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from layerscope.checks import kept_measurements
from layerscope.checks.measured_output import Findings
from layerscope.checks.phrases import threads_granted
from layerscope.host import files, memory
from layerscope.host import machine as machines
from layerscope.host.cpu import Cpu
from layerscope.host.isa import NATIVE
from layerscope.host.machine import Machine
from layerscope.model.measured import Library, Measured, Rate, Tried

SCRIPT = Path(__file__).parent / "inside" / "measure.py"
# All of it, the starts of Python and imports of torch too: 20 s are promised.
BUDGET_S, GRACE_S = 14.0, 4.0
# Variables that hold a library back, or have it choose other than it would.
CAPS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_CPU_ISA_HINTS",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "BLIS_ARCH_TYPE",
    "OMP_THREAD_LIMIT",
)
CORE_TYPE = "OPENBLAS_CORETYPE"
# What would disturb, or be taken for an answer.
_DROPPED = (
    "ONEDNN_VERBOSE",
    "DNNL_VERBOSE",
    "MKLDNN_VERBOSE",
    "MKL_VERBOSE",
    "PYTHONINSPECT",
    "PYTHONSTARTUP",
)
# Arrays are twice as large as all last caches together; these keep everything below 400 MB on a
# machine with few.
_ARRAY_BYTES, _MATRIX_BYTES, _MATRIX_BYTES_A_CPU = 64 << 20, 64 << 20, 4 << 20
_MOST_BYTES = 2 << 30
# What a Python with torch in it takes before any matrix (a CPU build of 2.13: 230 MB).
_TORCH_BYTES = 350_000_000
_RESTARTS = 2
# The core type of OpenBLAS that has kernels with AVX-512 in every build that chooses at run time,
# and what they need.
_WIDE_TYPE, _WIDE_FLAGS = "SkylakeX", ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_TRIED_DTYPE, _TRIAL_S, _TRIAL_TIMEOUT_S = "float32", 0.4, 5.0


def measure(python: str, budget_s: float = BUDGET_S, machine: Machine | None = None) -> Measured:
    """Everything that can be found out in about `budget_s` seconds with the libraries of `python`.

    The environment is ours. Nothing is raised for what is missing or fails: `problems` has a
    sentence for each. The result is kept for recordings (`keeping`).
    """
    # What a process may use is not what we may.
    machine = machine if machine and machine.process is None else machines.facts()
    begin = time.monotonic()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _DROPPED and not name.startswith("LAYERSCOPE_")
    }
    found = Findings()
    task = _task(machine, budget_s, found.problems)
    found.problems += _run_to_the_end(python, task, environment, found, begin + budget_s)
    tried = _try_core_type(python, environment, machine, found, begin + budget_s)
    measured = Measured(
        python=python,
        taken_utc=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - begin, 3),
        libraries=tuple(found.libraries.values()),
        rates=tuple(found.rates.values()),
        bandwidths=tuple(found.bandwidths.values()),
        problems=tuple(dict.fromkeys(found.problems)),
        tried=tried,
        variables={name: environment[name] for name in CAPS if environment.get(name)},
    )
    kept_measurements.keep(machine, measured)
    return measured


def _task(machine: Machine, budget_s: float, problems: list[str]) -> dict[str, object]:
    """What to do with how much memory; sentences about what there is too little of."""
    threads = _thread_counts(machine.cpu)
    left = memory.available_bytes()
    caches = last_caches_bytes(machine.cpu.allowed)
    array = min(max(_ARRAY_BYTES, 2 * caches), left // 4, _MOST_BYTES)
    if array < caches:
        problems.append(
            f"memory bandwidth is partly that of caches: they hold {caches >> 20} MiB, and only "
            f"arrays of {array >> 20} MiB were possible; give the control group more memory"
        )
    skip = []
    if left < _TORCH_BYTES:
        skip.append("import torch")
        problems.append(
            f"only {left >> 20} MiB of memory are left here, so PyTorch was not measured; give the "
            "control group more"
        )
    return {
        "seconds": budget_s,
        "threads": threads,
        "array_bytes": array,
        "skip": skip,
        "only": [],
        "matrix_bytes": min(max(_MATRIX_BYTES, threads[-1] * _MATRIX_BYTES_A_CPU), left // 4),
    }


def _thread_counts(cpu: Cpu) -> list[int]:
    """One, one for each core that may be used, and all that are granted: hardware threads share a
    core's arithmetic.
    """
    most = threads_granted(cpu)
    cores = len(cpu.allowed_cores) or (
        cpu.cores or most if len(cpu.allowed) == len(cpu.online) else most
    )
    return sorted({1, min(cores, most), most})


def last_caches_bytes(allowed: tuple[int, ...], root: Path = Path("/")) -> int:
    """All last-level caches of these CPUs together; 0 where the kernel does not report."""
    found: dict[str, int] = {}
    for number in allowed:
        caches = sorted((root / f"sys/devices/system/cpu/cpu{number}/cache").glob("index[0-9]*"))
        for cache in reversed(caches):
            size = files.text(cache / "size")
            if (
                files.text(cache / "type") != "Instruction"
                and size[-1:] in ("K", "M")
                and size[:-1].isdigit()
            ):
                shared = files.text(cache / "shared_cpu_list") or str(number)
                found[shared] = int(size[:-1]) << (10 if size[-1] == "K" else 20)
                break
    return sum(found.values())


def _run_to_the_end(
    python: str,
    task: dict[str, object],
    environment: Mapping[str, str],
    found: Findings,
    end_s: float,
) -> list[str]:
    """Run the script, again without what it died of; problems with the process itself."""
    problems: list[str] = []
    skip = [str(name) for name in task["skip"]] if isinstance(task["skip"], list) else []
    for _ in range(1 + _RESTARTS):
        left = end_s - time.monotonic()
        if left < 1.0:
            break
        why = _run(
            python,
            {**task, "seconds": left * 0.85, "skip": skip},
            environment,
            found,
            left + GRACE_S,
        )
        if not why:
            break
        problems.append(why)
        if not found.doing or found.doing in skip:
            break
        skip.append(found.doing)
        # What is known already is not found out again.
        task = {**task, "array_bytes": 0} if found.bandwidths else task
    return problems


def _run(
    python: str,
    task: Mapping[str, object],
    environment: Mapping[str, str],
    found: Findings,
    timeout_s: float,
) -> str:
    """Run the script once; why it did not come to its end, empty where it did."""
    command = [python, "-B", "-u", str(SCRIPT), json.dumps(task)]  # -B: it writes nothing
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
        out, errors, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, errors, status = late.stdout or b"", late.stderr or b"", None
    except OSError as error:
        return f"{python} cannot be started: {error.strerror}; name the Python of the program"
    found.read(out.decode("utf-8", "replace"))
    if found.has_ended:
        return ""
    doing = f" at: {found.doing}" if found.doing else ""
    if status is None:
        return (
            f"measuring was stopped after {timeout_s:.0f} s{doing}; try again when the machine "
            "is less busy"
        )
    if status < 0:
        with contextlib.suppress(ValueError):
            return (
                f"measuring was ended by {signal.Signals(-status).name}{doing}; that library "
                "does not work here"
            )
        return f"measuring was ended by signal {-status}{doing}"
    last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return (
        f"measuring ended with status {status}{doing}: {last or 'it did not say why'}; it needs "
        "Python 3.8 or later"
    )


def _try_core_type(
    python: str, environment: Mapping[str, str], machine: Machine, found: Findings, end_s: float
) -> tuple[Tried, ...]:
    """Whether NumPy's OpenBLAS is faster as another type of core, where it takes the CPU for a
    narrower one.
    """
    library = found.libraries.get("OpenBLAS of NumPy")
    is_asked = library and is_narrow(library, machine) and not environment.get(CORE_TYPE)
    if not (library and is_asked and set(_WIDE_FLAGS) <= set(machine.isa.flags)):
        return ()
    best: dict[str, Rate] = {}
    for name in (_WIDE_TYPE, "", "", _WIDE_TYPE):  # in turns, because others use the machine too
        if time.monotonic() > end_s:
            break
        rate, chose = _trial(python, {**environment, CORE_TYPE: name} if name else environment)
        if name and chose.lower() != name.lower():
            return ()  # this build does not have it
        if rate:
            best[name] = max(rate, best.get(name, rate), key=lambda one: one.gflop_per_s)
    if len(best) < 2:
        return ()
    rates = best[_WIDE_TYPE].gflop_per_s, best[""].gflop_per_s
    return (Tried(library.name, CORE_TYPE, _WIDE_TYPE, _TRIED_DTYPE, *rates),)


def _trial(python: str, environment: Mapping[str, str]) -> tuple[Rate | None, str]:
    """What NumPy's product reaches with one thread in this environment, and what its OpenBLAS took
    the CPU for.
    """
    found = Findings()
    task = {
        "seconds": _TRIAL_S,
        "threads": [1],
        "array_bytes": 0,
        "matrix_bytes": 32 << 20,
        "only": ["numpy"],
        "skip": ["a product of NumPy, float64, 1 threads"],
    }
    _run(python, task, environment, found, _TRIAL_TIMEOUT_S)
    rate = next((rate for rate in found.rates.values() if rate.dtype == _TRIED_DTYPE), None)
    return rate, next(
        (one.chose for one in found.libraries.values() if one.name.startswith("OpenBLAS")), ""
    )


def hardware_width_bits(machine: Machine) -> int | None:
    """Of the widest vectors that the CPU has for float32; None where it does not say."""
    return next(
        (
            one.width_bits
            for one in machine.isa.support
            if one.dtype == "float32" and one.how == NATIVE
        ),
        None,
    )


def is_narrow(library: Library, machine: Machine) -> bool:
    """Whether it says that it uses narrower vectors than the hardware has."""
    hardware_bits = hardware_width_bits(machine)
    if not hardware_bits or not library.width_bits:
        return False
    return library.width_bits < hardware_bits
