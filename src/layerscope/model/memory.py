"""Names for blocks of memory: where they lie and which library allocated them."""

from __future__ import annotations

CPU = "cpu"
TENSOR = "tensor"
NUMPY = "numpy"
ALLOCATORS = (TENSOR, NUMPY)
