"""How much memory is left here, for this process and everybody else in its control group."""

from __future__ import annotations

from pathlib import Path

from layerscope.host import cgroup

# Where the kernel does not tell: little enough for any machine.
_UNKNOWN_BYTES = 1_000_000_000


def available_bytes(root: Path = Path("/")) -> int:
    """What can be had without swapping: of the machine, cut by the limit of the control group."""
    here = _meminfo_bytes(root)
    group = cgroup.facts(root)
    if group.memory_limit_bytes is None:
        return here
    return max(0, min(here, group.memory_limit_bytes - group.memory_used_bytes))


def _meminfo_bytes(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return _UNKNOWN_BYTES
    fields = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in fields if len(words) > 1), _UNKNOWN_BYTES)
