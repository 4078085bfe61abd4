"""How much memory there is and is left here, and how the kernel hands it out."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from layerscope.host import cgroup, files

# Where the kernel does not report: little enough for any machine.
_UNKNOWN_BYTES = 1_000_000_000
# Of `always [madvise] never` the one in use.
_CHOSEN = re.compile(r"\[(\S+)\]")


class MachineMemory(msgspec.Struct, frozen=True):
    """Of the machine, whatever a control group leaves of it. None, or empty: not told.

    `available_bytes`: what can be had without swapping. `thp`: always, madvise or never;
    `thp_defrag` in the kernel's words too. `huge_pages`: how many are set aside (vm.nr_hugepages).
    `overcommit`: vm.overcommit_memory.
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_used_bytes: int | None = None
    thp: str = ""
    thp_defrag: str = ""
    huge_pages: int | None = None
    swappiness: int | None = None
    overcommit: int | None = None


def facts(root: Path = Path("/")) -> MachineMemory:
    """The memory of the machine below `root`."""
    told = files.fields(root / "proc/meminfo")
    total, available, swap, swap_free = (
        files.sized(told.get(name, ""))
        for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    )
    thp = root / "sys/kernel/mm/transparent_hugepage"
    settings = root / "proc/sys/vm"
    return MachineMemory(
        total,
        available,
        swap,
        None if swap is None or swap_free is None else max(0, swap - swap_free),
        _chosen(thp / "enabled"),
        _chosen(thp / "defrag"),
        files.number(settings / "nr_hugepages"),
        files.number(settings / "swappiness"),
        files.number(settings / "overcommit_memory"),
    )


def available_bytes(root: Path = Path("/")) -> int:
    """What can be had without swapping: of the machine, cut by the limit of the control group."""
    here = facts(root).available_bytes
    here = _UNKNOWN_BYTES if here is None else here
    group = cgroup.facts(root)
    if group.memory_limit_bytes is None:
        return here
    left = group.memory_limit_bytes - group.memory_used_bytes
    least = min(here, left)
    return max(0, least)


def _chosen(path: Path) -> str:
    text = files.text(path)
    found = _CHOSEN.search(text)
    if found is None:
        return ""
    return found[1]
