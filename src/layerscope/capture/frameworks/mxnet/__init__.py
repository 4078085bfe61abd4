"""MXNet: its operators come from its engine, whose own calls are redirected to the agent
(native/frameworks/mxnet).
"""

from __future__ import annotations

from layerscope.capture.adapter import Adapter
from layerscope.capture.frameworks.mxnet.builds import MxnetProber

ADAPTER = Adapter(prober=MxnetProber)
