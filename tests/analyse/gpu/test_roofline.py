"""What operators computed on GPUs, how fast, and whether on tensor cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.gpu.arithmetic import arithmetic
from layerscope.analyse.gpu.matrix_operators import shares
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording
from tests.corpus import corpus

TENSOR_CORES, ORDINARY = "sm80_xmma_gemm_f16f16_f16f32", "ampere_sgemm_128x64_nn"


def arguments(
    *shapes: list[int] | None, dtype: str = "float16", concrete: list[str] | None = None
) -> str:
    told: dict[str, Any] = {"shapes": shapes, "dtypes": [dtype] * len(shapes)}
    if concrete is not None:
        told["Concrete Inputs"] = concrete
    return json.dumps(told)


CONVOLUTION = ([8, 16, 32, 32], [64, 16, 3, 3], None)
# Of each of 8 * 64 * 16 * 16 results 16 * 3 * 3 products and sums.
CONVOLVED = 2 * 8 * 64 * 16 * 16 * 16 * 9
IMAGE, WEIGHT, OUT = 8 * 16 * 32 * 32, 64 * 16 * 9, 8 * 64 * 16 * 16


@pytest.mark.parametrize(
    ("name", "told", "answer"),
    [
        ("aten::mm", arguments([2, 3], [3, 5]), (60, 2 * (6 + 15 + 10))),
        ("aten::addmm", arguments([5], [2, 3], [3, 5], dtype="float32"), (60, 4 * 31)),
        ("aten::bmm", arguments([7, 2, 3], [7, 3, 5]), (420, 7 * 62)),
        (
            "aten::cudnn_convolution",
            arguments(*CONVOLUTION, concrete=["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"]),
            (CONVOLVED, 2 * (IMAGE + WEIGHT + OUT)),
        ),
        (
            "aten::convolution_backward",
            arguments([8, 64, 16, 16], *CONVOLUTION[:2], concrete=[""] * 3 + ["[True, True, False]"]),
            (2 * CONVOLVED, 4 * (IMAGE + WEIGHT + OUT)),
        ),
        ("aten::cudnn_convolution", arguments(*CONVOLUTION), None),
        ("aten::mm", arguments([2, 3], [4, 5]), None),
        ("aten::mm", arguments([2, 3], None), None),
        ("aten::mm", '{"shapes": null, "dtypes": null}', None),
        ("aten::mm", None, None),
        ("aten::add", arguments([2, 3], [2, 3]), None),
    ],
)  # fmt: skip
def test_operations_and_bytes_follow_from_shapes(
    name: str, told: str | None, answer: tuple[int, int] | None
) -> None:
    assert arithmetic(name, told) == answer


def two_products(folder: Path) -> Reader:
    """Products of the same sizes, one on tensor cores, one not; an addition; and one that tells no
    shapes.
    """
    gpu = GpuRecording()
    recording = gpu.recording
    recording.rows["args"] = [{"args": 0, "json": arguments([1000, 1000], [1000, 1000])}]
    kernels = ((TENSOR_CORES, 10, 0), (ORDINARY, 30, 0), (ORDINARY, 20, None))
    for number, (kernel, lasted_us, args) in enumerate(kernels):
        about = {} if args is None else {"args": args}
        operator = recording.add_span("aten::mm", number * 100 * US, 50 * US, **about)
        gpu.work(number * 100, lasted_us, kernel, operator=operator)
    operator = recording.add_span("aten::add", 900 * US, 50 * US)
    gpu.work(900, 40, "add_kernel", operator=operator)
    return gpu.reader(folder)


def test_rates_are_of_the_calls_whose_shapes_are_told(tmp_path: Path) -> None:
    with two_products(tmp_path) as reader:
        result = tables.build(reader, "roofline")
        (row,) = result.data.to_pylist()

    assert (row["name"], row["calls"], row["gpu_ns"]) == ("aten::mm", 3, 60 * US)
    assert row["flop"] == 2 * 2 * 10**9
    assert row["flop_rate"] == 4e9 / (40 * US)
    assert row["bytes"] == 2 * 3 * 2 * 10**6
    assert row["byte_rate"] == 12e6 / (40 * US)
    assert row["intensity"] == pytest.approx(4e9 / 12e6)
    assert row["tensor_core_share"] == pytest.approx(1 / 6)
    assert (
        "launched 60 % of the time of kernels; kernels that use them have 10 %" in result.notes[0]
    )


def test_each_shape_has_a_row(tmp_path: Path) -> None:
    with two_products(tmp_path) as reader:
        rows = tables.build(reader, "roofline", "shape").data.to_pylist()

    assert [(row["shape"], row["calls"]) for row in rows] == [
        ("float16[1000, 1000], float16[1000, 1000]", 2),
        ("not known", 1),
    ]
    assert rows[1]["flop_rate"] is None


@pytest.mark.parametrize("workers", [0, 4])
def test_what_is_eligible_is_what_tensorboard_says(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = json.loads(corpus("golden/oracles/torch_tb_profiler_0.4.3.json").read_text())["results"]
    folder = corpus(f"tb_plugin_resnet50/resnet50_num_workers_{workers}")
    (path,) = folder.iterdir()
    plugin = told[f"tb_plugin_resnet50/{folder.name}/{path.name}"]
    with Reader(open_run(path)) as reader:
        eligible, used = shares(reader)

    assert eligible == pytest.approx(plugin["tc_eligible_kernel_ratio"])
    assert used == plugin["tc_used_ratio"]
