"""Operators that a program adds to PyTorch are a category of their own in `dumps`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope.model.frameworks import custom_operators
from tests.profiler import library
from tests.quick_torch import WITHOUT_COMPILER

PROGRAM = (
    WITHOUT_COMPILER
    + """
import torch
from layerscope import profiler


class MyAddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


old = torch.library.Library("oldlib", "DEF")
old.define("quad(Tensor x) -> Tensor")
old.impl("quad", lambda x: x * 4, "CPU")
profiler.set_state("run")
for _ in range(3):
    x = torch.ones(2, 3, requires_grad=True)
    MyAddOne.apply(x).sum().backward()
    torch.ops.oldlib.quad(x.detach())
    with torch.profiler.record_function("mine"), torch.profiler.record_function("other::mine"):
        torch.nn.functional.relu(x)
profiler.set_state("stop")
print(profiler.dumps(format="json"))
"""
)


@pytest.mark.slow
def test_functions_of_autograd_and_operators_of_a_library(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    done = library.run(program_python, PROGRAM, tmp_path)

    times = json.loads(done.stdout)["Time"]
    custom = {name: one["Count"] for name, one in times["Custom Operator"].items()}
    assert custom == {"MyAddOne": 3, "MyAddOneBackward": 3, "oldlib::quad": 3}
    assert {"aten::relu", "aten::add", "SumBackward0", "mine", "other::mine"} <= set(
        times["operator"]
    )


def test_what_a_framework_calls_its_own_is_not_the_programs() -> None:
    own = {
        "aten::add",
        "AddBackward0",
        "detach",
        "torch::autograd::AccumulateGrad",
        "autograd::engine::evaluate_function: MyBackward",
        "c10d::allreduce_",
        "quantized::linear",
        "Optimizer.step#SGD.step",
        "DistributedDataParallel.forward",
        "Torch-Compiled Region: 0/0",
    }
    added = {
        "My",
        "MyBackward",
        "lower_case",
        "torchvision::nms",
        "torch::autograd::CppNode<Mine>",
    }

    assert custom_operators(own | added) == added


def test_what_the_code_of_an_operator_calls_belongs_to_it() -> None:
    added = {"my-op::pure_python", "my-op::_plus_scalar", "_backward_my-op::pure_python"}
    added.add("_backward_my-op::CopyCPU2CPU")

    assert custom_operators({"Convolution", "CopyCPU2CPU", *added}) == added
