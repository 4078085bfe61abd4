"""Variables that have no effect, hold a library back, or do something else than they seem to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct

from layerscope.checks import rights
from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.machine.allocator import replacements
from layerscope.checks.phrases import listed

ORDER = 90

_PYTORCH = "libtorch_cpu"


class _Reader(Struct, frozen=True):
    """Who reads the variables that `names` matches: a library with one of `words` in its path."""

    names: str
    who: str
    words: tuple[str, ...]


_READERS = (
    _Reader(r"KMP_.*", "the OpenMP runtimes of Intel and LLVM", ("libiomp5", "libomp")),
    _Reader(r"GOMP_CPU_AFFINITY", "OpenMP runtimes", ("libgomp", "libiomp5", "libomp")),
    _Reader(r"GOMP_(?!CPU_AFFINITY).*", "GNU's OpenMP runtime", ("libgomp",)),
    _Reader(r"MKL_.*", "MKL", ("libmkl_", _PYTORCH)),
    _Reader(r"OPENBLAS_.*", "OpenBLAS", ("openblas",)),
    _Reader(r"BLIS_.*", "BLIS", ("libblis",)),
    _Reader(
        r"(ONE)?DNNL?_.*",
        "oneDNN",
        ("libdnnl", _PYTORCH, "libtensorflow", "onnxruntime", "libmxnet"),
    ),
    _Reader(r"ATEN_.*", "PyTorch", (_PYTORCH,)),
    _Reader(r"TF_.*", "TensorFlow", ("tensorflow",)),
    _Reader(r"MXNET_.*", "MXNet", ("libmxnet",)),
    _Reader(r"NPY_.*", "NumPy", ("_multiarray_umath",)),
    _Reader(r"NUMEXPR_.*", "NumExpr", ("numexpr",)),
    _Reader(r"MALLOC_CONF", "jemalloc", ("jemalloc",)),
    _Reader(r"VECLIB_.*", "Apple's Accelerate", ()),
    _Reader(r"TORCH_NUM_THREADS", "nothing that is known", ()),
)
_GLIBC = re.compile(r"MALLOC_(ARENA|MMAP|TRIM|TOP)_.*")
_TUNABLES, _OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."
# Set for all libraries that may come, by habit, and harmless where one does not.
_BY_HABIT = re.compile(r".*_(NUM|MAXIMUM)_THREADS")
# The same in words that every OpenMP runtime understands.
_PORTABLE = {
    ("KMP_BLOCKTIME", "0"): "export OMP_WAIT_POLICY=passive",
    ("KMP_BLOCKTIME", "1"): "export OMP_WAIT_POLICY=passive",
    ("KMP_BLOCKTIME", "infinite"): "export OMP_WAIT_POLICY=active",
}

# What each step of a cap adds, as the kernel calls it; a cap holds back whatever stands behind it
# and the CPU has.
_AVX512 = "avx512bw"
_ONEDNN = (
    ("SSE41", ""),
    ("AVX", "avx"),
    ("AVX2", "avx2"),
    ("AVX2_VNNI", "avx_vnni"),
    ("AVX2_VNNI_2", "avx_ne_convert"),
    ("AVX512_CORE", _AVX512),
    ("AVX512_CORE_VNNI", "avx512_vnni"),
    ("AVX512_CORE_BF16", "avx512_bf16"),
    ("AVX512_CORE_FP16", "avx512_fp16"),
    ("AVX512_CORE_AMX", "amx_tile"),
    ("AVX512_CORE_AMX_FP16", "amx_fp16"),
)
_ATEN = (("default", ""), ("avx2", "avx2"), ("avx512", _AVX512))
_MKL = (
    ("SSE4_2", ""),
    ("AVX", "avx"),
    ("AVX2", "avx2"),
    ("AVX512", _AVX512),
    ("AVX512_E1", "avx512_vnni"),
)
_CAPS = {
    "ONEDNN_MAX_CPU_ISA": ("oneDNN", _ONEDNN),
    "DNNL_MAX_CPU_ISA": ("oneDNN", _ONEDNN),
    "ATEN_CPU_CAPABILITY": ("PyTorch", _ATEN),
    "MKL_ENABLE_INSTRUCTIONS": ("MKL", _MKL),
}
# OpenBLAS's names of cores (its TargetList) whose kernels use AVX-512, and those that use AVX2.
_CORES_512 = ("skylakex", "cooperlake", "sapphirerapids")
_CORES_256 = ("haswell", "zen", "excavator")


def check(seen: Seen) -> Iterator[Check]:
    """One judgement for each group of variables that is not what it seems; one in all where there
    is none.
    """
    process = seen.machine.process
    hidden = [word for word in process.unread if word.startswith("environ")] if process else []
    if hidden:
        yield Check("variables", "variables", UNSEEN, hidden[0], "", rights.see_process())
        return
    found = [
        *_unread(seen),
        *_of_malloc(seen),
        *_caps(seen),
        *_blas(seen),
        *_numbers(seen.variables),
        *_binding(seen),
    ]
    yield from found
    if not found:
        names = sorted(seen.variables)
        what = listed(names) if len(names) < 4 else f"{len(names)} that concern speed are set"
        yield Check(
            "variables", "variables", OK, what if names else "none that concerns speed is set"
        )


def _unread(seen: Seen) -> Iterator[Check]:
    """Without a process only what depends on what is preloaded, or on nothing."""
    process = seen.machine.process
    libraries = (
        seen.variables.get("LD_PRELOAD", "") if process is None else " ".join(process.libraries)
    )
    if process is not None and not process.libraries:
        return
    for reader in _READERS:
        names = [name for name in sorted(seen.variables) if re.fullmatch(reader.names, name)]
        if not names:
            continue
        if any(word in libraries for word in reader.words):
            continue
        if process is None and reader.words and not names[0].startswith("KMP_"):
            continue
        are = "are"
        lost = "They have no effect."
        if len(names) == 1:
            are = "is"
            lost = "It has no effect."
        habit = all(_BY_HABIT.fullmatch(name) for name in names)
        what = f"{listed(names)} {are} read by {reader.who}"
        if reader.words:
            what += " alone"
        if process is not None and reader.words:
            what += ", which the process has not loaded"
        if process is None and reader.words:
            lost = f"{lost[:-1]} in PyTorch as pip installs it, which brings GNU's runtime."
        state = WARNING
        if process is None or habit:
            state = NOTE
        yield Check(
            f"variables.{names[0].lower()}",
            "variables",
            state,
            what,
            lost,
            _instead(seen.variables, names),
        )


def _of_malloc(seen: Seen) -> Iterator[Check]:
    """Variables of glibc's malloc where another one serves the program."""
    names = [name for name in sorted(seen.variables) if _GLIBC.fullmatch(name)]
    others = replacements(seen.machine.process.libraries) if seen.machine.process else []
    if names and others:
        are = "is" if len(names) == 1 else "are"
        what = f"{listed(names)} {are} read by glibc's malloc alone, and {listed(others)} serves"
        lost = "It has no effect." if len(names) == 1 else "They have no effect."
        yield Check(
            f"variables.{names[0].lower()}",
            "variables",
            WARNING,
            what,
            lost,
            f"unset {' '.join(names)}",
        )
    # The loader reads other tunables of the same variable, whoever serves malloc.
    parts = [part for part in seen.variables.get(_TUNABLES, "").split(":") if part]
    lost_parts = [part for part in parts if part.startswith(_OF_MALLOC)]
    if lost_parts and others:
        kept = ":".join(part for part in parts if part not in lost_parts)
        what = (
            f"{_TUNABLES} has {listed(lost_parts)} for glibc's malloc, and {listed(others)} serves"
        )
        yield Check(
            "variables.glibc_tunables",
            "variables",
            WARNING,
            what,
            "It has no effect.",
            f"export {_TUNABLES}={shlex.quote(kept)}" if kept else f"unset {_TUNABLES}",
        )


