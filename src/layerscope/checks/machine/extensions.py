"""The vector extensions of x86: the CPU has it, the kernel allows it, oneDNN uses it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.machine.instructions import X86
from layerscope.checks.phrases import listed
from layerscope.host.isa import ABSENT, AVX512, NO_KERNEL, REFUSED, USABLE, Isa
from layerscope.host.isa import UNSEEN as AMX_UNSEEN
from layerscope.model.measured import ONEDNN, Measured

ORDER = 41

# The parts of AVX-512 that kernels of libraries need together (Skylake-SP and later, Zen 4 and
# later).
_NEEDED = {flag: flag.removeprefix("avx512").upper() for flag in AVX512}
_VIRTUAL = "let the hypervisor pass the CPU on as it is (libvirt: cpu mode='host-passthrough')"
_NO_TILES = {
    NO_KERNEL: ("the CPU has it, but the kernel does not support it", "run Linux 5.16 or newer"),
    REFUSED: (
        "the CPU has it, but the kernel gives programs no permission for its tiles",
        "allow arch_prctl in the seccomp profile of the container",
    ),
}
_LOST_TILES = "Products in bfloat16 and int8 run at a fraction of what the hardware can."
_HELD_BACK = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


class _Extension(Struct, frozen=True):
    """`words`: one of them is in what oneDNN says it uses, where it uses this; `without`: what
    follows if it is not there.
    """

    code: str
    name: str
    flags: tuple[str, ...]
    words: tuple[str, ...]
    without: str


_AVX2 = _Extension(
    "avx2",
    "AVX2",
    ("avx2", "fma"),
    ("AVX2", "AVX-512", "AVX512", "AVX10"),
    "Fast kernels need AVX2 and FMA: what runs in their place is several times slower.",
)
_AVX512 = _Extension("avx512", "AVX-512", AVX512, ("AVX-512", "AVX512", "AVX10"), "")
_MORE = (
    _Extension(
        "avx512.vnni",
        "AVX-512 VNNI",
        ("avx512_vnni",),
        ("DL Boost", "AVX10"),
        "Products in int8 take other instructions, which do half as much or less.",
    ),
    _Extension(
        "avx512.bf16",
        "AVX-512 BF16",
        ("avx512_bf16",),
        ("bfloat16", "AVX10"),
        "Outside of AMX, products in bfloat16 are computed by way of float32.",
    ),
    _Extension(
        "avx512.fp16",
        "AVX-512 FP16",
        ("avx512_fp16",),
        ("float16, ", "AVX10"),
        "Products in float16 are computed by way of float32.",
    ),
)
_AMX = _Extension(
    "amx",
    "AMX",
    ("amx_tile", "amx_bf16", "amx_int8"),
    ("AMX",),
    "Products in bfloat16 and int8 run on vectors, which do a fraction of what tiles do.",
)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement for each; none where the kernel lists no instructions, or on other
    architectures.
    """
    isa = seen.machine.isa
    if not isa.flags or isa.architecture not in X86:
        return
    yield _judged(_AVX2, seen)
    yield _avx512(seen)
    for extension in _MORE:
        yield _judged(extension, seen)
    yield _amx(seen)


def _judged(extension: _Extension, seen: Seen) -> Check:
    """Of one that programs can use wherever the kernel lists it."""
    if seen.machine.isa.lacks(extension.flags):
        return _absent(extension, seen)
    return _there(extension, seen, "the CPU has it and the kernel allows it")


def _absent(extension: _Extension, seen: Seen) -> Check:
    """Neither the processor nor its hypervisor offers it, as far as the kernel lists what they
    do.
    """
    code, name = extension.code, extension.name
    if seen.machine.cpu.is_virtual:
        what = "absent: the hypervisor of this virtual machine does not offer it"
        return Check(
            code, name, NOTE, what, extension.without, f"if the CPU of the host has it, {_VIRTUAL}"
        )
    return Check(
        code,
        name,
        NOTE,
        "absent: the CPU does not have it, or it is switched off",
        extension.without,
    )


def _there(extension: _Extension, seen: Seen, what: str) -> Check:
    """Of one that programs can use: whether oneDNN does, where it has been asked."""
    code, name = extension.code, extension.name
    chosen = _chosen_by_onednn(seen.measured)
    if seen.measured is None or not chosen:
        return Check(code, name, OK, what)
    if any(word in chosen for word in extension.words):
        return Check(code, name, OK, f"{what}; oneDNN uses it")
    caps = [cap for cap in _HELD_BACK if cap in seen.measured.variables]
    held = (
        f", held back by {listed(f'{cap}={seen.measured.variables[cap]}' for cap in caps)}"
        * bool(caps)
    )
    remedy = f"unset {' '.join(caps)}" if caps else "a newer PyTorch may have kernels for it"
    lost = (
        "Convolutions, and products in bfloat16 and int8, run in kernels for narrower instructions."
    )
    return Check(code, name, NOTE, f"{what}; oneDNN does not use it{held}", lost, remedy)


def _chosen_by_onednn(measured: Measured | None) -> str:
    """The instruction set that it says it uses."""
    if measured is None:
        return ""
    for library in measured.libraries:
        if library.name == ONEDNN:
            return library.chose
    return ""


def _avx512(seen: Seen) -> Check:
    """All that is needed, some of it, or nothing; only the first is a success."""
    isa = seen.machine.isa
    there = [name for flag, name in _NEEDED.items() if flag in isa.flags]
    missing = [_NEEDED[flag] for flag in isa.lacks(AVX512)]
    if not there:
        found = _absent(_AVX512, seen)
        return Check(
            found.code, found.subject, found.state, found.evidence, _narrower(isa), found.remedy
        )
    if missing:
        are = "is" if len(missing) == 1 else "are"
        evidence = f"only {listed(there)}: {listed(missing)} {are} missing"
        remedy = _VIRTUAL if seen.machine.cpu.is_virtual else ""
        return Check(
            "avx512",
            "AVX-512",
            WARNING,
            evidence,
            f"Libraries need {listed(_NEEDED.values())} together and fall back to AVX2.",
            remedy,
        )
    return _there(_AVX512, seen, f"the CPU has {listed(there)} and the kernel allows it")


def _narrower(isa: Isa) -> str:
    best = "SSE"
    share = "a quarter"
    for name in ("AVX", "AVX2"):
        if name.lower() in isa.flags:
            best, share = name, "half"
    return f"Kernels for {best} run, which are {share} as wide."


def _amx(seen: Seen) -> Check:
    state = seen.machine.isa.amx
    if state == ABSENT:
        return _absent(_AMX, seen)
    if state == USABLE:
        return _there(_AMX, seen, "the CPU has it and the kernel gives programs its tiles")
    if state == AMX_UNSEEN:
        return Check(
            "amx", "AMX", UNSEEN, "whether the system lets programs use its tiles is not known"
        )
    what, remedy = _NO_TILES.get(state, (f"the CPU has it, but: {state}", ""))
    return Check("amx", "AMX", WARNING, what, _LOST_TILES, remedy)
