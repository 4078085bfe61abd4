"""Counters of a process from the kernel's own accounting: CPU time, page faults, memory.

Clock: CLOCK_MONOTONIC. Read from outside, so the program pays nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

# Index in this tuple = the number stored in the raw file.
NAMES = ("cpu_ns", "user_ns", "system_ns", "faults_minor", "faults_major", "rss_bytes", "threads")
UNITS = ("ns", "ns", "ns", "count", "count", "bytes", "count")
SAMPLE = np.dtype([("at_ns", "<i8"), ("counter", "<i4"), ("pad", "<i4"), ("value", "<i8")])

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def process_clock(pid: int) -> int:
    """The clock id of the CPU time of process `pid` (clock_getcpuclockid(3): bits of the kernel's ABI)."""
    return (~pid << 3) | 2


def sample(pid: int) -> bytes:
    """One reading of every counter of `pid` as packed SAMPLE rows; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold spaces and parentheses itself: split after the last one.
            fields = file.read().rpartition(b")")[2].split()
        cpu_ns = time.clock_gettime_ns(process_clock(pid))
    except (OSError, OverflowError):
        return b""
    at_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    # proc(5): field 3 is fields[0]; 10 minflt, 12 majflt, 14 utime, 15 stime, 20 num_threads, 24 rss.
    values = (
        cpu_ns,
        int(fields[11]) * _TICK_NS,
        int(fields[12]) * _TICK_NS,
        int(fields[7]),
        int(fields[9]),
        int(fields[21]) * _PAGE_BYTES,
        int(fields[17]),
    )
    rows = np.zeros(len(values), SAMPLE)
    rows["at_ns"] = at_ns
    rows["counter"] = np.arange(len(values))
    rows["value"] = values
    if fields[0] == b"Z":  # it has ended and is not reaped: its memory and its threads are gone, the rest is final
        rows = rows[: NAMES.index("rss_bytes")]
    return rows.tobytes()


def rows_of(payload: bytes) -> np.ndarray:
    """The rows of a raw chunk, without counters that only a newer layerscope knows."""
    rows = np.frombuffer(payload, SAMPLE)
    return rows[(rows["counter"] >= 0) & (rows["counter"] < len(NAMES))]


def read(payload: bytes) -> Iterator[tuple[int, str, int, str]]:
    """The rows of a raw chunk one by one: (at_ns, name, value, unit)."""
    for at_ns, number, _, value in rows_of(payload).tolist():
        yield at_ns, NAMES[number], value, UNITS[number]
