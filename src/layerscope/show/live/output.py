"""Where the screens of `layerscope top` go: a terminal, a pipe, or lines of JSON."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TextIO

from layerscope.model.live import SUMS
from layerscope.show import json_output
from layerscope.show.live.lines import HEADING, NOTE, TITLE, ScreenLine, help_lines, lines, text
from layerscope.show.live.view import LiveView
from layerscope.show.screen import styled

_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_STYLES = {TITLE: _BOLD, HEADING: _BOLD, NOTE: _DIM}
_CLEAR = "\x1b[2J"
# Another screen without a cursor, and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
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
    """The whole window of a terminal; at the end it is as it was. Of a screen only the lines are
    written that are not there already.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = styled(stream)
        self._size = os.terminal_size((0, 0))
        self._shown: list[str] = []

    def __enter__(self) -> LiveScreen:
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_LEAVE)

    def forget(self) -> None:
        """Nobody knows what the window shows: the next screen is written whole."""
        self._shown = []

    def draw(self, view: LiveView, shows_help: bool = False) -> None:
        """Draw a screen that fits the window as it is now."""
        size = os.get_terminal_size(self._stream.fileno())
        if size != self._size:
            self._size = size
            self.forget()
        make = help_lines if shows_help else lines
        made = make(view, size.columns, size.lines)[: size.lines]
        new = [_styled(line) for line in made]
        whole = [*new, *[""] * (size.lines - len(new))]
        self._write(difference(self._shown, whole))
        self._shown = whole

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """Meanwhile the terminal shows what was there before."""
        self._write(_LEAVE)
        try:
            yield
        finally:
            self.forget()
            self._write(_ENTER)

    def leave(self, view: LiveView) -> None:
        """Write the last screen below what was there before."""
        width, height = os.get_terminal_size(self._stream.fileno())
        last = lines(view, width, height - 1, False)
        self._write("".join(f"{_styled(line)}\n" for line in last))

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def difference(shown: list[str], new: list[str]) -> str:
    """What a terminal has to be told so that it shows these lines instead of those; of no lines
    nothing is known, and all is written.
    """
    told = []
    for row, line in enumerate(new):
        if row < len(shown) and shown[row] == line:
            continue
        # Cleared first: behind a line as wide as the window nothing could be.
        told.append(f"\x1b[{row + 1};1H\x1b[K{line}")
    return "".join(told) if shown else f"{_CLEAR}{''.join(told)}"


def _styled(line: ScreenLine) -> str:
    style = _STYLES.get(line.role)
    return f"{style}{line.text}{_PLAIN}" if style else line.text
