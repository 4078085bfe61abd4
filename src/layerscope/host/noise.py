"""Who else uses this machine: load, pressure, stolen time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from layerscope.host import files

_SOME = re.compile(r"^some avg10=(\S+)", re.MULTILINE)


class Noise(msgspec.Struct, frozen=True):
    """Averages of the kernel. Pressure: percent of time in which some task waited (kernel
    documentation, "PSI").

    `load`: tasks that run or wait for a CPU or a disk, over 1, 5 and 15 minutes; `steal_share`: of
    all CPU time since the machine started, what the hypervisor gave to others; `runnable`: tasks
    that run or wait for a CPU now, the one that asks with them. None: not told.
    """

    load: tuple[float, float, float] | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    steal_share: float | None = None
    runnable: int | None = None


class CpuTime(msgspec.Struct, frozen=True):
    """Of several CPUs together since the machine started, in ticks of the kernel; guests are in
    `total` once.
    """

    total: int
    idle: int
    steal: int


def facts(root: Path = Path("/")) -> Noise:
    """As the kernel tells it at this moment (pressure: over the last 10 s)."""
    words = files.text(root / "proc/loadavg").split()
    load = [value for word in words[:3] if (value := files.decimal(word)) is not None]
    cpu, memory, io = (_pressure(root / "proc/pressure" / name) for name in ("cpu", "memory", "io"))
    time = cpu_time(root)
    return Noise(
        load=(load[0], load[1], load[2]) if len(load) == 3 else None,
        pressure_cpu=cpu,
        pressure_memory=memory,
        pressure_io=io,
        steal_share=time.steal / time.total if time and time.total else None,
        runnable=files.whole(words[3].partition("/")[0]) if len(words) > 3 else None,
    )


def cpu_time(root: Path = Path("/"), cpus: Iterable[int] | None = None) -> CpuTime | None:
    """Of all CPUs, or of these, by /proc/stat (proc(5)); None where it does not tell."""
    wanted = {"cpu"} if cpus is None else {f"cpu{number}" for number in cpus}
    rows = [
        words for line in files.text(root / "proc/stat").splitlines() if (words := line.split())[:1]
    ]
    # user nice system idle iowait irq softirq steal; guest time, after them, is in user already.
    found = [[files.whole(word) for word in words[1:9]] for words in rows if words[0] in wanted]
    if not found or any(
        len(ticks) < 8 or any(value is None or value < 0 for value in ticks) for ticks in found
    ):
        return None
    known = [sum(value or 0 for value in column) for column in zip(*found, strict=True)]
    return CpuTime(sum(known), known[3] + known[4], known[7])


def _pressure(path: Path) -> float | None:
    found = _SOME.search(files.text(path))
    return files.decimal(found[1]) if found else None
