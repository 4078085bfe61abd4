"""The memory that the agent shares with us, as NumPy types.

Generated from native/layout.h by native_layout.py: change the header, then run `python3 dev.py
native`.
"""

from __future__ import annotations

import struct

import numpy as np

FUNCTION = 0
BACKWARD = 1
RANGE = 2
OPTIMIZER = 3
LOADER = 4
MODULE = 5
TASK = 6
FRAME = 7
EVENT = 8
EXECUTE = 9
CREATE = 10
VERSION = 5
RING_MAGIC = 0x4752534C
PAGE_MAGIC = 0x4750534C
NAMES_MAGIC = 0x4D4E534C
MESSAGE_MAGIC = 0x4D53534C
COUNTER = 250
MARK = 251
THREAD_BEGIN = 252
THREAD_END = 253
LOST = 254
EXTRA = 255
EXTRA_FORWARD_THREAD = 1
EXTRA_ELSEWHERE = 2
EXTRA_OPTIMIZER = 3
EXTRA_LINE = 4
EXTRA_ARGS = 5
MARK_MARKER = 0
MARK_STEP = 1
MARK_PAUSED = 2
MARK_RESUMED = 3
MARK_PROBLEM = 4
MARK_OPENED = 5
MARK_CLOSED = 6
MARK_NAMED = 7
MARK_BEGINS = 8
MARK_ENDS = 9
MARK_RAISED = 10
RULE_NONE = 0
RULE_REQUEST = 1
RULE_LOADER = 2
RULE_OPTIMIZER = 3
RULE_MARK = 4
RULE_NAMED = 5
RULES = 6
WINDOW_BY_TIME = 64
WINDOW_WAS_CLOSED = 128
WINDOW_INSTANCE = 8
CAPTURE_NOTHING = 0
CAPTURE_CLOSED = 1
CAPTURE_OPEN = 2
CAPTURE_OVER = 3
FLAG_ASYNC = 1
FLAG_ELSEWHERE = 2
FLAG_EXTRA = 4
OPEN_SLOTS = 512
RING_BYTES = 3145728
RING_HEADER = 16384
RING_RECORDS = 97792
LARGE_RINGS = 64
SMALL_RING_BYTES = 262144
PROBE_PENDING = 0
PROBE_GOOD = 1
PROBE_REFUSED = 2
ONEDNN_CONVOLUTION_ON = 1
ONEDNN_CONVOLUTION_OFF = 2
ONEDNN_PRODUCT_ON = 4
ONEDNN_PRODUCT_OFF = 8
PAGE_BYTES = 16384
NAMES_HEADER = 64
NAME_BYTES = 1024
NAMES_MOST = 1048576
SEND_PROCESS = 1
SEND_RING = 2
SEND_NAMES = 3
SEND_SAMPLES = 4
SEND_END = 5
# The kinds below are spans.
FIRST_SPECIAL = COUNTER
# By number: the kind and the layer of a span as the tables have them.
SPAN_KINDS = (
    ("function", "operators"),
    ("backward", "operators"),
    ("range", "operators"),
    ("optimizer", "operators"),
    ("loader", "operators"),
    ("module", "modules"),
    ("task", "ranges"),
    ("frame", "ranges"),
    ("event", "ranges"),
    ("execute", "primitives"),
    ("create", "primitives"),
)

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
            (OPEN, (512,)),
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

MESSAGE = struct.Struct("<IIiIQ")  # magic, type, pid, index, process_start
