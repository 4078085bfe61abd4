"""What the wall clock (CLOCK_REALTIME) said at a moment of the run: traces of other tools use
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.model.units import duration

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Readings differ by less than this while nobody sets the clock.
_SET_NS = 1_000_000
_UNKNOWN = "The recording has no reading of the wall clock: its times begin at zero."


def realtime_of(reader: Reader, run_ns: int) -> tuple[int | None, tuple[str, ...]]:
    """CLOCK_REALTIME in ns at `run_ns`, None where it is not known, and what must be said about it.

    One shift, that of the best reading, holds for the whole run: durations stay what they are.
    """
    readings = reader.arrays("clock_readings", ["clock", "clock_value", "run_ns", "error_ns"])
    names = readings["clock.names"].tolist()
    rows = (
        np.flatnonzero(readings["clock"] == names.index("realtime"))
        if "realtime" in names
        else np.zeros(0, np.intp)
    )
    if not len(rows):
        return None, (_UNKNOWN,)
    best = rows[np.argmin(readings["error_ns"][rows])]
    clock = Conversion()
    clock.add(int(readings["run_ns"][best]), int(readings["clock_value"][best]))
    set_by_ns = int(np.ptp(readings["clock_value"][rows] - readings["run_ns"][rows]))
    notes: tuple[str, ...] = ()
    if set_by_ns > _SET_NS:
        notes = (
            f"The wall clock was set by {duration(set_by_ns)} while the program ran: times follow "
            "one reading.",
        )
    return int(clock.to_run(np.array([run_ns], np.int64))[0]), notes
