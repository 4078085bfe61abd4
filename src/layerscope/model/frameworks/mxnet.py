"""MXNet: how it names its operators."""

from __future__ import annotations

from layerscope.model.framework import Anchor, Framework, PublicNames

_PUBLIC = PublicNames(libraries=("libmxnet",), packages=("mxnet",))

FRAMEWORK = Framework(
    name="mxnet",
    title="MXNet",
    anchors=(
        Anchor("native", r"mxnet::engine::ThreadedEngine::ExecuteOprBlock", "operators"),
        Anchor("native", r"mxnet::engine::NaiveEngine::PushAsync", "operators"),
    ),
    environment=("MXNET_", "DMLC_"),
    public=_PUBLIC,
)
