"""What is written on narrow frames of a flame graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.show.flame.labels import fitted, forms


@pytest.mark.parametrize(
    ("label", "shorter"),
    [
        ("<module> (train.py)", ["<module>"]),
        ("Thread.run (threading.py)", ["Thread.run", "run"]),
        (
            "autograd::engine::evaluate_function: ConvolutionBackward0",
            ["ConvolutionBackward0"],
        ),
        (
            "dnnl::impl::cpu::x64::jit_uni<(cpu_isa_t)4, map<int, long>>::execute (libtorch_cpu.so)",
            [
                "dnnl::impl::cpu::x64::jit_uni::execute (libtorch_cpu.so)",
                "dnnl::impl::cpu::x64::jit_uni::execute",
                "impl::cpu::x64::jit_uni::execute",
                "cpu::x64::jit_uni::execute",
                "x64::jit_uni::execute",
                "jit_uni::execute",
                "execute",
            ],
        ),
        ("at::native::(anonymous namespace)::copy", ["native::(anonymous namespace)::copy", "(anonymous namespace)::copy", "copy"]),
        ("Net.layers.0.conv", ["layers.0.conv", "0.conv", "conv"]),
        ("train.py:13", [":13"]),
        ("main", []),
        ("operator<", []),
    ],
)  # fmt: skip
def test_a_label_loses_what_says_least_first(label: str, shorter: list[str]) -> None:
    assert list(forms(label)) == [label, *shorter]


def test_the_longest_form_that_fits_is_written() -> None:
    label = "at::native::conv2d_forward"
    assert fitted(label, 26) == label
    assert fitted(label, 25) == "native::conv2d_forward"
    assert fitted(label, 14) == "conv2d_forward"
    assert fitted(label, 7) == "conv2d…"


@given(st.text("ab:<>(). ~", max_size=40), st.integers(3, 40))
def test_what_is_written_fits(label: str, room: int) -> None:
    lengths = [len(form) for form in forms(label)]
    assert lengths == sorted(set(lengths), reverse=True)
    assert len(fitted(label, room)) <= room
