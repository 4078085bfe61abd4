"""Readings of counters in a raw file: which counters there are, and how a reading is written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Index in this tuple = the number stored in the raw file.
NAMES = (
    "cpu_ns",
    "user_ns",
    "system_ns",
    "faults_minor",
    "faults_major",
    "rss_bytes",
    "threads",
    "rss_peak_bytes",
    "rchar_bytes",
    "wchar_bytes",
    "storage_read_bytes",
    "storage_written_bytes",
    "throttled",
    "throttled_ns",
    "group_memory_bytes",
    "group_memory_limit_bytes",
)
UNITS = tuple(
    "ns" if name.endswith("_ns") else "bytes" if name.endswith("_bytes") else "count"
    for name in NAMES
)
# From here on they are those of a control group.
FIRST_OF_GROUP = NAMES.index("throttled")
SAMPLE = np.dtype([("at_ns", "<i8"), ("counter", "<i4"), ("pad", "<i4"), ("value", "<i8")])


def packed(at_ns: int, values: dict[str, int]) -> bytes:
    """Readings by name, all of one moment, as SAMPLE rows."""
    rows = np.zeros(len(values), SAMPLE)
    rows["at_ns"] = at_ns
    rows["counter"] = [NAMES.index(name) for name in values]
    rows["value"] = list(values.values())
    return rows.tobytes()


def rows_of(payload: bytes) -> np.ndarray:
    """The rows of a raw chunk, without counters that only a newer layerscope knows."""
    rows = np.frombuffer(payload, SAMPLE)
    counter = rows["counter"]
    is_known = (counter >= 0) & (counter < len(NAMES))
    return rows[is_known]


def read(payload: bytes) -> Iterator[tuple[int, str, int, str]]:
    """The rows of a raw chunk one by one: (at_ns, name, value, unit)."""
    rows = rows_of(payload)
    for at_ns, number, _, value in rows.tolist():
        name = NAMES[number]
        unit = UNITS[number]
        yield at_ns, name, value, unit
