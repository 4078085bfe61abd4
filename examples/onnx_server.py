"""Answers requests by a small convolutional network of ONNX Runtime, which it makes itself.

Needs onnx, onnxruntime and numpy. Nothing is downloaded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

LAYERS, CHANNELS, SIZE, CLASSES = 4, 16, 32, 10


def make_model(path: Path) -> None:
    """Write a network of convolutions with a classifier to `path`."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    inner, channels = "image", 3
    for layer in range(LAYERS):
        shape = (CHANNELS, channels, 3, 3)
        weight = rng.normal(size=shape).astype(np.float32) * 0.1
        weights.append(numpy_helper.from_array(weight, f"conv{layer}.weight"))
        inputs = [inner, f"conv{layer}.weight"]
        nodes.append(helper.make_node("Conv", inputs, [f"conv{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Sigmoid", [f"conv{layer}"], [f"active{layer}"]))
        inner, channels = f"active{layer}", CHANNELS
    weight = rng.normal(size=(CHANNELS, CLASSES)).astype(np.float32)
    weights.append(numpy_helper.from_array(weight, "classes"))
    nodes.append(helper.make_node("GlobalAveragePool", [inner], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "classes"], ["scores"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "server", [image], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, path)


def serve(session: ort.InferenceSession, requests: int) -> int:
    """Answer `requests` requests, every fourth with four images; how many were of class 0."""
    rng = np.random.default_rng(1)
    found = 0
    for request in range(requests):
        images = 4 if request % 4 == 3 else 1
        batch = rng.normal(size=(images, 3, SIZE, SIZE)).astype(np.float32)
        (scores,) = session.run(None, {"image": batch})
        found += int((scores.argmax(axis=1) == 0).sum())
    return found


def main() -> None:
    """Make the model, and serve with it."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.onnx"
        make_model(path)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        print(f"{requests} requests, class 0 in {serve(session, requests)} images")


if __name__ == "__main__":
    main()
