"""The layers of the stack and the kinds of span, with the numbers the agent writes for them.

The numbers are the `kind` byte of a record in the ring; `native/layout.h` holds the same table.
"""

from __future__ import annotations

OPERATORS = "operators"
MODULES = "modules"
RANGES = "ranges"
COUNTERS = "counters"
# The track with what was read from the system about a process; every other track of counters is the program's own.
PROCESS_COUNTERS = "process"

# Index = the kind byte of a ring record.
KINDS = ("function", "backward", "range", "optimizer", "loader", "module", "task", "frame", "event")
# The layers of spans, and the layer of each kind as an index into them.
SPAN_LAYERS = (OPERATORS, MODULES, RANGES)
LAYER_OF_KIND = (0, 0, 0, 0, 0, 1, 2, 2, 2)
# What the record of a mark says in its field `module`.
MARKS = ("marker", "step", "paused", "resumed")

PHASES = ("loading", "forward", "backward", "optimizer", "other")
