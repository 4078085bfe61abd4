"""Which instructions a machine has for the numbers of deep learning, and how much they do.

Flags are those of /proc/cpuinfo: what the processor has and the kernel lets programs use. Two
things it never lists: AMX-FP16 and AVX10 (its AVX-512 parts are listed one by one). An old kernel
lists only what it knows: see _LISTED_SINCE.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from layerscope.host import cpuinfo, files
from layerscope.host.cpuinfo import Cpuinfo

DTYPES = ("float64", "float32", "float16", "bfloat16", "int8")
_PLAIN = ("float64", "float32")  # every vector instruction set has them: the widest says all
NATIVE, EMULATED, ABSENT = "native", "emulated", "absent"
# What AMX is: see Isa.
USABLE, NO_KERNEL, REFUSED, UNSEEN = "usable", "no kernel support", "refused", "unseen"

# Instruction sets that come in parts: one of the parts alone is of little use to a library.
AVX512 = ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
AVX512_VNNI = ("avx512_vnni",)
AMX = ("amx_tile", "amx_bf16", "amx_int8")

# AMX came with Linux 5.16; Red Hat's kernels have it under older numbers.
_AMX_SINCE = (5, 16)
_BACKPORTS = ".el"
# Intel's family 6 (arch/x86/include/asm/intel-family.h): Sapphire, Emerald and Granite Rapids,
# which all have AMX.
_AMX_MODELS = ("143", "207", "173", "174")
# Instructions that all of these have, and since which Linux /proc/cpuinfo lists them (its commits
# e1b35da5e624 and b85a0425d805). They need nothing of the kernel but the registers of AVX-512:
# programs find them by CPUID.
_LISTED_SINCE = {"avx512_fp16": (5, 11), "avx_vnni": (5, 12)}
# x86-64 psABI, "Micro-architecture levels", in the words of /proc/cpuinfo (pni is SSE3, abm has
# LZCNT).
_LEVELS = (
    ("x86-64-v1", {"cmov", "cx8", "fpu", "fxsr", "mmx", "syscall", "sse", "sse2"}),
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
# A row of the following: flags that are all needed, the instructions in the vendor's words, bits.
# Best first.
_Row = tuple[tuple[str, ...], str, int | None]
# Names of instructions, and how many bits they take at a time.
_Instructions = list[tuple[str, int | None]]
_X86_VECTORS: tuple[_Row, ...] = (
    (("avx512f",), "AVX-512", 512),
    (("avx2", "fma"), "AVX2 FMA", 256),
    (("avx",), "AVX", 256),
    (("sse2",), "SSE2", 128),
)
_TILE_BITS = 512  # of a row
_X86_NATIVE: dict[str, tuple[_Row, ...]] = {
    "float64": _X86_VECTORS,
    "float32": _X86_VECTORS,
    "float16": (
        (("amx_tile", "amx_fp16"), "AMX-FP16", _TILE_BITS),
        (("avx512_fp16",), "AVX-512 FP16", 512),
    ),
    "bfloat16": (
        (("amx_tile", "amx_bf16"), "AMX-BF16", _TILE_BITS),
        (("avx512_bf16",), "AVX-512 BF16", 512),
    ),
    "int8": (
        (("amx_tile", "amx_int8"), "AMX-INT8", _TILE_BITS),
        (("avx512_vnni",), "AVX-512 VNNI", 512),
        (("avx_vnni",), "AVX-VNNI", 256),
    ),
}
# By way of another type: F16C to float32, a shift to float32, and products of 16 bits (which may
# saturate).
_X86_EMULATED: dict[str, tuple[_Row, ...]] = {
    "float16": ((("f16c", "avx512f"), "F16C and AVX-512", 512), (("f16c",), "F16C", 256)),
    "bfloat16": ((("avx512f",), "AVX-512", 512), (("avx2",), "AVX2", 256)),
    "int8": (
        (("avx512bw",), "AVX-512BW", 512),
        (("avx2",), "AVX2", 256),
        (("ssse3",), "SSSE3", 128),
    ),
}
_ASIMD_BITS = 128


class Support(msgspec.Struct, frozen=True):
    """How products of one data type are computed: `how` NATIVE, EMULATED (by conversion to another)
    or ABSENT.

    `by`: the instructions, in the words of the vendor ("AVX-512 BF16", "AMX-INT8", "SVE2"), of
    several the best first with commas between them; `width_bits`: of a vector register of the best
    (of AMX: of a tile row), None where the machine does not say.
    """

    dtype: str
    how: str
    by: str
    width_bits: int | None = None


class Isa(msgspec.Struct, frozen=True):
    """`architecture`: x86_64, aarch64, ... `flags`: of /proc/cpuinfo, those all CPUs share, sorted,
    with those that a kernel is too old to list there; empty: not told.

    `support`: one of each of DTYPES; empty where flags are not told, or of an architecture that is
    not known here. `amx`: "usable", "absent", "no kernel support" (needs Linux 5.16), "refused"
    (the kernel gives no permission for the tiles), or "unseen"; `level`: x86-64-v1 to -v4 of the
    psABI, empty elsewhere.
    """

    architecture: str
    flags: tuple[str, ...]
    support: tuple[Support, ...]
    amx: str
    level: str = ""

    def lacks(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `parts` (AVX512, AVX512_VNNI, AMX or other flags) that programs cannot use here.

        Where no flags are told all are lacking: ask `flags` first.
        """
        return tuple(
            p for p in parts if p not in self.flags or (p.startswith("amx_") and self.amx != USABLE)
        )


