"""What each library uses of the hardware: vectors, kernels, core types. By --measure."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, WARNING, Check, Seen
from layerscope.checks.measurements import CORE_TYPE, hardware_width_bits, is_narrow
from layerscope.checks.phrases import listed
from layerscope.model.measured import (
    ATEN,
    MKL,
    NUMPY,
    ONEDNN,
    TORCH,
    Library,
    Measured,
    Rate,
    times_as_fast,
)
from layerscope.model.units import three_digits

ORDER = 42

# From here on a difference is not the noise of a shared machine.
_FASTER = 1.15
_SLOW_MKL = 0.75
_OPENBLAS = "OpenBLAS"
# Who is held back by which variable.
_CAPS = {
    ATEN: ("ATEN_CPU_CAPABILITY",),
    ONEDNN: ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    MKL: ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    NUMPY: ("NPY_DISABLE_CPU_FEATURES",),
    _OPENBLAS: (CORE_TYPE,),
    "BLIS": ("BLIS_ARCH_TYPE",),
}
# Without products of their own, or named by others.
_ONLY_NAMES = (TORCH, "SciPy", "CUDA")


def check(seen: Seen) -> Iterator[Check]:
    """One judgement a library; none where nothing was measured."""
    if seen.measured is None:
        return
    for library in seen.measured.libraries:
        if library.name not in _ONLY_NAMES:
            yield _judged(seen, seen.measured, library)
    names = {library.name for library in seen.measured.libraries}
    if TORCH in names and ONEDNN not in names:
        yield Check(
            "library.onednn",
            ONEDNN,
            WARNING,
            "this PyTorch is built without it",
            "Convolutions and products in bfloat16 take ATen's own kernels, many times slower.",
            "use a build for this machine whose torch.backends.mkldnn.is_available() is True",
        )
    if any(rate.library == NUMPY for rate in seen.measured.rates):
        yield Check(
            "library.blas",
            NUMPY,
            WARNING,
            "it has no BLAS",
            "Its products are plain loops, many times slower.",
            "pip install --force-reinstall --only-binary :all: numpy",
        )


def _judged(seen: Seen, measured: Measured, library: Library) -> Check:
    kind = library.name.split()[0]
    code = f"library.{kind.lower()}"
    if library.name.endswith("SciPy"):
        code += ".scipy"
    what = _described(library, measured)
    if library.name == MKL and (slow := _slow_mkl(seen, measured)):
        return Check(
            code,
            MKL,
            NOTE,
            f"{what}; {slow}",
            "On a CPU of another vendor MKL takes slower kernels than the CPU could run; Intel has "
            "no supported switch for that. Products of PyTorch in float32 and float64 are "
            "affected, convolutions and bfloat16 are not.",
            "nothing to set; a PyTorch built with another BLAS (OpenBLAS, AOCL) does not have this",
        )
    if not is_narrow(library, seen.machine):
        return Check(code, kind, OK, what)
    hardware = hardware_width_bits(seen.machine)
    lost = f"Its vectors have {library.width_bits} bits, those of the CPU {hardware}."
    variables = measured.variables
    caps = [name for name in _CAPS.get(kind, ()) if name in variables]
    if caps:
        told = listed(f"{name}={variables[name]}" for name in caps)
        held_back = f"{what}, held back by {told}"
        remedy = f"unset {' '.join(caps)}"
        return Check(code, kind, WARNING, held_back, lost, remedy)
    if kind == _OPENBLAS:
        return _openblas(code, library, what, lost, measured)
    if library.name == NUMPY:
        lost = f"{lost} Only its element-wise loops are meant, not its products."
    remedy = "a newer version may have kernels for this CPU"
    return Check(code, kind, NOTE, what, lost, remedy)


def _described(library: Library, measured: Measured) -> str:
    """Who brought it, its own words, and how fast it is."""
    _, _, bringer = library.name.partition(" ")
    owner = f"{bringer}: " if bringer else ""
    words = [library.version] if library.version else []
    if library.chose:
        uses = "takes kernels for" if library.name == MKL else "uses"
        words.append(f"{uses} {library.chose}")
    parts = [" ".join(words) or "it does not report what it uses"]
    rate = _of_float32(measured, library.name)
    if rate:
        speed = three_digits(rate.gflop_per_s)
        parts.append(f"float32 {speed} GFLOP/s with one thread")
    return owner + ", ".join(parts)


def _openblas(code: str, library: Library, what: str, lost: str, measured: Measured) -> Check:
    """Whether another core type was tried, and faster here."""
    tried = next((one for one in measured.tried if one.library == library.name), None)
    if tried is None:
        newer = "a newer OpenBLAS may know this CPU: pip install --upgrade numpy scipy"
        return Check(
            code, _OPENBLAS, NOTE, what, f"{lost} It takes the CPU for an older one.", newer
        )
    times = tried.gflop_per_s / tried.without_gflop_per_s
    rates = " instead of ".join(map(three_digits, (tried.gflop_per_s, tried.without_gflop_per_s)))
    rates += f" GFLOP/s in {tried.dtype}"
    if times < _FASTER:
        return Check(code, _OPENBLAS, OK, f"{what}; as {tried.value} it is no faster: {rates}")
    return Check(
        code,
        _OPENBLAS,
        WARNING,
        what,
        f"It takes the CPU for an older one. As {tried.value} it is {times:.1f} times as fast "
        f"here: {rates}.",
        f"export {tried.variable}={tried.value}",
    )


def _slow_mkl(seen: Seen, measured: Measured) -> str:
    """How much slower it is than oneDNN, where it is not on a CPU of its own vendor; empty where it
    is not slow.
    """
    own, other = _of_float32(measured, MKL), _of_float32(measured, ONEDNN)
    if seen.machine.cpu.vendor == "GenuineIntel" or own is None or other is None:
        return ""
    times = times_as_fast(own, other)
    if times is None or times >= _SLOW_MKL:
        return ""
    return f"oneDNN reaches {three_digits(other.gflop_per_s)} GFLOP/s with the same product"


def _of_float32(measured: Measured, library: str) -> Rate | None:
    """What it reaches with one thread."""
    wanted = (library, "float32", 1)
    return next(
        (rate for rate in measured.rates if (rate.library, rate.dtype, rate.threads) == wanted),
        None,
    )
