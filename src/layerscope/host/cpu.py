"""How many CPUs a program may use here, and what kind they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def facts(root: Path = Path("/")) -> dict[str, Any]:
    """`cpus` (affinity and cgroup quota respected), `cpus_online`, `cpu_model`, `memory_bytes`, `kernel`."""
    cpuinfo = _read(root / "proc/cpuinfo")
    model = next((line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "")
    memory = next(
        (line.split()[1] for line in _read(root / "proc/meminfo").splitlines() if line.startswith("MemTotal")), "0"
    )
    return {
        "cpus": usable_cpus(root),
        "cpus_online": os.cpu_count() or 1,
        "cpu_model": model,
        "memory_bytes": int(memory) * 1024,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
    }


def usable_cpus(root: Path = Path("/")) -> float:
    """CPUs this process may use: its affinity mask, cut by a cgroup quota (v2 `cpu.max`, v1 `cpu.cfs_quota_us`)."""
    allowed: float = len(os.sched_getaffinity(0))
    quota = _quota(root)
    return min(allowed, quota) if quota else allowed


def _quota(root: Path) -> float | None:
    limit = _read(root / "sys/fs/cgroup/cpu.max").split()
    if len(limit) == 2 and limit[0] != "max":
        return int(limit[0]) / int(limit[1])
    quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip()
    period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").strip()
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
