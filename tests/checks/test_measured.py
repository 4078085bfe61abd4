"""What was measured: access by number of threads, the judgements on it, and the copy in the
cache.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from layerscope.checks import judge
from layerscope.checks.check import ERROR, NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.vectors import width_bits
from layerscope.host.gpu import Gpu, Gpus
from layerscope.host.numa import Node
from layerscope.model.measured import (
    Bandwidth,
    Library,
    Measured,
    Rate,
    Tried,
    bandwidth,
    fastest,
    peak,
)  # fmt: skip
from tests.checks.machines import GB, changed, machine

LIBRARIES = (
    Library("NumPy", "2.4.6", "X86_V4", 512), Library("OpenBLAS of NumPy", "0.3.31", "SkylakeX", 512, 8),
    Library("PyTorch", "2.13.0", ""), Library("ATen", "2.13.0", "AVX512", 512),
    Library("oneDNN", "3.12.0", "Intel AVX-512 with Intel DL Boost", 512, 8, runtime="OpenMP"),
    Library("MKL", "2024.2", "Intel Architecture processors"),
)  # fmt: skip


def rates(**faster: float) -> tuple[Rate, ...]:
    """Of one thread and of eight; `oneDNN_float32=2` makes that one twice as fast."""
    plain = {
        ("MKL", "float32"): 100.0, ("MKL", "float64"): 50.0, ("oneDNN", "float32"): 110.0,
        ("oneDNN", "bfloat16"): 220.0, ("oneDNN", "float16"): 120.0, ("oneDNN", "int8"): 440.0,
        ("OpenBLAS of NumPy", "float32"): 90.0,
    }  # fmt: skip
    more = {key: faster.get("_".join(key), 1.0) for key in plain}
    return tuple(
        Rate(library, dtype, threads, 1024, rate * gain * more[library, dtype], 20, 0.01)
        for (library, dtype), rate in plain.items() for threads, gain in ((1, 1.0), (8, 7.0))
    )  # fmt: skip


MEASURED = Measured(
    "/opt/venv/bin/python", "2026-11-22T17:00:00Z", 13.0, LIBRARIES, rates(),
    (Bandwidth(1, 20.0, 10, 0.01), Bandwidth(8, 90.0, 10, 0.01)),
)  # fmt: skip


def seen(about: dict[str, Any], **fields: Any) -> Seen:
    return Seen(machine(**about), None, changed(MEASURED, **fields))


def with_library(name: str, **fields: Any) -> tuple[Library, ...]:
    return tuple(changed(one, **fields) if one.name == name else one for one in LIBRARIES)


def without(name: str) -> tuple[Library, ...]:
    return tuple(one for one in LIBRARIES if one.name != name)


def with_threads(gain: float) -> tuple[Rate, ...]:
    """Eight threads that are so many times as fast as one."""
    return tuple(
        changed(one, gflop_per_s=one.gflop_per_s / 7 * gain) if one.threads == 8 else one
        for one in rates()
    )


def with_cores(gain: float, both: float) -> tuple[Rate, ...]:
    """Eight hardware threads of four cores: `gain` with a thread on each, `both` with all."""
    one = [rate for rate in rates() if rate.threads == 1]
    return tuple(
        changed(rate, threads=threads, gflop_per_s=rate.gflop_per_s * times)
        for rate in one for threads, times in ((1, 1.0), (4, gain), (8, both))
    )  # fmt: skip


NARROW = with_library("OpenBLAS of NumPy", chose="Haswell", width_bits=256)
SKYLAKEX = Tried("OpenBLAS of NumPy", "OPENBLAS_CORETYPE", "SkylakeX", "float32", 266.0, 139.0)
AMD = {"cpu": {"vendor": "AuthenticAMD"}}
FAST_ONEDNN = {"rates": rates(oneDNN_float32=2.0)}


@pytest.mark.parametrize(
    ("code", "state", "evidence", "consequence", "remedy", "about", "fields"),
    [
        ("library.aten", OK, "2.13.0 uses AVX512", "", "", {}, {}),
        ("library.aten", NOTE, "2.13.0 uses AVX2", "have 256 bits, those of the CPU 512", "newer version may", {},
         {"libraries": with_library("ATen", chose="AVX2", width_bits=256)}),
        ("library.aten", WARNING, "uses AVX2, held back by ATEN_CPU_CAPABILITY=avx2", "256 bits",
         "unset ATEN_CPU_CAPABILITY", {}, {"libraries": with_library("ATen", chose="AVX2", width_bits=256),
                                           "variables": {"ATEN_CPU_CAPABILITY": "avx2"}}),
        ("library.aten", OK, "2.13.0 uses AVX2", "", "", {"isa": {"support": ()}},
         {"libraries": with_library("ATen", chose="AVX2", width_bits=256)}),
        ("avx512", OK, "and the kernel allows it; oneDNN uses it", "", "", {}, {}),
        ("avx512.vnni", OK, "; oneDNN uses it", "", "", {}, {}),
        ("avx512.bf16", NOTE, "; oneDNN does not use it", "narrower instructions", "a newer PyTorch", {}, {}),
        ("avx512.bf16", OK, "; oneDNN uses it", "", "", {},
         {"libraries": with_library("oneDNN", chose="Intel AVX-512 with Intel DL Boost and bfloat16 support")}),
        ("avx512.fp16", NOTE, "; oneDNN does not use it", "narrower", "a newer PyTorch", {},
         {"libraries": with_library("oneDNN", chose="Intel AVX-512 with Intel DL Boost and bfloat16 support")}),
        ("avx512.fp16", OK, "; oneDNN uses it", "", "", {},
         {"libraries": with_library("oneDNN", chose="Intel AVX10.1 and Intel AMX with bfloat16 and 8-bit integer")}),
        ("avx512", NOTE, "; oneDNN does not use it, held back by ONEDNN_MAX_CPU_ISA=AVX2", "narrower",
         "unset ONEDNN_MAX_CPU_ISA", {}, {"libraries": with_library("oneDNN", chose="Intel AVX2", width_bits=256),
                                          "variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}),
        ("avx512", OK, "and the kernel allows it", "", "", {}, {"libraries": without("oneDNN")}),
        ("library.onednn", OK, "DL Boost, float32 110 GFLOP/s with one thread", "", "", {}, {}),
        ("library.onednn", WARNING, "uses Intel AVX2, float32 110 GFLOP/s with one thread, held back by ONEDNN_MAX_CPU",
         "256 bits", "unset ONEDNN_MAX_CPU_ISA", {},
         {"libraries": with_library("oneDNN", chose="Intel AVX2", width_bits=256),
          "variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}),
        ("library.onednn", WARNING, "built without it", "many times slower", "torch.backends.mkldnn", {},
         {"libraries": without("oneDNN")}),
        ("library.openblas", OK, "of NumPy: 0.3.31 uses SkylakeX, float32 90.0 GFLOP/s", "", "", {}, {}),
        ("library.openblas", WARNING, "uses Haswell", "As SkylakeX it is 1.9 times as fast here: 266 instead of 139",
         "export OPENBLAS_CORETYPE=SkylakeX", {}, {"libraries": NARROW, "tried": (SKYLAKEX,)}),
        ("library.openblas", OK, "uses Haswell, float32 90.0 GFLOP/s with one thread; as SkylakeX it is no faster", "",
         "", {}, {"libraries": NARROW, "tried": (changed(SKYLAKEX, gflop_per_s=141.0),)}),
        ("library.openblas", NOTE, "uses Haswell", "takes the CPU for an older one", "pip install --upgrade", {},
         {"libraries": NARROW}),
        ("library.openblas", WARNING, "held back by OPENBLAS_CORETYPE=Haswell", "256", "unset OPENBLAS_CORETYPE", {},
         {"libraries": NARROW, "variables": {"OPENBLAS_CORETYPE": "Haswell"}}),
        ("library.mkl", OK, "2024.2 takes kernels for Intel Architecture processors", "", "", AMD, {}),
        ("library.mkl", NOTE, "oneDNN reaches 220 GFLOP/s", "Intel has no supported switch", "nothing to set", AMD,
         FAST_ONEDNN),
        ("library.mkl", OK, "2024.2", "", "", {}, FAST_ONEDNN),
        ("library.blas", WARNING, "it has no BLAS", "plain loops", "pip install", {},
         {"rates": (Rate("NumPy", "float32", 1, 256, 1.0, 3, 0.0),)}),
        ("speed.float32", OK, "float32: 110 GFLOP/s with one thread (oneDNN), 770 with 8", "", "", {}, {}),
        ("speed.bfloat16", OK, "1,540 with 8; 2.0 times as fast as float32", "", "", {}, {}),
        ("speed.bfloat16", NOTE, "bfloat16: 22.0 GFLOP/s", "5.00 times slower than in float32", "before you cast", {},
         {"rates": rates(oneDNN_bfloat16=0.1)}),
        ("speed.bfloat16", NOTE, "bfloat16: 77.0 GFLOP/s", "are 30 % slower than", "before you cast", {},
         {"rates": rates(oneDNN_bfloat16=0.35)}),
        ("speed.float16", OK, "; as fast as float32", "", "", {}, {}),
        ("speed.int8", OK, "int8: 440 GOP/s", "", "", {}, {}),
        ("speed.threads", OK, "8 threads give 7.0 times the products of one", "", "", {}, {}),
        ("speed.threads", NOTE, "8 threads give 4.4 times", "fewer threads", "OMP_NUM_THREADS=4", {},
         {"rates": with_threads(4.4)}),
        ("speed.threads", WARNING, "8 threads give 1.1 times", "threads share a core", "OMP_NUM_THREADS=4", {},
         {"rates": with_threads(1.1)}),
        ("speed.threads", OK, "4 threads give 3.8 times the products of one (", "", "", {},
         {"rates": with_cores(3.8, 3.9)}),
        ("speed.threads", OK, "), 8, which share cores, 3.9 times", "", "", {}, {"rates": with_cores(3.8, 3.9)}),
        ("speed.threads", WARNING, "4 threads give 1.9 times", "Other programs use the cores, or the clock falls",
         "export OMP_NUM_THREADS=2", {}, {"rates": with_cores(1.9, 2.0)}),
        ("speed.float32", OK, "110 GFLOP/s with one thread (oneDNN), 418 with 4, 429 with 8", "", "", {},
         {"rates": with_cores(3.8, 3.9)}),
        ("speed.memory", OK, "20.0 GB/s with 1 thread, 90.0 GB/s with 8 threads, read and written", "", "", {}, {}),
        ("speed.steadiness", NOTE, "the better runs of 14 of 14 products differ by up to 40 %", "lower bounds",
         "measure", {}, {"rates": tuple(changed(one, spread=0.4) for one in rates())}),
        ("speed.unmeasured.1", UNSEEN, "SciPy is old", "", "update it", {}, {"problems": ("SciPy is old; update it",)}),
    ],
)  # fmt: skip
def test_each_judgement_on_what_was_measured(
    code: str,
    state: str,
    evidence: str,
    consequence: str,
    remedy: str,
    about: dict[str, Any],
    fields: dict[str, Any],
) -> None:
    found = [check for check in judge.judged(seen(about, **fields)) if check.code == code]

    assert len(found) == 1
    assert (found[0].state, evidence in found[0].evidence) == (state, True), found[0]
    assert consequence in found[0].consequence
    assert remedy in found[0].remedy
    assert bool(found[0].consequence) == (state not in (OK, UNSEEN))
    assert re.fullmatch(r"([^ ].*\.)?", found[0].consequence)
    assert not found[0].evidence.endswith(".")


def in_rounds(library: str, dtype: str, rounds: tuple[float, ...]) -> tuple[Rate, ...]:
    """The rates of all, with these rounds of one of them; the best one is its rate."""
    return tuple(
        changed(one, rounds=rounds if (one.library, one.dtype) == (library, dtype) else (100.0,) * len(rounds),
                gflop_per_s=max(rounds) if (one.library, one.dtype) == (library, dtype) else 100.0)
        if one.threads == 1 else one for one in rates()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rounds", "is_told"),
    [
        ((200.0, 201.0, 202.0, 198.0), True),
        (
            (60.0, 220.0, 61.0, 62.0, 90.0, 59.0),
            False,
        ),  # as fast as it can only once: the machine, not the library
        ((90.0, 260.0, 95.0, 240.0), False),  # varies by more than it differs
        ((110.0, 111.0, 112.0, 109.0), False),  # too little to matter
    ],
)
def test_a_library_is_slower_only_if_it_is_in_most_rounds(
    rounds: tuple[float, ...], is_told: bool
) -> None:
    found = judge.judged(seen(AMD, rates=in_rounds("oneDNN", "float32", rounds)))

    (mkl,) = [check for check in found if check.code == "library.mkl"]
    assert (mkl.state == NOTE, "oneDNN reaches" in mkl.evidence) == (is_told, is_told)


@pytest.mark.parametrize(
    ("rounds", "state", "evidence"),
    [
        ((50.0, 51.0, 49.0, 52.0), NOTE, "bfloat16: 52.0 GFLOP/s"),
        ((200.0, 201.0, 199.0, 202.0), OK, "times as fast as float32"),
        ((40.0, 130.0, 70.0, 110.0), OK, "GFLOP/s with one thread (oneDNN), 1,540 with 8"),
    ],
)
def test_a_narrow_type_is_compared_only_where_it_differs_by_more_than_it_varies(
    rounds: tuple[float, ...], state: str, evidence: str
) -> None:
    found = judge.judged(seen({}, rates=in_rounds("oneDNN", "bfloat16", rounds)))

    (check,) = [check for check in found if check.code == "speed.bfloat16"]
    assert (check.state, evidence in check.evidence) == (state, True), check
    assert ("float32" in check.evidence + check.consequence) == (min(rounds) > 45)


def test_where_nothing_was_measured_nothing_is_judged() -> None:
    about = Seen(machine())
    assert [
        check for check in judge.judged(about) if check.code.startswith(("library.", "speed."))
    ] == []


def test_with_everything_as_it_should_be_all_is_well() -> None:
    found = {check.code: check for check in judge.judged(seen({}))}
    measured = {code for code in found if code.startswith(("library.", "speed."))}
    assert {code: found[code].evidence for code in measured if found[code].state != OK} == {}
    assert {
        "library.aten",
        "library.mkl",
        "speed.int8",
        "speed.float64",
        "speed.memory",
    } <= measured


def test_the_roof_is_that_of_the_fastest_library_and_straight_between_one_thread_and_all() -> None:
    assert fastest(MEASURED, "float32", 1) == Rate("oneDNN", "float32", 1, 1024, 110.0, 20, 0.01)
    assert fastest(MEASURED, "float32", 2) is None
    assert peak(MEASURED, "float32", 1) == pytest.approx(110.0)
    assert peak(MEASURED, "float32", 8) == pytest.approx(770.0)
    assert peak(MEASURED, "float32", 64) == pytest.approx(770.0)
    assert peak(MEASURED, "float32", 3) == pytest.approx(110 + 660 * 2 / 7)
    assert peak(MEASURED, "complex64", 1) is None
    of_cores = changed(MEASURED, rates=with_cores(3.8, 3.9))
    assert [peak(of_cores, "float32", threads) for threads in (4, 6)] == pytest.approx(
        [418.0, 423.5]
    )
    assert [bandwidth(MEASURED, threads) for threads in (1, 8, 9)] == [20.0, 90.0, 90.0]
    assert bandwidth(MEASURED, 2) == pytest.approx(30.0)
    assert bandwidth(changed(MEASURED, bandwidths=()), 2) is None
    assert peak(changed(MEASURED, rates=rates()[1:2]), "float32", 1) == pytest.approx(700.0)


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        ("AVX512", 512), ("AVX512_ICL", 512), ("X86_V4", 512), ("X86_V3", 256), ("X86_V2", 128), ("SkylakeX", 512),
        ("Cooperlake", 512), ("SapphireRapids", 512), ("Haswell", 256), ("Zen", 256), ("zen4", 512), ("Nehalem", 128),
        ("Intel AVX-512 with Intel DL Boost and bfloat16 support", 512), ("Intel AVX2", 256), ("Intel AVX", 256),
        ("Intel SSE4.1", 128), ("Intel AVX10.1/256", 256), ("Intel AVX10.1/512", 512), ("AVX2", 256), ("DEFAULT", 128),
        ("Intel Advanced Vector Extensions 2 (Intel AVX2) enabled processors", 256), ("skx", 512), ("haswell", 256),
        ("AArch64 SVE (256 bits)", 256), ("AArch64 (with Advanced SIMD & floating-point)", 128), ("SVE256", 256),
        ("neoversev1", 256), ("neoversen1", 128), ("ARMV8", 128), ("armv8sve", None), ("A64FX", 512), ("NEON", 128),
        ("Intel Architecture processors", None), ("", None), ("POWER9", 128), ("VSX", 128),
    ],
)  # fmt: skip
def test_words_of_libraries_tell_how_wide_their_vectors_are(word: str, bits: int | None) -> None:
    assert width_bits(word) == bits


NODES = (
    Node(0, (0, 1, 2, 3), 32 * GB, 5 * GB, (10, 21)),
    Node(1, (4, 5, 6, 7), 32 * GB, 30 * GB, (21, 10)),
)
DEVICE = Gpu(
    0, "NVIDIA H100", "0000:07:00.0", 80 << 30, 0, True, True, False, 1980, 1980, (), 16, 16, 5, 5
)  # fmt: skip
GPUS = Gpus((DEVICE,), "550.54", "12.4", counters_need_root=False, peer_memory=True)


def gpu_checks(
    gpus: Gpus, cuda: str = "", variables: dict[str, str] | None = None, **about: Any
) -> dict[str, Check]:
    """By their codes."""
    libraries = (*LIBRARIES, Library("CUDA", cuda, "")) if cuda else LIBRARIES
    here = changed(machine(**about), gpus=gpus)
    measured = changed(MEASURED, libraries=libraries)
    found = [
        one
        for one in judge.judged(Seen(here, None, measured, variables or {}))
        if one.code.startswith("gpu")
    ]
    assert len({one.code for one in found}) == len(found)
    for one in found:
        assert bool(one.consequence) == (one.state not in (OK, UNSEEN))
        assert re.fullmatch(r"([^ ].*\.)?", one.consequence)
    return {one.code: one for one in found}


def test_a_gpu_of_which_all_is_well() -> None:
    found = gpu_checks(GPUS, "12.4")

    assert {code: (one.state, one.evidence) for code, one in found.items()} == {
        "gpu": (OK, "NVIDIA H100 with 80 GiB, driver 550.54, CUDA up to 12.4"),
        "gpu.cuda": (OK, "PyTorch is built for CUDA 12.4, the driver runs up to 12.4"),
    }
    assert gpu_checks(Gpus()) == {}
    two = changed(GPUS, devices=(DEVICE, changed(DEVICE, index=1, bus="0000:08:00.0", mig=True)))
    assert gpu_checks(two)["gpu"].evidence.startswith(
        "1 x NVIDIA H100 with 80 GiB and 1 x NVIDIA H100 with 80 GiB (MIG)"
    )


@pytest.mark.parametrize(
    ("fields", "code", "state", "evidence", "remedy"),
    [
        ({"link_width": 8}, "link", WARNING, "8 of 16 lanes", "slot"),
        ({"link_generation": 3}, "link", WARNING, "generation 3, 5 is possible", "link speed"),
        (
            {"link_generation": 1, "slowed_by": ("idle",)},
            "link",
            OK,
            "saves power while it is idle",
            "",
        ),
        (
            {"link_generation": 1, "clock_mhz": None},
            "link",
            UNSEEN,
            "only saves power is not known",
            "",
        ),
        (
            {"slowed_by": ("heat",), "clock_mhz": 900},
            "clocks",
            WARNING,
            "by heat (900 of 1,980 MHz)",
            "TEMPERATURE",
        ),
        ({"slowed_by": ("idle", "power cap")}, "clocks", NOTE, "slowed by power cap", "-d POWER"),
        (
            {"slowed_by": ("power cap", "power brake")},
            "clocks",
            WARNING,
            "power cap and power brake",
            "-d POWER",
        ),
        (
            {"slowed_by": ("application clocks",)},
            "clocks",
            NOTE,
            "by application clocks",
            "nvidia-smi -rac",
        ),
        ({"persistence": False}, "persistence", NOTE, "persistence is off", "nvidia-persistenced"),
    ],
)
def test_each_judgement_on_a_gpu(
    fields: dict[str, Any], code: str, state: str, evidence: str, remedy: str
) -> None:
    found = gpu_checks(changed(GPUS, devices=(changed(DEVICE, **fields),)))
    one = found[f"gpu.0.{code}"]

    assert one.state == state
    assert evidence in one.evidence
    assert remedy in one.remedy
    assert set(found) == {"gpu", one.code}
    if one.remedy.startswith("sudo "):
        can_be_pasted(one.remedy)


def can_be_pasted(command: str) -> None:
    """Whether a shell understands it, and no words of ours are among its arguments."""
    done = subprocess.run(
        ["bash", "-n", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert ", or " not in command
    assert ", then " not in command


def test_a_gpu_that_is_far_from_the_allowed_cpus() -> None:
    far = gpu_checks(GPUS, numa=NODES, cpu={"allowed": (4, 5)})["gpu.0.node"]

    assert far.state == WARNING
    assert "is at memory node 0; none of the allowed CPUs (4-5) is" in far.evidence
    assert "CPUs 0-3 are near it" in far.consequence
    assert far.remedy == "numactl --cpunodebind=0 --membind=0 python train.py"
    assert "gpu.0.node" not in gpu_checks(GPUS, numa=NODES, cpu={"allowed": (3, 4)})
    assert "gpu.0.node" not in gpu_checks(
        changed(GPUS, devices=(changed(DEVICE, node=None),)), numa=NODES
    )


BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("variables", "judged", "state"),
    [
        ({}, (0, 1, 2), NOTE),
        ({"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}, (1,), WARNING),
        ({"CUDA_VISIBLE_DEVICES": "0", **BY_BUS}, (0,), None),
        ({"CUDA_VISIBLE_DEVICES": "0, 1", **BY_BUS}, (0, 1), WARNING),
        ({"CUDA_VISIBLE_DEVICES": "0,7,1", **BY_BUS}, (0,), None),  # CUDA ends at what is wrong
        ({"CUDA_VISIBLE_DEVICES": "1"}, (0, 1, 2), NOTE),  # which one that is CUDA alone knows
        ({"CUDA_VISIBLE_DEVICES": "GPU-5b"}, (1,), WARNING),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5a,GPU-5b"}, (0, 1), WARNING),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5"}, (), None),  # of which of them?
        ({"CUDA_VISIBLE_DEVICES": "MIG-5b2d"}, (0, 1, 2), NOTE),
        ({"CUDA_VISIBLE_DEVICES": ""}, (), None),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, (), None),
    ],
)
def test_only_gpus_that_the_program_may_use_are_judged(
    variables: dict[str, str], judged: tuple[int, ...], state: str | None
) -> None:
    names = ((0, "07", "GPU-5a1c"), (1, "47", "GPU-5b2d"), (2, "c7", "GPU-5c3e"))
    devices = tuple(
        changed(DEVICE, index=index, bus=f"0000:{bus}:00.0", uuid=uuid, node=min(index, 1), persistence=False,
                link_width=8, slowed_by=("heat",))
        for index, bus, uuid in names
    )  # fmt: skip
    found = gpu_checks(
        changed(GPUS, devices=devices), "", variables, numa=NODES, cpu={"allowed": (0, 1)}
    )

    for code in ("link", "clocks", "persistence"):
        assert [index for index in range(3) if f"gpu.{index}.{code}" in found] == [*judged]
    assert {one.state for code, one in found.items() if code.endswith(".node")} == (
        {state} if state else set()
    )
    assert ("of which CUDA_VISIBLE_DEVICES leaves" in found["gpu"].evidence) == (len(judged) < 3)


def test_of_devices_that_do_not_tell_their_uuid_all_are_judged() -> None:
    for variables in ({"CUDA_VISIBLE_DEVICES": "GPU-5b"}, {"CUDA_VISIBLE_DEVICES": "0"}):
        assert "gpu.0.link" in gpu_checks(
            changed(GPUS, devices=(changed(DEVICE, link_width=8),)), "", variables
        )


def test_where_no_gpu_is_near_each_is_a_warning() -> None:
    two = tuple(
        changed(DEVICE, index=index, bus=f"0000:0{index}:00.0", node=1) for index in range(2)
    )
    found = gpu_checks(changed(GPUS, devices=two), numa=NODES, cpu={"allowed": (0, 1)})

    assert [found[f"gpu.{index}.node"].state for index in range(2)] == [WARNING, WARNING]


def test_counters_for_administrators_come_with_the_line_that_opens_them() -> None:
    found = gpu_checks(changed(GPUS, counters_need_root=True))["gpu.counters"]

    assert found.state == NOTE
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in found.remedy
    can_be_pasted(found.remedy)


@pytest.mark.parametrize(
    ("built", "state"),
    [("12.4", OK), ("11.8", OK), ("12.6", NOTE), ("13.0", ERROR), ("", None), ("12", OK)],
)
def test_a_torch_for_a_newer_cuda_than_the_driver_runs(built: str, state: str | None) -> None:
    found = gpu_checks(GPUS, built)

    assert (found["gpu.cuda"].state if "gpu.cuda" in found else None) == state


def test_a_gpu_that_tells_nothing_is_a_problem_with_its_remedy() -> None:
    hangs = gpu_checks(
        changed(GPUS, problem="the driver does not answer: nothing came; try nvidia-smi")
    )["gpu"]
    absent = gpu_checks(
        Gpus((DEVICE,), problem="an NVIDIA GPU is there, but no driver; install one")
    )["gpu"]

    assert (hangs.state, hangs.remedy) == (ERROR, "try nvidia-smi")
    assert (absent.state, absent.evidence) == (WARNING, "an NVIDIA GPU is there, but no driver")
