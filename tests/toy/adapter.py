"""toynet: any build of it can be recorded. A test makes this the `__init__.py` of
`capture/frameworks/toynet`.
"""

from __future__ import annotations

from layerscope.capture.adapter import Adapter

ADAPTER = Adapter()
