"""The memory that the agent shares with us: numbers and messages.

Generated from native/layout.h by native_layout.py: change the header, then run `python3 dev.py
native`.
"""

from __future__ import annotations

import struct

FUNCTION = 0
BACKWARD = 1
RANGE = 2
OPTIMIZER = 3
LOADER = 4
MODULE = 5
TASK = 6
FRAME = 7
EVENT = 8
CALL = 9
SUBMIT = 10
EXECUTE = 11
CREATE = 12
VERSION = 7
RING_MAGIC = 0x4752534C
PAGE_MAGIC = 0x4750534C
NAMES_MAGIC = 0x4D4E534C
MESSAGE_MAGIC = 0x4D53534C
FIRST_SPECIAL = 248
ALLOCATION = 248
RELEASE = 249
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
EXTRA_SUBMITTED = 6
EXTRA_ARGS = 5
OF_REQUESTS = -2
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
MARK_SETTING = 11
MARK_RAISED = 10
RULE_NONE = 0
RULE_REQUEST = 1
RULE_SERVED = 2
RULE_LOADER = 3
RULE_OPTIMIZER = 4
RULE_MARK = 5
RULE_NAMED = 6
RULES = 7
WINDOW_BY_TIME = 64
WINDOW_WAS_CLOSED = 128
WINDOW_INSTANCE = 8
CAPTURE_NOTHING = 0
CAPTURE_CLOSED = 1
CAPTURE_OPEN = 2
CAPTURE_OVER = 3
PHASE_LOADING = 0
PHASE_FORWARD = 1
PHASE_BACKWARD = 2
PHASE_OPTIMIZER = 3
PHASE_OTHER = 4
PHASE_SHIFT = 4
LINE_BITS_IN_FLAGS = 15
ADDRESS_BITS = 48
BY_NUMPY = 128
FLAG_ASYNC = 1
FLAG_ELSEWHERE = 2
FLAG_EXTRA = 4
OPEN_SLOTS = 512
ORIGINS = 128
HAS_ORIGIN = 256
RING_BYTES = 3145728
RING_HEADER = 16384
RECORD_BYTES = 32
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
SEND_RATE = 6
SEND_USED = 7
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
    ("call", "api"),
    ("submit", "api"),
    ("execute", "primitives"),
    ("create", "primitives"),
)

MESSAGE = struct.Struct("<IIiIQ")  # magic, type, pid, index, process_start

# Offset and type, as `struct` has it.
PAGE_FIELDS = {
    "magic": (0, "<I"),
    "version": (4, "<I"),
    "pid": (8, "<i"),
    "ppid": (12, "<i"),
    "process_start": (16, "<Q"),
    "clock_is_tsc": (24, "<I"),
    "probe": (28, "<i"),
    "sequence_offset": (32, "<i"),
    "forward_thread_offset": (36, "<i"),
    "lost_without_ring": (40, "<Q"),
    "lost_names": (48, "<Q"),
    "lost_without_ring_first": (56, "<Q"),
    "lost_without_ring_last": (64, "<Q"),
    "agent_cpu_ns": (72, "<Q"),
    "rings": (80, "<I"),
    "callbacks": (84, "<I"),
    "rank": (88, "<i"),
    "world_size": (92, "<i"),
    "window": (96, "<I"),
    "window_rule": (100, "<I"),
    "window_is_open": (104, "<I"),
    "onednn": (108, "<I"),
    "window_opened_ns": (112, "<Q"),
    "onednn_cap": (120, "<32s"),
    "window_steps": (152, "<Q"),
    "role": (160, "<32s"),
    "open_requests": (192, "<Q"),
    "library": (4096, "<4096s"),
    "command_line": (8192, "<8192s"),
}

# Offset and type, as `struct` has it.
RING_FIELDS = {
    "magic": (0, "<I"),
    "version": (4, "<I"),
    "capacity": (8, "<I"),
    "index": (12, "<I"),
    "pid": (16, "<i"),
    "tid": (20, "<i"),
    "process_start": (24, "<Q"),
    "published": (64, "<Q"),
    "lost_full": (72, "<Q"),
    "lost_deep": (80, "<Q"),
    "lost_first": (88, "<Q"),
    "lost_last": (96, "<Q"),
    "elsewhere": (104, "<Q"),
    "depth": (112, "<I"),
    "track": (116, "<I"),
    "consumed": (128, "<Q"),
    "closed": (136, "<I"),
    "open": (512, "<12288s"),
    "origins": (12800, "<3072s"),
}

# Offset and type, as `struct` has it.
NAMES_FIELDS = {
    "magic": (0, "<I"),
    "version": (4, "<I"),
    "segment": (8, "<I"),
    "capacity": (12, "<I"),
    "used": (16, "<Q"),
    "process_start": (24, "<Q"),
}
