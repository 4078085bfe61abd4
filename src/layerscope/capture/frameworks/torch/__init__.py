"""PyTorch: its operators come from RecordFunction, whose layout is probed for each build."""

from __future__ import annotations

from layerscope.capture.adapter import Adapter
from layerscope.capture.frameworks.torch.prober import TorchProber
from layerscope.capture.frameworks.torch.shapes import prepare

ADAPTER = Adapter(prober=TorchProber, prepare_shapes=prepare)
