"""The few events that are objects; everything that comes by the million is a column (`schema`)."""

from __future__ import annotations

from msgspec import Struct

# The code of the problem that a profiler recorded the operators of the first runs alone.
FIRST_RUNS = "first_runs"
# The code of the problem that a window of steps was asked for, and everything was recorded.
WINDOW_UNCOUNTED = "window_uncounted"


class Problem(Struct, frozen=True):
    """Something could not be recorded: shown at the top of every output, never an empty chart."""

    layer: str
    code: str
    what: str
    remedy: str
    lost: str = ""
