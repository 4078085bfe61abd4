"""The agent tells whether PyTorch may use oneDNN when an operator that could be done by it is first
called.
"""

from __future__ import annotations

import textwrap

import pytest

from layerscope.rawfile import layout
from tests.native.driven import Drive

SWITCH = "switch = ctypes.c_bool.in_dll(torch, 'fake_onednn')\n"


@pytest.mark.parametrize(
    ("lines", "bits", "cap"),
    [
        ("op('aten::relu'); op('aten::mm_like'); op('my::aten::mm', RANGE)", 0, b""),
        ("op('aten::convolution')", layout.ONEDNN_CONVOLUTION_ON, b""),
        (
            "os.environ['ONEDNN_MAX_CPU_ISA'] = 'AVX2'; switch.value = False; op('aten::convolution'); op('aten::mm')",
            layout.ONEDNN_CONVOLUTION_OFF | layout.ONEDNN_PRODUCT_OFF,
            b"AVX2",
        ),
        (
            "op('aten::addmm'); switch.value = False; op('aten::addmm'); op('aten::bmm')",
            layout.ONEDNN_PRODUCT_ON | layout.ONEDNN_PRODUCT_OFF,
            b"",
        ),
        (
            "os.environ['DNNL_MAX_CPU_ISA'] = 'X' * 5000; op('aten::mm')",
            layout.ONEDNN_PRODUCT_ON,
            b"X" * 31,
        ),
    ],
)
def test_the_switch_and_the_cap_are_read_when_they_matter(
    drive: Drive, lines: str, bits: int, cap: bytes
) -> None:
    driven = drive("start()\n" + SWITCH + textwrap.dedent(lines))
    assert (driven.status, driven.stderr) == (0, "")

    page = driven.door.page(driven.pid)
    assert (int(page["onednn"]), bytes(page["onednn_cap"])) == (bits, cap)
