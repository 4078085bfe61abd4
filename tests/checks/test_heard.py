"""What libraries print about themselves, of several versions, between our own lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layerscope.checks.measured_output import Findings, executed
from layerscope.model.measured import Library, Rate

HEADER_3 = """\
onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd69a3df32adcccb623b12cd7baa22)
onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2
onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost and bfloat16 support
onednn_verbose,v1,info,gpu,runtime:none
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,exec_time
"""
HEADER_2 = """\
dnnl_verbose,info,oneDNN v2.6.0 (commit 52b5f107dd9cf10910aaa19cb47f3abf9b349815)
dnnl_verbose,info,cpu,runtime:OpenMP,nthr:8
dnnl_verbose,info,cpu,isa:Intel AVX2
dnnl_verbose,info,gpu,runtime:none
"""
HEADER_ARM = """\
onednn_verbose,v1,info,oneDNN v3.7.1 (commit 8d263e693366ef8db40acc569cc7d8edf644556d)
onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:64
onednn_verbose,v1,info,cpu,isa:AArch64 SVE (256 bits)
"""
MATMUL = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,src:bf16::blocked:ab::f0 "
    "wei:bf16::blocked:ab::f0 dst:bf16::blocked:ab::f0,attr-scratchpad:user,,256x256:256x256,0.208984"
)
STAMPED = "onednn_verbose,v1,primitive,exec,1700.25,cpu,inner_product,brgemm:avx2,forward_inference,src_f32,,,mb8,0.1"
OLD = "dnnl_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:abcd:f0,,alg:direct,mb1,0.02"
REORDER = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:ab::f0,,,256x256,0.03"
NAMELESS = "onednn_verbose,v1,primitive,exec,cpu,gemm_api,,undef,src_s8::blocked:ab:f0,,,256x256:256x256,5.14307"
MKL_AMD = (
    "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture Intel(R) Architecture "
    "processors, Lnx 2.60GHz lp64 gnu_thread"
)
MKL_INTEL = (
    "MKL_VERBOSE Intel(R) MKL 2020.0 Product build 20191125 for Intel(R) 64 architecture Intel(R) Advanced Vector "
    "Extensions 512 (Intel(R) AVX-512) with support of Vector Neural Network Instructions enabled processors, Lnx "
    "2.50GHz lp64 intel_thread"
)
SGEMM = "MKL_VERBOSE SGEMM(N,N,256,256,256,0x7ffd5a534890,0x5,256,0x5,256,0x7,0x5,256) 4.03ms CNR:OFF Dyn:0 NThr:1"


def ours(**about: Any) -> str:
    return f"\nlayerscope {json.dumps(about)}\n"


def product(library: str = "ATen", rate: float = 10.0, name: str = "a") -> dict[str, Any]:
    return {
        "case": name, "library": library, "dtype": "float32", "threads": 1, "size": 256, "gflop_per_s": rate, "runs": 3,
        "spread": 0.0,
    }  # fmt: skip


def after(*parts: str) -> Findings:
    found = Findings()
    found.read("".join(parts))
    return found


@pytest.mark.parametrize(
    ("header", "library"),
    [
        (HEADER_3, Library("oneDNN", "3.12.0", "Intel AVX-512 with Intel DL Boost and bfloat16 support", 512, 2,
                           runtime="OpenMP")),
        (HEADER_2, Library("oneDNN", "2.6.0", "Intel AVX2", 256, 8, runtime="OpenMP")),
        (HEADER_ARM, Library("oneDNN", "3.7.1", "AArch64 SVE (256 bits)", 256, 64, runtime="OpenMP")),
        (MKL_AMD, Library("MKL", "2024.0 Update 2", "Intel Architecture processors", None, runtime="gnu_thread")),
        (MKL_INTEL, Library("MKL", "2020.0", "Intel Advanced Vector Extensions 512 (Intel AVX-512) with support of "
                            "Vector Neural Network Instructions enabled processors", 512, runtime="intel_thread")),
    ],
)  # fmt: skip
def test_libraries_say_who_they_are_before_their_first_line(header: str, library: Library) -> None:
    found = after(ours(begin="asking torch"), header, ours(begin="something else"), ours(end=True))

    assert found.libraries == {library.name: library}
    assert found.has_ended


def test_what_torch_tells_of_them_is_completed() -> None:
    told = {
        "name": "oneDNN",
        "version": "v3",
        "chose": "",
        "threads": None,
        "path": "/lib/torch.so",
        "runtime": "",
    }
    found = after(ours(library=told), HEADER_3)

    assert found.libraries["oneDNN"].path == "/lib/torch.so"
    assert (found.libraries["oneDNN"].version, found.libraries["oneDNN"].width_bits) == (
        "3.12.0",
        512,
    )


@pytest.mark.parametrize(
    ("lines", "who"),
    [
        ([MATMUL], ("oneDNN", "brg_matmul:avx512_core_bf16")), ([STAMPED], ("oneDNN", "brgemm:avx2")),
        ([OLD], ("oneDNN", "jit:avx2")), ([NAMELESS], ("oneDNN", "gemm_api")), ([SGEMM], ("MKL", "SGEMM")),
        ([MATMUL, REORDER], ("oneDNN", "brg_matmul:avx512_core_bf16")), ([REORDER], ("", "")), ([MKL_AMD], ("", "")),
        (HEADER_3.splitlines(), ("", "")), (["somebody else's exec,cpu,matmul,x,"], ("", "")), ([], ("", "")),
    ],
)  # fmt: skip
def test_who_did_a_product_is_heard(lines: list[str], who: tuple[str, str]) -> None:
    assert executed(lines) == who


def test_a_product_belongs_to_who_was_heard_else_to_who_was_named() -> None:
    found = after(
        ours(begin="a"), MATMUL, ours(listened="a"), ours(rate=product(name="a")),
        ours(begin="b"), ours(listened="b"), ours(rate=product(name="b")),
    )  # fmt: skip

    assert {key[0]: rate.by for key, rate in found.rates.items()} == {
        "oneDNN": "brg_matmul:avx512_core_bf16", "ATen": "",
    }  # fmt: skip


def test_of_two_ways_and_two_rounds_the_faster_and_the_later_count() -> None:
    told = [ours(rate=product(rate=rate)) for rate in (10.0, 12.0, 11.0)]
    more = ours(rate={**product(rate=12.0), "runs": 9})

    assert after(*told).rates["ATen", "float32", 1].gflop_per_s == 12.0
    assert after(*told, more).rates["ATen", "float32", 1] == Rate(
        "ATen", "float32", 1, 256, 12.0, 9, 0.0
    )


def test_output_that_is_cut_off_tells_what_was_being_done() -> None:
    found = after(
        ours(begin="import numpy"),
        "noise\n",
        ours(begin="import torch"),
        '\nlayerscope {"rate": {"ca',
    )

    assert (found.doing, found.has_ended, found.rates) == ("import torch", False, {})
    found.read(ours(end=True))
    assert (found.doing, found.has_ended) == ("", True)