def facts(root: Path = Path("/"), info: Cpuinfo | None = None) -> Isa:
    """The instructions of the machine below `root`; `info`: what is already known of its
    processor.
    """
    info = info or cpuinfo.read(root)
    architecture = files.text(root / "proc/sys/kernel/arch") or info.machine
    flags = frozenset(info.flags) | _unlisted(root, info)
    if not flags:
        return Isa(architecture, (), (), UNSEEN if architecture in ("x86_64", "") else ABSENT)
    if architecture == "x86_64":
        amx = _amx(root, info)
        usable = flags if amx == USABLE else flags - {"amx_tile"}
        return Isa(architecture, tuple(sorted(flags)), _of_x86(usable), amx, _level(flags))
    return Isa(
        architecture, info.flags, _of_arm(root, flags) if architecture == "aarch64" else (), ABSENT
    )


def _level(flags: AbstractSet[str]) -> str:
    reached = []
    for name, needed in _LEVELS:
        if not needed <= flags:
            break
        reached.append(name)
    return max(reached, default="")


def _of_x86(flags: AbstractSet[str]) -> tuple[Support, ...]:
    native = {dtype: _found(rows, flags) for dtype, rows in _X86_NATIVE.items()}
    for dtype in _PLAIN:
        native[dtype] = native[dtype][:1]
    supports = []
    for dtype in DTYPES:
        rows = _X86_EMULATED.get(dtype, ())
        emulated = _found(rows, flags)
        supports.append(_support(dtype, native[dtype], emulated))
    return tuple(supports)


def _of_arm(root: Path, flags: AbstractSet[str]) -> tuple[Support, ...]:
    """By the names of Linux' "ARM64 ELF hwcaps"; how long vectors are is a setting of the
    kernel.
    """
    sve, sme = (_vector_bits(root, name) for name in ("sve", "sme"))
    matrix = "SME2" if "sme2" in flags else "SME"
    vectors = _found(
        ((("sve2",), "SVE2", sve), (("sve",), "SVE", sve), (("asimd",), "ASIMD", _ASIMD_BITS)),
        flags,
    )[:1]
    rows: dict[str, tuple[_Row, ...]] = {
        "float64": ((("smef64f64",), matrix, sme),),
        "float32": ((("smef32f32",), matrix, sme),),
        "float16": (
            (("smef16f32",), f"{matrix} FP16", sme),
            (("sve",), "SVE FP16", sve),
            (("asimdhp",), "ASIMD FP16", _ASIMD_BITS),
        ),
        "bfloat16": (
            (("smeb16f32",), f"{matrix} BF16", sme),
            (("svebf16",), "SVE BF16", sve),
            (("bf16",), "ASIMD BF16", _ASIMD_BITS),
        ),
        "int8": (
            (("smei8i32",), f"{matrix} INT8", sme),
            (("svei8mm",), "SVE I8MM", sve),
            (("i8mm",), "ASIMD I8MM", _ASIMD_BITS),
            (("sve",), "SVE DotProd", sve),
            (("asimddp",), "ASIMD DotProd", _ASIMD_BITS),
        ),
    }
    found = {dtype: _found(rows[dtype], flags) for dtype in DTYPES}
    return tuple(
        _support(dtype, found[dtype] + vectors, [])
        if dtype in _PLAIN
        else _support(dtype, found[dtype], vectors)
        for dtype in DTYPES
    )


