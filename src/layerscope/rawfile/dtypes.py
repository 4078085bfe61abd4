"""The memory that the agent shares with us, as NumPy types.

Generated from native/layout.h by native_layout.py: change the header, then run `python3 dev.py
native`.
"""

from __future__ import annotations

import numpy as np

from layerscope.rawfile.layout import RING_HEADER

RECORD = np.dtype(
    {
        "names": [
            "start",
            "end",
            "name",
            "seq",
            "module",
            "depth",
            "kind",
            "flags",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u4",
            "<i4",
            "<u4",
            "<u2",
            "u1",
            "u1",
        ],
        "offsets": [
            0,
            8,
            16,
            20,
            24,
            28,
            30,
            31,
        ],
        "itemsize": 32,
    }
)

OPEN = np.dtype(
    {
        "names": [
            "start",
            "state",
            "name",
            "kind",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            16,
            20,
        ],
        "itemsize": 24,
    }
)

ORIGIN = np.dtype(
    {
        "names": [
            "submitted",
            "module",
            "line",
            "track",
            "seq",
        ],
        "formats": [
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<i4",
        ],
        "offsets": [
            0,
            8,
            12,
            16,
            20,
        ],
        "itemsize": 24,
    }
)

RING = np.dtype(
    {
        "names": [
            "magic",
            "version",
            "capacity",
            "index",
            "pid",
            "tid",
            "process_start",
            "published",
            "lost_full",
            "lost_deep",
            "lost_first",
            "lost_last",
            "elsewhere",
            "depth",
            "track",
            "consumed",
            "closed",
            "open",
            "origins",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<i4",
            "<i4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u8",
            "<u4",
            (OPEN, (512,)),
            (ORIGIN, (128,)),
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            20,
            24,
            64,
            72,
            80,
            88,
            96,
            104,
            112,
            116,
            128,
            136,
            512,
            12800,
        ],
        "itemsize": RING_HEADER,
    }
)

PAGE = np.dtype(
    {
        "names": [
            "magic",
            "version",
            "pid",
            "ppid",
            "process_start",
            "clock_is_tsc",
            "probe",
            "sequence_offset",
            "forward_thread_offset",
            "lost_without_ring",
            "lost_names",
            "lost_without_ring_first",
            "lost_without_ring_last",
            "agent_cpu_ns",
            "rings",
            "callbacks",
            "rank",
            "world_size",
            "window",
            "window_rule",
            "window_is_open",
            "onednn",
            "window_opened_ns",
            "onednn_cap",
            "window_steps",
            "role",
            "open_requests",
            "library",
            "command_line",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<i4",
            "<i4",
            "<u8",
            "<u4",
            "<i4",
            "<i4",
            "<i4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<i4",
            "<i4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "S32",
            "<u8",
            "S32",
            "<u8",
            "S4096",
            "S8192",
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            24,
            28,
            32,
            36,
            40,
            48,
            56,
            64,
            72,
            80,
            84,
            88,
            92,
            96,
            100,
            104,
            108,
            112,
            120,
            152,
            160,
            192,
            4096,
            8192,
        ],
        "itemsize": 16384,
    }
)

NAMES = np.dtype(
    {
        "names": [
            "magic",
            "version",
            "segment",
            "capacity",
            "used",
            "process_start",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            24,
        ],
        "itemsize": 64,
    }
)
