"""The instructions for each data type: whether fast kernels can run here."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.host.isa import ABSENT, AVX512, EMULATED, NO_KERNEL, REFUSED, USABLE, Isa, Support
from layerscope.host.isa import UNSEEN as AMX_UNSEEN
from layerscope.platform.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.platform.phrases import listed

ORDER = 40

_X86 = ("x86_64", "i686", "amd64")
# Of AVX-512, in the words of the kernel and of the vendor: the parts that kernels of libraries need together
# (Skylake-SP and later, Zen 4 and later), and those that speed up narrower types.
_NEEDED = {flag: flag.removeprefix("avx512").upper() for flag in AVX512}
_MORE = {"avx512_vnni": "VNNI", "avx512_bf16": "BF16", "avx512_fp16": "FP16"}
_VIRTUAL = "let the hypervisor pass the CPU on as it is (libvirt: cpu mode='host-passthrough')"
# What speed rests on first.
_DTYPES = ("float32", "bfloat16", "float16", "int8", "float64")
_SLOW = {
    "bfloat16": "Autocast to bfloat16 saves memory but no arithmetic: it may be slower than float32.",
    "float16": "Slower than float32 on this CPU: bfloat16 or float32 is the better choice.",
    "int8": "Quantized models gain less than their four times smaller weights promise.",
    "float32": "Fast kernels need AVX2 and FMA: what runs in their place is several times slower.",
    "float64": "Products in float64 are slow.",
}
_NO_TILES = {
    NO_KERNEL: ("the CPU has it, but the kernel does not support it", "run Linux 5.16 or newer"),
    REFUSED: (
        "the CPU has it, but the kernel gives programs no permission for its tiles",
        "allow arch_prctl in the seccomp profile of the container",
    ),
}
# Of x86, what the slowest of the fast kernels for float32 needs.
_FAST = ("avx2", "fma")


def check(seen: Seen) -> Iterator[Check]:
    """One judgement for each data type, and of AVX-512 and AMX which parts are there."""
    isa = seen.machine.isa
    if not isa.flags:
        where = f" for {isa.architecture}" if isa.architecture else ""
        yield Check("instructions", "instructions", UNSEEN, f"the kernel does not list them{where}")
        return
    given = {support.dtype: support for support in isa.support}
    for name in (*(name for name in _DTYPES if name in given), *(name for name in given if name not in _DTYPES)):
        yield _dtype(given[name], isa)
    if isa.architecture in _X86:
        yield _avx512(isa, seen.machine.cpu.is_virtual)
    if isa.amx != ABSENT and isa.architecture in _X86:
        yield _amx(isa.amx)


def _dtype(support: Support, isa: Isa) -> Check:
    code, name = f"dtype.{support.dtype}", support.dtype
    bits = f", {support.width_bits} bits at a time" if support.width_bits else ""
    if support.how == ABSENT:
        return Check(code, name, WARNING if name == "float32" else NOTE, "absent", _SLOW.get(name, ""))
    if support.how == EMULATED:
        return Check(code, name, NOTE, f"emulated: {support.by}{bits}", _SLOW.get(name, ""))
    if name == "float32" and isa.architecture in _X86 and isa.lacks(_FAST):
        return Check(code, name, WARNING, f"native: {support.by}{bits}", _SLOW[name])
    return Check(code, name, OK, f"native: {support.by}{bits}")


def _avx512(isa: Isa, is_virtual: bool) -> Check:
    """All that is needed, some of it, or nothing; only the first is a success."""
    parts = _NEEDED | _MORE
    there = [name for flag, name in parts.items() if flag in isa.flags]
    missing = [_NEEDED[flag] for flag in isa.lacks(AVX512)]
    lacking = [name for flag, name in _MORE.items() if flag not in isa.flags]
    remedy = _VIRTUAL if is_virtual else ""
    if not there:
        best = next((name for name in ("AVX2", "AVX") if name.lower() in isa.flags), "SSE")
        lost = f"Kernels for {best} run, which are {'a quarter' if best == 'SSE' else 'half'} as wide."
        return Check("avx512", "AVX-512", NOTE, "absent", lost, remedy and f"if the CPU of the host has it, {remedy}")
    if missing:
        are = "is" if len(missing) == 1 else "are"
        return Check(
            "avx512", "AVX-512", WARNING, f"only {listed(there)}: {listed(missing)} {are} missing",
            f"Libraries need {listed(_NEEDED.values())} together and fall back to AVX2.", remedy,
        )  # fmt: skip
    without = f"; not {listed(lacking, 'or')}" if lacking else ""
    return Check("avx512", "AVX-512", OK, f"{listed(there)}{without}")


def _amx(state: str) -> Check:
    if state == USABLE:
        return Check("amx", "AMX", OK, "usable: the system gives programs its tiles")
    if state == AMX_UNSEEN:
        return Check("amx", "AMX", UNSEEN, "whether the system gives programs its tiles is not told")
    what, remedy = _NO_TILES.get(state, (f"the CPU has it, but: {state}", ""))
    lost = "Products in bfloat16 and int8 run at a fraction of what the hardware can."
    return Check("amx", "AMX", WARNING, what, lost, remedy)