def _found(rows: tuple[_Row, ...], flags: AbstractSet[str]) -> _Instructions:
    found = []
    for needed, name, bits in rows:
        if set(needed) <= flags:
            found.append((name, bits))
    return found


def _support(dtype: str, native: _Instructions, emulated: _Instructions) -> Support:
    if native:
        names = ", ".join(name for name, _ in native)
        _, bits = native[0]
        return Support(dtype, NATIVE, names, bits)
    if emulated:
        name, bits = emulated[0]
        return Support(dtype, EMULATED, name, bits)
    return Support(dtype, ABSENT, "")


def _vector_bits(root: Path, kind: str) -> int | None:
    """What new programs get, which is what the processor has unless somebody made it less."""
    path = root / f"proc/sys/abi/{kind}_default_vector_length"
    length = files.number(path)
    if not length or length < 0:
        return None
    return length * 8


def _is_older(root: Path, version: tuple[int, int]) -> bool:
    """Whether the kernel is older than `version`; not where it may have what that brought all the
    same.
    """
    release = files.text(root / "proc/sys/kernel/osrelease")
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    return (
        found is not None and (int(found[1]), int(found[2])) < version and _BACKPORTS not in release
    )


def _is_amx_model(info: Cpuinfo) -> bool:
    first = info.first
    return (
        first.get("cpu family") == "6"
        and first.get("model") in _AMX_MODELS
        and info.vendor == "GenuineIntel"
    )


def _unlisted(root: Path, info: Cpuinfo) -> AbstractSet[str]:
    """Flags that the kernel does not list because it is older than they are.

    Not without the registers of AVX-512, nor of a virtual machine: its hypervisor may have taken
    them away.
    """
    if not _is_amx_model(info) or "avx512bw" not in info.flags or "hypervisor" in info.flags:
        return frozenset()
    return {flag for flag, version in _LISTED_SINCE.items() if _is_older(root, version)}


def _amx(root: Path, info: Cpuinfo) -> str:
    is_old = _is_older(root, _AMX_SINCE)
    if "amx_tile" not in info.flags:
        # A hypervisor may have taken it away, which an old kernel cannot tell.
        unlisted = UNSEEN if "hypervisor" in info.flags else NO_KERNEL
        return unlisted if is_old and _is_amx_model(info) else ABSENT
    if root == Path("/"):
        return _permission()
    return NO_KERNEL if is_old else USABLE


_ARCH_PRCTL = 158  # the system call on x86-64
# arch/x86/include/uapi/asm/prctl.h, and Documentation/arch/x86/xstate.rst for what they do.
_GET_SUPPORTED, _REQUEST = 0x1021, 0x1023
_TILE_DATA = 18


def _permission() -> str:
    """Ask the kernel for the tiles, as a library does before it uses them: for this process alone,
    until it execs.
    """
    import ctypes  # only here: it takes milliseconds, and most machines have no AMX

    call = ctypes.CDLL(None, use_errno=True).syscall
    supported = ctypes.c_uint64()
    if (
        call(_ARCH_PRCTL, _GET_SUPPORTED, ctypes.byref(supported))
        or not supported.value >> _TILE_DATA & 1
    ):
        return NO_KERNEL
    return REFUSED if call(_ARCH_PRCTL, _REQUEST, ctypes.c_ulong(_TILE_DATA)) else USABLE
