"""Readings of counters in a raw file: which counters there are, and how a reading is written."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    "machine_cpu_ns",
    "machine_stolen_ns",
    "machine_cpu_pressure_ns",
    "machine_io_pressure_ns",
    "machine_memory_pressure_ns",
    "rss_anonymous_bytes",
    "rss_file_bytes",
    "rss_shared_bytes",
)
UNITS = tuple(
    "ns" if name.endswith("_ns") else "bytes" if name.endswith("_bytes") else "count"
    for name in NAMES
)
# Those of a control group; of the machine are the ones that say so; all others are of the process.
OF_GROUP = ("throttled", "throttled_ns", "group_memory_bytes", "group_memory_limit_bytes")
# A reading in a chunk: at_ns, counter, nothing, value.
_READING = struct.Struct("<qiiq")
_NUMBERS = range(len(NAMES))
_NUMBER_OF = {name: number for number, name in enumerate(NAMES)}


def packed(at_ns: int, values: dict[str, int]) -> bytes:
    """Readings by name, all of one moment, as a chunk holds them."""
    readings = (_READING.pack(at_ns, _NUMBER_OF[name], 0, value) for name, value in values.items())
    return b"".join(readings)


def row_dtype() -> np.dtype:
    """A reading as a NumPy type. NumPy is imported here: whoever only writes readings starts sooner
    without it.
    """
    import numpy as np

    return np.dtype([("at_ns", "<i8"), ("counter", "<i4"), ("pad", "<i4"), ("value", "<i8")])


def rows_of(payload: bytes) -> np.ndarray:
    """The readings of a raw chunk, without counters that only a newer layerscope knows."""
    import numpy as np

    rows = np.frombuffer(payload, row_dtype())
    counter = rows["counter"]
    is_known = (counter >= 0) & (counter < len(NAMES))
    return rows[is_known]


def read(payload: bytes) -> Iterator[tuple[int, str, int, str]]:
    """The rows of a raw chunk one by one: (at_ns, name, value, unit). Without NumPy, as above."""
    rest = len(payload) % _READING.size
    whole = payload[: len(payload) - rest]
    for at_ns, number, _, value in _READING.iter_unpack(whole):
        if number in _NUMBERS:
            name, unit = NAMES[number], UNITS[number]
            yield at_ns, name, value, unit
