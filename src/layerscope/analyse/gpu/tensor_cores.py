"""Which kernels multiply on tensor cores, and which operators could have them do so.

A kernel says it by its name: the shape or the name of the instruction (`s16816`, `hmma`), the
generation of a library that uses nothing else (`xmma`, `tensorop`, `nvjet`, attention in one
kernel), matrix instructions of AMD (`_MI16x16`). An operator is eligible if it multiplies matrices
or convolves, whatever its type of data: so the profiler plugin of TensorBoard has defined it.
"""

from __future__ import annotations

_INSTRUCTIONS = r"(^|[^0-9])[a-z]*(884|1688|16816|8816|16832)([^0-9]|$)"
_WORDS = r"[himdq]mma|wgmma|xmma|tensorop|nvjet|flash_(fwd|bwd)|fmha|_mi[0-9]+x[0-9]+"
# What XMMA compiles for ordinary units.
_NOT = r"_ffma|simt"


def on_tensor_cores(name: str) -> str:
    """SQL for whether the kernel called `name`, an expression, uses them."""
    is_one = f"regexp_matches({name}, '{_INSTRUCTIONS}|{_WORDS}', 'i')"
    return f"({is_one} AND NOT regexp_matches({name}, '{_NOT}', 'i'))"


_MULTIPLYING = (
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "chain_matmul", "linear",
    "matmul", "mm", "mv", "linalg_multi_dot", "prelu",
)  # fmt: skip
_CONVOLVING = r"(_|cudnn_|miopen_|thnn_|mkldnn_)?conv(olution|_tbc|(_transpose)?[123]d)?\w*"
_ATTENDING = r"_?(scaled_dot_product|flash|efficient|cudnn)_\w*attention\w*"


def is_eligible(name: str) -> str:
    """SQL for whether the operator called `name`, an expression, could use them."""
    words = "|".join((*_MULTIPLYING, _CONVOLVING, _ATTENDING))
    return f"regexp_full_match({name}, '\\w+::(_scaled_|_)?({words})')"
