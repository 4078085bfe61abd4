"""`run.live()`: what a program does while its recording grows, below the cell of a notebook.

The figures and the screen are those of `layerscope top`; nothing of the recording changes.
"""

from __future__ import annotations

import contextlib
import html
import math
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from layerscope.analyse.live.program import LiveProgram
from layerscope.ingest.live.recording import LiveRecording
from layerscope.ingest.open import is_live
from layerscope.model.errors import LayerscopeError, UsageError
from layerscope.model.live import SUMS
from layerscope.recording.run import Run
from layerscope.show.live.lines import text
from layerscope.show.live.output import Pages
from layerscope.show.live.view import LiveView, Watching, first_table, seen

_NS_PER_S = 1_000_000_000
_WIDTH, _ROWS_ABOVE = 100, 8


class _LiveOutput(Protocol):
    def draw(self, view: LiveView) -> None:
        """Show a moment."""


class GrowingRun:
    """A recording that grows."""

    def __init__(self, path: Path, window_s: float) -> None:
        """UsageError: it is complete."""
        self.path = path
        run = Run.open(path)
        if not is_live(run):
            raise UsageError(
                f"{path} is complete: its program does not run any more. `.summary()` and "
                "`.table('operators')` say what it did"
            )
        program, *arguments = run.info.command or [""]
        name = os.path.basename(program)
        self.title = shlex.join([name, *arguments])
        self.cpus = run.info.granted_cpus
        self.start_ns = run.info.start_ns
        self.window_ns = round(window_s * _NS_PER_S)
        self.raw = run.raw

    def is_over(self) -> bool:
        """Whether nothing more will come."""
        try:
            return not is_live(Run.open(self.path))
        except LayerscopeError:
            return True


def show(watched: GrowingRun, table: str, for_s: float | None, interval_s: float, top: int) -> None:
    """Draw until it ends, `for_s` are over or the cell is interrupted."""
    if table and table not in SUMS:
        raise UsageError(f"there is no table {table!r} of a program that runs; {', '.join(SUMS)}")
    output: _LiveOutput = NotebookCell(top) if _shell() is not None else Pages(sys.stdout, top)
    end = time.monotonic() + for_s if for_s is not None else math.inf
    with LiveRecording(watched.raw, watched.window_ns) as recording:
        program = LiveProgram(recording.known, watched.start_ns, watched.window_ns)
        with contextlib.suppress(KeyboardInterrupt):
            is_over = False
            while not is_over:
                # Asked before the reading: what came until then is read.
                is_over = watched.is_over()
                program.add(recording.advance(is_over))
                output.draw(_view(watched, recording, program, table, top, is_over))
                if is_over or time.monotonic() >= end:
                    return
                time.sleep(interval_s)


def _view(
    watched: GrowingRun,
    recording: LiveRecording,
    program: LiveProgram,
    table: str,
    top: int,
    is_over: bool,
) -> LiveView:
    """The program as it is now."""
    pid = min(recording.known.processes, default=0)
    until_ns = program.facts().until_ns if is_over else time.monotonic_ns()
    about = Watching(
        title=watched.title,
        pid=pid,
        cpus=watched.cpus,
        running_ns=max(until_ns - watched.start_ns, 0),
        since="since start",
    )
    note = "The program has ended." if is_over else ""
    return seen(program, about, table or first_table(program), top, note)


def _shell() -> Any:
    """The shell that runs the cell; None: this is no notebook."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


class NotebookCell:
    """What is shown below the cell of a notebook, in the same place each time."""

    def __init__(self, top: int) -> None:
        self._rows = top + _ROWS_ABOVE
        self._shown: Any = None

    def draw(self, view: LiveView) -> None:
        """Put it in the place of the one before."""
        from IPython import display as notebook

        shown = CellScreen(text(view, _WIDTH, self._rows))
        if self._shown is None:
            show_it: Any = notebook.display
            self._shown = show_it(shown, display_id=True)
        elif hasattr(self._shown, "update"):
            self._shown.update(shown)


class CellScreen:
    """A screen as notebooks and shells show it."""

    def __init__(self, screen: str) -> None:
        self._screen = screen

    def _repr_html_(self) -> str:
        shown = html.escape(self._screen)
        return f'<pre style="line-height: 1.2">{shown}</pre>'

    def __repr__(self) -> str:
        return self._screen
