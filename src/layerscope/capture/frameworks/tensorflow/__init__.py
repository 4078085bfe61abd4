"""TensorFlow: nothing of its own is recorded, and the recording says what is instead."""

from __future__ import annotations

from layerscope.capture.adapter import Adapter

ADAPTER = Adapter()
