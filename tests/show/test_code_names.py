"""Names of functions of C++ in the terminal."""

from __future__ import annotations

import pytest

from layerscope.analyse.result import ResultColumn, of_rows
from layerscope.show import csv_output, terminal
from layerscope.show.code_names import short_name, short_names

GEMM = "void gemm<float, Tile<128, 64>, (Kind)2>(float const*, std::pair<int, int>)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (GEMM, "gemm<...>"),
        ("void at::(anonymous namespace)::add<int>(int)::{lambda(int)#1}",
         "at::(anonymous namespace)::add<...>::{lambda(int)#1}"),
        ("outer<int>::inner<float>(float*)", "outer<...>::inner<...>"),
        ("call<decltype(f)->int>(int)", "call<...>"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("at::cuda::spin_kernel(long)", "at::cuda::spin_kernel(long)"),
        ("<lambda>", "<lambda>"),
        ("cut<float, Tile<128", "cut<float, Tile<128"),
        ("", ""),
    ],
)  # fmt: skip
def test_templates_are_cut(name: str, short: str) -> None:
    assert short_name(name) == short


def test_each_name_of_a_sequence_is_cut() -> None:
    assert short_names(f"memset | {GEMM} | bias<int>(int)") == "memset | gemm<...> | bias<...>"


def test_the_terminal_cuts_and_a_file_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    columns = (ResultColumn("name", "string", "", "its name", code=True),)
    result = of_rows("kernels", columns, [(GEMM,), (None,)])
    csv_output.write(result, sys.stdout)

    assert GEMM in capsys.readouterr().out
    assert terminal.text(result).splitlines()[1] == "gemm<...>"
