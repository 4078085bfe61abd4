"""Where the screens of `layerscope top` go: a terminal, a pipe, or lines of JSON."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from layerscope.model.live import SUMS
from layerscope.show import json_output
from layerscope.show.live.lines import HEADING, NOTE, TITLE, ScreenLine, help_lines, lines, text
from layerscope.show.live.view import LiveView
from layerscope.show.screen import styled

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

_STYLES = {TITLE: "bold", HEADING: "bold", NOTE: "dim"}
# A pipe has no size: rows and columns of a screen for it.
_WIDTH, _HEIGHT = 100, 30


def is_screen(stream: TextIO) -> bool:
    """Whether it is a terminal in which the cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


class Pages:
    """Screens one below the other, for a pipe, a file or a terminal that moves no cursor."""

    def __init__(self, stream: TextIO, rows: int) -> None:
        self._stream = stream
        self._rows = rows
        self._is_first = True

    def draw(self, view: LiveView, shows_help: bool = False) -> None:
        """Write a screen, and nothing at its end but a blank line before the next one."""
        width, height = _WIDTH, _HEIGHT
        if self._stream.isatty():
            width, height = shutil.get_terminal_size((_WIDTH, _HEIGHT))
        room = max(height, self._rows + len(SUMS)) if self._rows else height
        if not self._is_first:
            self._stream.write("\n")
        self._is_first = False
        self._stream.write(text(view, width, room))
        self._stream.flush()


class JsonLines:
    """One JSON object a line, of the shape that every `--json` has, with `program` beside it."""

    def __init__(self, stream: TextIO, run: str) -> None:
        self._stream = stream
        self._run = run

    def draw(self, view: LiveView, shows_help: bool = False) -> None:
        """Write a line."""
        facts = view.facts
        steps = facts.steps
        program = {
            "pid": view.pid or None,
            "command": view.title,
            "at_ns": facts.until_ns,
            "running_ns": view.running_ns,
            "since_ns": view.since_ns,
            "window_ns": facts.window_ns,
            "cpus": view.cpus,
            "window_cpu_ns": facts.cpu_ns,
            "window_ready_ns": facts.ready_ns,
            "processes": facts.processes,
            "threads": facts.threads,
            "rss_bytes": facts.rss_bytes,
            "rss_peak_bytes": facts.rss_peak_bytes,
            "step_rule": steps.rule or None,
            "steps": steps.count,
            "step_ns": steps.step_ns,
            "lost": facts.lost,
        }
        notes = [sentence for sentence in (view.note, view.empty) if sentence]
        more = {"run": self._run, "notes": notes, "program": program}
        self._stream.flush()
        json_output.write_rows(
            view.columns, view.rows, self._stream.buffer, "top", view.table, more
        )
        self._stream.flush()


class LiveScreen:
    """The whole window of a terminal, drawn anew each time; at the end it is as it was."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=styled(stream), highlight=False)
        self._live: Live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def draw(self, view: LiveView, shows_help: bool = False) -> None:
        """Draw a screen that fits the window as it is now."""
        width, height = self._console.size
        make = help_lines if shows_help else lines
        self._live.update(self._drawn(make(view, width, height)[:height]), refresh=True)

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """Meanwhile the terminal shows what was there before."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def leave(self, view: LiveView) -> None:
        """Write the last screen below what was there before."""
        width, height = self._console.size
        for line in lines(view, width, height - 1, False):
            self._console.print(self._drawn([line]), soft_wrap=True)

    def _drawn(self, made: Iterable[ScreenLine]) -> Text:
        from rich.text import Text

        whole = Text(no_wrap=True, end="")
        for number, line in enumerate(made):
            whole.append("\n" if number else "")
            whole.append(line.text, style=_STYLES.get(line.role, ""))
        return whole
