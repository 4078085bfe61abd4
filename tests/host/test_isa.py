"""Instruction sets from flags, and what the kernel has to say about AMX."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from layerscope.host import cpuinfo, isa

AMX_FLAGS = "fpu lm avx512f avx512bw f16c amx_tile amx_bf16 amx_int8"


def x86(root: Path, flags: str, release: str = "6.1.0", model: int = 143) -> Path:
    (root / "proc/sys/kernel").mkdir(parents=True, exist_ok=True)
    (root / "proc/cpuinfo").write_text(
        f"processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : {model}\nflags : {flags}\n"
    )
    (root / "proc/sys/kernel/osrelease").write_text(release)
    return root


@pytest.mark.parametrize(
    ("flags", "release", "model", "amx"),
    [
        (AMX_FLAGS, "6.1.0", 143, isa.USABLE),
        (AMX_FLAGS, "5.16.0", 143, isa.USABLE),
        (AMX_FLAGS, "5.15.0-100-generic", 143, isa.NO_KERNEL),
        (AMX_FLAGS, "5.10.0", 143, isa.NO_KERNEL),
        (AMX_FLAGS, "4.18.0-513.el8.x86_64", 143, isa.USABLE),
        (AMX_FLAGS, "", 143, isa.USABLE),
        ("lm avx512f", "5.10.0", 143, isa.NO_KERNEL),
        ("lm avx512f", "5.10.0", 106, isa.ABSENT),
        ("lm avx512f", "6.1.0", 143, isa.ABSENT),  # switched off, by clearcpuid or in the firmware
        ("lm avx512f hypervisor", "5.10.0", 143, isa.UNSEEN),
        ("", "6.1.0", 143, isa.UNSEEN),
    ],
)
def test_amx_needs_the_processor_and_the_kernel(
    tmp_path: Path, flags: str, release: str, model: int, amx: str
) -> None:
    assert isa.facts(x86(tmp_path, flags, release, model)).amx == amx


@pytest.mark.parametrize(
    ("flags", "release", "model", "added"),
    [
        ("lm avx512bw", "5.10.0-28-amd64", 143, ("avx512_fp16", "avx_vnni")),
        ("lm avx512bw", "5.10.0", 173, ("avx512_fp16", "avx_vnni")),
        ("lm avx512bw avx512_fp16", "5.11.0", 143, ("avx_vnni",)),
        ("lm avx512bw", "5.12.0", 143, ()),  # switched off
        ("lm avx512bw", "4.18.0-193.el8.x86_64", 143, ()),
        ("lm avx512bw", "5.10.0", 106, ()),  # Ice Lake
        ("lm avx512bw hypervisor", "5.10.0", 143, ()),
        ("lm avx2", "5.10.0", 143, ()),
        ("lm avx512bw", "", 143, ()),
    ],
)
def test_a_kernel_that_is_too_old_to_list_a_flag_does_not_take_it_away(
    tmp_path: Path, flags: str, release: str, model: int, added: tuple[str, ...]
) -> None:
    found = isa.facts(x86(tmp_path, flags, release, model))

    assert found.flags == tuple(sorted({*flags.split(), *added}))
    types = {one.dtype: one.by for one in found.support}
    assert ("AVX-512 FP16" in types["float16"]) == ("avx512_fp16" in found.flags)


@pytest.mark.parametrize(
    ("supported", "request_status", "amx"),
    [
        (1 << 18, 0, isa.USABLE),
        (1 << 17, 0, isa.NO_KERNEL),
        (None, 0, isa.NO_KERNEL),
        (1 << 18, -1, isa.REFUSED),
    ],
)
def test_the_kernel_of_this_machine_is_asked_for_the_tiles(
    supported: int | None, request_status: int, amx: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Libc:
        @staticmethod
        def syscall(number: int, code: int, argument: object) -> int:
            calls.append((number, code))
            if code == 0x1021:
                if supported is None:
                    return -1
                ctypes.cast(argument, ctypes.POINTER(ctypes.c_uint64))[0] = supported  # type: ignore[arg-type]
                return 0
            return request_status

    info = cpuinfo.Cpuinfo(
        {"vendor_id": "GenuineIntel", "flags": "lm"}, tuple(AMX_FLAGS.split()), (0,), 1, 1
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc)
    monkeypatch.setattr(
        isa.files, "text", lambda path: "x86_64" if path.name == "arch" else "6.1.0"
    )
    found = isa.facts(Path("/"), info)

    assert found.amx == amx
    assert {number for number, _ in calls} == {158}
    types = {one.dtype: one for one in found.support}
    assert types["int8"].by.startswith("AMX-INT8") == (amx == isa.USABLE)
    assert found.lacks(isa.AMX) == (() if amx == isa.USABLE else isa.AMX)


@pytest.mark.parametrize(
    ("level", "more"),
    [
        ("", "fpu sse sse2"),
        ("x86-64-v1", "fpu cmov cx8 fxsr mmx syscall sse sse2"),
        ("x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
        ("x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
        ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
    ],
)
def test_the_level_is_the_last_one_without_a_gap(tmp_path: Path, level: str, more: str) -> None:
    every = {
        "x86-64-v1": "fpu cmov cx8 fxsr mmx syscall sse sse2",
        "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
        "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
        "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    }
    below = " ".join(words for name, words in every.items() if name < level)
    assert isa.facts(x86(tmp_path, f"lm {below} {more}")).level == level
    if level > "x86-64-v1":  # without one flag of the level below, what is above does not count
        missing = below.replace("sse2", "").replace("popcnt", "").replace("movbe", "")
        assert isa.facts(x86(tmp_path, f"lm {missing} {more}")).level == ""


def test_flags_that_only_some_cpus_have_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor : 0\nvendor_id : GenuineIntel\nflags : lm sse2 avx2 avx512f\n\n"
        "processor : 1\nvendor_id : GenuineIntel\nflags : lm sse2 avx2\n"
    )
    assert isa.facts(tmp_path).flags == ("avx2", "lm", "sse2")


def test_scalable_vectors_are_as_long_as_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/abi").mkdir(parents=True)
    flags = "asimd sve sve2 svebf16 bf16 sme smef16f32 smeb16f32 smef64f64 smef32f32 smei8i32"
    (tmp_path / "proc/cpuinfo").write_text(
        f"processor : 0\nFeatures : {flags}\nCPU implementer : 0x41\n"
    )
    widths = {one.dtype: (one.by, one.width_bits) for one in isa.facts(tmp_path).support}
    assert widths["float32"] == ("SME, SVE2", None)

    (tmp_path / "proc/sys/abi/sve_default_vector_length").write_text("16\n")
    (tmp_path / "proc/sys/abi/sme_default_vector_length").write_text("64\n")
    widths = {one.dtype: (one.by, one.width_bits) for one in isa.facts(tmp_path).support}
    assert widths["bfloat16"] == ("SME BF16, SVE BF16, ASIMD BF16", 512)
    (tmp_path / "proc/cpuinfo").write_text(
        "processor : 0\nFeatures : asimd sve sve2\nCPU implementer : 0x41\n"
    )
    assert {one.width_bits for one in isa.facts(tmp_path).support} == {128}


def test_of_an_architecture_that_is_not_known_nothing_is_made_up(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\ncpu : POWER9 (raw), altivec supported\n")
    found = isa.facts(tmp_path)

    assert (found.architecture, found.support, found.amx) == ("ppc64le", (), isa.ABSENT)
