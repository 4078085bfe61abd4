"""What the numbers of CUPTI mean, named as torch.profiler names them. Used by `nsys` and `nvprof`."""

from __future__ import annotations

import re

# Kinds of copies and of memory, and of what waits (CUpti_ActivityMemcpyKind,
# CUpti_ActivityMemoryKind, CUpti_ActivitySynchronizationType).
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device Static",
    7: "Managed Static",
}
SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_VERSION = re.compile(r"(_ptsz|_ptds)?_v\d+$")


def called(name: str) -> str:
    """A function without the version of its interface."""
    return _VERSION.sub("", name)


def copy_name(kind: int, source: int, target: int) -> str:
    """What a copy is called; the numbers are those of CUPTI."""
    what = COPY_KINDS.get(kind, "Unknown")
    ends = [MEMORY_KINDS.get(one, "Unknown") for one in (source, target)]
    return f"Memcpy {what} ({' -> '.join(ends)})"


def fill_name(kind: int) -> str:
    """What a fill of memory is called."""
    return f"Memset ({MEMORY_KINDS.get(kind, 'Unknown')})"
