"""Which functions begin which spans: those of the framework that the name of a span is of, and of no
other one.
"""

from __future__ import annotations

import pytest

from layerscope.ingest.frames import FRAME_LAYERS, FrameNames
from layerscope.ingest.string_table import StringTable

BEGINNERS = {
    "c10::Dispatcher::callWithDispatchKeySlowPath": ["aten::mm", "mine::operator"],
    "torch::autograd::Node::operator()": ["AddmmBackward0", "torch::autograd::AccumulateGrad"],
    "torch::autograd::Engine::evaluate_function": ["autograd::engine::evaluate_function: Mm"],
    "mxnet::engine::ThreadedEngine::ExecuteOprBlock": [
        "Convolution",
        "_backward_FullyConnected",
        "Convolution,Activation",
        "Scale::pure_python",
    ],
    "mxnet::engine::NaiveEngine::PushAsync": ["BlockGrad"],
    "xla::cpu::ThunkExecutor::TracedExecute": ["dot.4", "broadcast_multiply_fusion"],
}


def anchor(layer: str, name: str) -> int | None:
    """The number that a frame has in common with those that begin it, or that it begins."""
    names = FrameNames(StringTable())
    key = names.new(FRAME_LAYERS.index(layer), name)
    return names.anchors.get(key)


@pytest.mark.parametrize("function", BEGINNERS)
def test_a_function_begins_the_operators_of_its_framework(function: str) -> None:
    begins = anchor("native", function)
    assert begins is not None
    assert {anchor("operators", name) for name in BEGINNERS[function]} == {begins}


def test_calls_of_compiled_functions_are_begun_by_no_function_of_the_library() -> None:
    assert anchor("operators", "PjitFunction(step)") is None
