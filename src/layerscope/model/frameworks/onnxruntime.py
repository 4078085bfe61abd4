"""ONNX Runtime: operators have the names of ONNX's types, and a run of a session is a request."""

from __future__ import annotations

from layerscope.model.framework import Framework, PublicNames

FRAMEWORK = Framework(
    name="onnxruntime",
    title="ONNX Runtime",
    request_classes=frozenset({"InferenceSession"}),
    environment=("ORT_",),
    public=PublicNames(libraries=("libonnxruntime",), packages=("onnxruntime",)),
)
