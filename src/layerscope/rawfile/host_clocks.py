"""Puts the raw files of several hosts on one clock, by what CLOCK_REALTIME said at the same moments
on each.

CLOCK_MONOTONIC of a host begins at its boot. NTP slews it together with CLOCK_REALTIME, so the
difference of the two stays the same as long as nobody sets the time; when somebody does (a step),
it jumps once. The median of the differences of a run is what the host believed most of the time;
how far two hosts are then apart is how far their realtime clocks are: NTP keeps that below some
milliseconds, and nobody here can know better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.rawfile import raw_file

# Reading three clocks one after the other may be interrupted for longer than a step that matters.
STEP_NS = 1_000_000


class HostClock(Struct):
    """CLOCK_MONOTONIC of a host: `ahead_ns` is by how much its CLOCK_REALTIME is ahead of it, one
    for each reading.
    """

    host: str
    ahead_ns: list[np.ndarray]

    @property
    def median_ns(self) -> int:
        """What the readings say, whatever a few of them say."""
        readings = np.concatenate(self.ahead_ns)
        # Exact: the values are beyond what a float holds.
        return (
            int(np.partition(readings, len(readings) // 2)[len(readings) // 2])
            if len(readings)
            else 0
        )

    @property
    def stepped_ns(self) -> int:
        """By how much the realtime clock was set during the run; 0 where it was not."""
        readings = np.concatenate(self.ahead_ns)
        if not len(readings):
            return 0
        spread = readings.max() - readings.min()
        return int(spread) if spread > STEP_NS else 0


def shifts(raws: Mapping[int, Path]) -> tuple[dict[int, int], list[Problem]]:
    """For the raw folder of every rank, what must be added to its times; the clock of the first one
    stays.

    The problems say whose clock was set meanwhile.
    """
    clocks: dict[str, HostClock] = {}
    of_rank = {rank: _read(raw, clocks) for rank, raw in raws.items()}
    known = [name for name in of_rank.values() if name]
    if not known:
        return {}, []
    reference = clocks[known[0]].median_ns
    found = {
        rank: clocks[name].median_ns - reference if name else 0 for rank, name in of_rank.items()
    }
    stepped = [clock for clock in clocks.values() if clock.stepped_ns] if len(clocks) > 1 else []
    return found, [_stepped(clock) for clock in stepped]


def _stepped(clock: HostClock) -> Problem:
    return Problem(
        OPERATORS,
        "clock_stepped",
        f"the clock of host {clock.host} was set during the run, by {clock.stepped_ns / 1e9:.3f} s",
        "times on one host are right; between hosts, keep their clocks in step (chrony) and record "
        "again",
        "when something on that host happened as seen from other hosts, by up to as much",
    )


def _read(raw: Path, clocks: dict[str, HostClock]) -> str:
    """Add the readings of one rank to the clock they are of; the name of that clock, empty when
    there is none.
    """
    name = ""
    for path in raw_file.spools(raw):
        folder = path.parent.name
        host = folder.rsplit("-", 2)[0]
        own, readings = _readings(path)
        name = own or f"host {host}"
        clocks.setdefault(name, HostClock(host, [])).ahead_ns.append(readings)
    return name


def _readings(path: Path) -> tuple[str, np.ndarray]:
    """Of one raw file: which clock its times are on, and by how much realtime was ahead of it."""
    clock = ""
    ahead = []
    for chunk in raw_file.SpoolReader(path).chunks(only=(raw_file.PROCESS, raw_file.POLL)):
        if chunk.kind == raw_file.POLL:
            _, run_ns, realtime_ns, _ = np.frombuffer(chunk.payload, "<i8").tolist()
            ahead.append(realtime_ns - run_ns)
        else:
            clock = json.loads(chunk.payload).get("monotonic_clock") or clock
    return clock, np.array(ahead, np.int64)
