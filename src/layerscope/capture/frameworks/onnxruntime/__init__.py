"""ONNX Runtime: each run of a session is recorded by the agent; what its nodes do comes from the
profiler of the session, of its first runs.
"""

from __future__ import annotations

from layerscope.capture.adapter import Adapter

ADAPTER = Adapter()
