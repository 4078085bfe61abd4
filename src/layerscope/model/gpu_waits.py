"""Functions in which a thread waits for a GPU: of the runtimes and drivers of CUDA and HIP, which
have names for what they offer and none inside.
"""

from __future__ import annotations

# What waits does so with all that it calls. A copy to memory that is not pinned waits for what was
# launched before it.
WAITS_FOR_GPU = (
    r"^(cu(da)?|hip)(Ctx|Device|Event|Stream|Thread)Synchronize(_v\d+)?(_ptsz)?$|"
    r"^(cu|hip)MemcpyDtoH(Async)?(_v\d+)?(_ptsz)?$"
)
