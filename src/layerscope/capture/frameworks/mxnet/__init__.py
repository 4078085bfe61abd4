"""MXNet: its operators come from its engine, whose own calls are redirected to the agent
(native/frameworks/mxnet).
"""

from __future__ import annotations

from layerscope.capture.adapter import Adapter
from layerscope.capture.frameworks.mxnet.builds import MxnetProber

# The last one is for hybridized networks, whatever the other two say.
_PER_OPERATOR = {
    "MXNET_EXEC_BULK_EXEC_TRAIN": "0",
    "MXNET_EXEC_BULK_EXEC_INFERENCE": "0",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "0",
}
ADAPTER = Adapter(prober=MxnetProber, per_operator=_PER_OPERATOR)