def _instead(variables: Mapping[str, str], names: list[str]) -> str:
    """What to set instead, or the line that clears them away."""
    commands = [f"unset {' '.join(names)}"]
    for name in names:
        portable = _PORTABLE.get((name, variables[name]))
        if portable is not None:
            commands.append(portable)
    if "KMP_AFFINITY" in names and "OMP_PROC_BIND" not in variables:
        commands.append("export OMP_PROC_BIND=close")
    return "; ".join(commands)


def _caps(seen: Seen) -> Iterator[Check]:
    flags = set(seen.machine.isa.flags)
    for name, (library, steps) in _CAPS.items():
        value = seen.variables.get(name, "")
        words = [word.lower() for word, _ in steps]
        chosen = value.lower()
        if chosen not in words:
            continue
        place = words.index(chosen)
        lost = [flag for _, flag in steps[place + 1 :] if flag in flags]
        if lost:
            yield Check(
                f"variables.{name.lower()}",
                "variables",
                WARNING,
                f"{name}={value}",
                f"{library} leaves unused what this CPU has: {listed(lost)}.",
                f"unset {name}",
            )


def _blas(seen: Seen) -> Iterator[Check]:
    """Variables of OpenBLAS and NumPy that choose kernels by other words."""
    flags = {*seen.machine.isa.flags}
    core, off = (
        seen.variables.get(name, "") for name in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
    )
    best = _CORES_512 if _AVX512 in flags else (*_CORES_512, *_CORES_256)
    if core and "avx2" in flags and core.lower() not in best:
        yield Check(
            "variables.openblas_coretype",
            "variables",
            WARNING,
            f"OPENBLAS_CORETYPE={core}",
            "OpenBLAS uses the kernels of an older CPU; this one has "
            f"{'AVX-512' if _AVX512 in flags else 'AVX2'}.",
            "unset OPENBLAS_CORETYPE",
        )
    if off.strip():
        yield Check(
            "variables.npy_disable_cpu_features",
            "variables",
            WARNING,
            f"NPY_DISABLE_CPU_FEATURES={off}",
            "NumPy leaves these instructions unused.",
            "unset NPY_DISABLE_CPU_FEATURES",
        )


def _numbers(variables: Mapping[str, str]) -> Iterator[Check]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        value = variables.get(name)
        words = [] if value is None else value.split(",")
        if any(not word.strip().isdecimal() or int(word) == 0 for word in words):
            yield Check(
                f"variables.{name.lower()}",
                "variables",
                WARNING,
                f"{name}={value!r} is no number of threads",
                "Runtimes ignore it, some without a word.",
                f"unset {name}",
            )


def _binding(seen: Seen) -> Iterator[Check]:
    """OpenMP's binding, which reaches further than OpenMP."""
    value = seen.variables.get("OMP_PROC_BIND", "").lower()
    if not value or value == "false":
        return
    allowed, online = len(seen.machine.cpu.allowed), len(seen.machine.cpu.online)
    what = f"OMP_PROC_BIND={value}"
    if 0 < allowed < online:
        yield Check(
            "variables.omp_proc_bind",
            "variables",
            WARNING,
            f"{what}, with {allowed} of {online} CPUs allowed",
            "Every program with these CPUs binds its first threads to the same ones, and they take "
            "turns there.",
            "unset OMP_PROC_BIND",
        )
    else:
        yield Check(
            "variables.omp_proc_bind",
            "variables",
            NOTE,
            what,
            "It binds the main thread too, and what that starts (loader workers, threads) stays on "
            "its CPU.",
            "unset OMP_PROC_BIND",
        )
