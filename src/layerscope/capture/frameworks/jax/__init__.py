"""JAX: what XLA executes comes from its own profiler, in segments; compilations from what JAX tells
its monitors.
"""

from __future__ import annotations

from layerscope.capture.adapter import Adapter

ADAPTER = Adapter()
