"""The memory that the agent shares with us, as NumPy types. The same numbers as
`native/layout.h`.
"""

from __future__ import annotations

import struct

import numpy as np

VERSION = 5
RING_MAGIC, PAGE_MAGIC, NAMES_MAGIC, MESSAGE_MAGIC = 0x4752534C, 0x4750534C, 0x4D4E534C, 0x4D53534C

RECORD = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("name", "<u4"),
        ("seq", "<i4"),
        ("module", "<u4"),
        ("depth", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
    ]
)
COUNTER, MARK, THREAD_BEGIN, THREAD_END, LOST, EXTRA = 250, 251, 252, 253, 254, 255
FIRST_SPECIAL = COUNTER  # the kinds below are spans
EXTRA_FORWARD_THREAD, EXTRA_ELSEWHERE, EXTRA_OPTIMIZER, EXTRA_LINE, EXTRA_ARGS = 1, 2, 3, 4, 5
MARK_STEP, MARK_PROBLEM, MARK_OPENED, MARK_CLOSED, MARK_NAMED = 1, 4, 5, 6, 7
MARK_BEGINS, MARK_ENDS = 8, 9  # of a step, where steps are only counted
MARK_RAISED = 10  # a call of a module ended by an exception
# Of MARK_OPENED and MARK_CLOSED: the rule that counts the steps, bits, and where the instance of
# the optimizer begins.
RULE_NONE, RULE_REQUEST, RULE_LOADER, RULE_OPTIMIZER, RULE_MARK, RULE_NAMED = range(6)
WINDOW_BY_TIME, WINDOW_WAS_CLOSED, WINDOW_INSTANCE = 64, 128, 8
CAPTURE_NOTHING, CAPTURE_CLOSED, CAPTURE_OPEN, CAPTURE_OVER = range(4)
FLAG_ASYNC, FLAG_ELSEWHERE, FLAG_EXTRA = 1, 2, 4

RING_BYTES = 3 << 20
RING_HEADER = 16384
RING_RECORDS = (RING_BYTES - RING_HEADER) // RECORD.itemsize
OPEN_SLOTS = 512
OPEN = np.dtype([("start", "<u8"), ("state", "<u8"), ("name", "<u4"), ("kind", "<u4")])
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
            (OPEN, (OPEN_SLOTS,)),
        ],
        "offsets": [0, 4, 8, 12, 16, 20, 24, 64, 72, 80, 88, 96, 104, 112, 116, 128, 136, 512],
        "itemsize": RING_HEADER,
    }
)

ONEDNN_CONVOLUTION_ON, ONEDNN_CONVOLUTION_OFF, ONEDNN_PRODUCT_ON, ONEDNN_PRODUCT_OFF = 1, 2, 4, 8
PAGE_BYTES = 16384
NAME_BYTES = 1024  # longer names are cut
PROBE_PENDING, PROBE_GOOD, PROBE_REFUSED = 0, 1, 2
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
            4096,
            8192,
        ],
        "itemsize": PAGE_BYTES,
    }
)

NAMES_HEADER = 64
NAMES = np.dtype(
    {
        "names": ["magic", "version", "segment", "capacity", "used", "process_start"],
        "formats": ["<u4", "<u4", "<u4", "<u4", "<u8", "<u8"],
        "offsets": [0, 4, 8, 12, 16, 24],
        "itemsize": NAMES_HEADER,
    }
)

SEND_PROCESS, SEND_RING, SEND_NAMES, SEND_SAMPLES, SEND_END = 1, 2, 3, 4, 5
MESSAGE = struct.Struct("<IIiIQ")  # magic, type, pid, index, process_start
