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
    pressure = root / "proc/pressure"
    words = files.text(root / "proc/loadavg").split()
    time = cpu_time(root)
    return Noise(
        load=_load(words),
        pressure_cpu=_pressure(pressure / "cpu"),
        pressure_memory=_pressure(pressure / "memory"),
        pressure_io=_pressure(pressure / "io"),
        steal_share=time.steal / time.total if time and time.total else None,
        runnable=_runnable(words),
    )


def _load(words: list[str]) -> tuple[float, float, float] | None:
    """Of one, five and fifteen minutes."""
    known = []
    for word in words[:3]:
        value = files.decimal(word)
        if value is not None:
            known.append(value)
    if len(known) < 3:
        return None
    one, five, fifteen = known
    return one, five, fifteen


def _runnable(words: list[str]) -> int | None:
    """How many threads want to run, by the words of /proc/loadavg."""
    if len(words) < 4:
        return None
    runnable, _, _ = words[3].partition("/")
    return files.whole(runnable)


def cpu_time(root: Path = Path("/"), cpus: Iterable[int] | None = None) -> CpuTime | None:
    """Of all CPUs, or of these, by /proc/stat (proc(5)); None where it does not tell."""
    wanted = {"cpu"}
    if cpus is not None:
        wanted = {f"cpu{number}" for number in cpus}
    total = idle = steal = 0
    is_known = False
    content = files.text(root / "proc/stat")
    for line in content.splitlines():
        words = line.split()
        if not words or words[0] not in wanted:
            continue
        ticks = _ticks(words)
        if ticks is None:
            return None
        is_known = True
        total += sum(ticks)
        idle += ticks[3] + ticks[4]
        steal += ticks[7]
    if not is_known:
        return None
    return CpuTime(total, idle, steal)


def _ticks(words: list[str]) -> list[int] | None:
    """user nice system idle iowait irq softirq steal; guest time, after them, is in user
    already.
    """
    ticks = []
    for word in words[1:9]:
        value = files.whole(word)
        if value is None or value < 0:
            return None
        ticks.append(value)
    return ticks if len(ticks) == 8 else None


def _pressure(path: Path) -> float | None:
    text = files.text(path)
    found = _SOME.search(text)
    if not found:
        return None
    return files.decimal(found[1])
