"""What `layerscope tune` says while it runs: one line that is rewritten on a terminal, lines
elsewhere, on stderr.
"""

from __future__ import annotations

import sys

from layerscope.model import units
from layerscope.show.screen import printable, styled
from layerscope.show.terminal import shortened
from layerscope.tune.objective import Objective
from layerscope.tune.track import FINAL, Progress

_CLEAR = "\r\x1b[K"


class Teller:
    """Says nothing where `quiet`."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._is_open = False  # a line that may be rewritten stands there

    def say(self, sentence: str) -> None:
        """A line that stays."""
        before = _CLEAR if self._is_open else ""
        words = printable(sentence)
        self._write(f"{before}layerscope: {words}\n")
        self._is_open = False

    def now(self, sentence: str) -> None:
        """What is going on."""
        if not self._is_terminal:
            self.say(sentence)
            return
        import shutil

        width = shutil.get_terminal_size().columns - 1
        self._write(f"{_CLEAR}{shortened(f'layerscope: {printable(sentence)}', width)}")
        self._is_open = True

    def done(self, sentence: str) -> None:
        """That is over; a line that stays, if there is something to say."""
        if sentence:
            self.say(sentence)
        elif self._is_open:
            self._write(_CLEAR)
            self._is_open = False

    def of(self, progress: Progress, objective: Objective) -> str:
        """What one run of the race was, and how much time is left."""
        where = (
            "final comparison"
            if progress.phase == FINAL
            else f"stage {progress.stage} of {progress.stages}"
        )
        value = (
            "does not count" if progress.value is None else shown(progress.value, objective.unit)
        )
        left_min = progress.left_s / 60
        left = f"{progress.left_s:.0f} s" if progress.left_s < 100 else f"{left_min:.0f} min"
        racing = f", {progress.racing} in the race" if progress.phase != FINAL else ""
        return (
            f"{where}, round {progress.round}: {progress.setting.name} {value}{racing}, at most "
            f"{left} left"
        )

    def _write(self, text: str) -> None:
        if not self._quiet:
            # Everything in it is printable but for the sequence that clears the line.
            styled(sys.stderr).write(text)
            sys.stderr.flush()


def shown(value: float, unit: str) -> str:
    """A value of an objective as people read it."""
    if unit == "s":
        return units.duration(value * 1e9)
    if unit == "ns":
        return units.duration(value)
    if unit == "bytes":
        return units.size(value)
    return f"{value:.4g}"
