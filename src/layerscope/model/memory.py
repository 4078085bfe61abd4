"""Names for blocks of memory: where they lie and which library allocated them."""

from __future__ import annotations

CPU = "cpu"
TENSOR = "tensor"
NUMPY = "numpy"
OTHER = "other"
# The first are those that the agent records, the others what memray tells apart.
ALLOCATORS = (
    TENSOR,
    NUMPY,
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "mmap",
    "pymalloc_malloc",
    "pymalloc_calloc",
    "pymalloc_realloc",
    OTHER,
)
