"""The layers of the stack and the kinds of span, with the numbers the agent writes for them.

The numbers are the `kind` byte of a record in the ring; `native/record.h` holds the same table.
"""

from __future__ import annotations

OPERATORS = "operators"
COUNTERS = "counters"

# Index = the kind byte of a ring record.
KINDS = ("function", "backward", "range", "optimizer", "loader")

PHASES = ("loading", "forward", "backward", "optimizer", "other")
