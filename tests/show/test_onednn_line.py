"""What the summary says of oneDNN: its version and instruction set, what it was used for, and what
keeps it off.
"""

from __future__ import annotations

import pytest

from layerscope.analyse.onednn import onednn
from layerscope.show.onednn_line import use_of, version_of
from tests.recordings import MS, Recording
from tests.show.test_summary import text_of

ON = {"onednn": "3.12.0", "onednn_isa": "Intel AVX2"}
BOTH_OFF = {**ON, "onednn_switch": "convolutions off, products off"}
CALLED = ("aten::convolution", "aten::_slow_conv2d_forward", "aten::addmm")


@pytest.mark.parametrize(
    ("isa", "short"),
    [
        ("Intel SSE4.1", "SSE4.1"),
        ("Intel AVX2", "AVX2"),
        ("Intel AVX2 with Intel DL Boost", "AVX2 VNNI"),
        ("Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions", "AVX-512"),
        ("Intel AVX-512 with Intel DL Boost and bfloat16 support", "AVX-512 BF16"),
        ("Intel AVX10.1 and Intel AMX with bfloat16 and 8-bit integer support", "AVX10.1 AMX"),
        ("AArch64 (with Advanced SIMD & floating-point)", ""),
    ],
)
def test_the_instruction_set_is_named_in_short(isa: str, short: str) -> None:
    found = onednn({"onednn": "3.12.0", "onednn_isa": isa}, (), ())
    assert found is not None
    assert version_of(found) == f"oneDNN 3.12.0 {short}".rstrip()


def test_a_cap_of_the_instruction_set_is_named_with_it() -> None:
    found = onednn({**ON, "onednn_max_cpu_isa": "AVX2"}, (), ())
    assert found is not None
    assert version_of(found) == "oneDNN 3.12.0 AVX2 (ONEDNN_MAX_CPU_ISA=AVX2)"


@pytest.mark.parametrize(
    ("versions", "called", "kinds", "said"),
    [
        (ON, ("aten::relu",), (), ""),
        (
            ON, ("aten::convolution", "aten::addmm"), ("convolutions (oneDNN)", "matrix products (MKL)"),
            "oneDNN: used for convolutions; not used for matrix products (MKL was).",
        ),
        (
            ON, ("aten::mkldnn_convolution",), (), "oneDNN: used for convolutions.",
        ),
        (
            ON, ("aten::convolution", "aten::cudnn_convolution_transpose", "aten::mm"), (),
            "oneDNN: not used for convolutions (cuDNN was).",
        ),
        (
            ON, ("aten::mm",), ("matrix products (MKL)", "matrix products (oneDNN)"),
            "oneDNN: used for some matrix products (MKL for the rest).",
        ),
        (
            BOTH_OFF, CALLED, (),
            "oneDNN: not used for convolutions and matrix products; torch.backends.mkldnn.enabled was False when "
            "they were first called.",
        ),
        (
            {**ON, "onednn_switch": "convolutions at times, products on"}, ("aten::mkldnn_convolution",), (),
            "oneDNN: used for convolutions; torch.backends.mkldnn.enabled was False some of the times that they were "
            "first called.",
        ),
        (
            {"onednn": "none"}, CALLED, (),
            "oneDNN is not in this build of PyTorch: other code does convolutions and matrix products.",
        ),
    ],
)  # fmt: skip
def test_it_is_said_what_it_was_used_for(
    versions: dict[str, str], called: tuple[str, ...], kinds: tuple[str, ...], said: str
) -> None:
    found = onednn({"torch": "2.13.0", **versions}, called, kinds)
    assert found is not None
    assert use_of(found) == said


def test_the_summary_says_that_onednn_was_switched_off() -> None:
    recording = Recording()
    recording.add_span("aten::convolution", 0, 5 * MS)
    recording.add_span("aten::mm", 5 * MS, 5 * MS)
    versions = {"python": "3.11.7", "torch": "2.13.0+cpu", **BOTH_OFF}

    lines = text_of(recording, versions=versions).splitlines()

    assert "Python 3.11.7, torch 2.13.0+cpu, oneDNN 3.12.0 AVX2" in lines[0]
    assert lines[1].startswith(
        "oneDNN: not used for convolutions and matrix products; torch.backends.mkldnn.enabled"
    )
