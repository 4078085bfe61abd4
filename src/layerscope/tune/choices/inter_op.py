"""How many operators run at once, beside the threads inside each.

TensorFlow reads a variable for that. Others take the number from the program
alone, so there is nothing to set from outside.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 55, 2
_VARIABLE = "TF_NUM_INTEROP_THREADS"


def choices(place: TuneContext) -> Iterator[Setting]:
    """For TensorFlow one, and two where there are CPUs for them."""
    if not libraries.has(place, "libtensorflow"):
        return
    for count in (1, 2):
        if count <= len(place.machine.cpu.allowed) and place.environment.get(_VARIABLE) != str(
            count
        ):
            yield Setting(
                f"interop={count}",
                {_VARIABLE: str(count)},
                because="operators do not fight for CPUs",
            )
