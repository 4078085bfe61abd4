"""Watches a program while it runs: `layerscope top`.

A loop that reads what is new, adds it up, draws, and waits for keys. Between two looks it sleeps.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, Protocol, TextIO

from msgspec import Struct

from layerscope.analyse.live.program import Facts, LiveProgram
from layerscope.ingest.live.recording import LiveRecording
from layerscope.ingest.live.thinning import Pace
from layerscope.model.live import Increment
from layerscope.session.watched import WatchedRecording, watched
from layerscope.show.live.keyboard import Keyboard
from layerscope.show.live.lines import TABLES
from layerscope.show.live.output import JsonLines, LiveScreen, Pages, is_screen
from layerscope.show.live.view import LiveView, Watching, first_table, seen
from layerscope.show.screen import tell

_NS_PER_S = 1_000_000_000
# We are in nobody's way: the program's own threads come first.
_NICE = 10
_ENDING = (signal.SIGTERM, signal.SIGHUP)
# What a shell reports for a program that a signal ended, less the signal.
_BY_SIGNAL = 128
# How long a reading may take before the screen is drawn again.
_READING_S = 0.5
_PARTLY = "times and counts of operators and primitives are estimates."
# How often it is asked whether the recording still grows.
_LOOK_S = 1.0
# Rows of a table for a program that reads them, where nobody says how many.
TOP = 20
# More than fit a window.
MOST_OF_A_SCREEN = 200


class TopOptions(Struct, frozen=True):
    """What is asked for. `target`: a recording or a pid, None: the newest recording here; `table`:
    the one to begin with, empty: the first that has something; `for_s`: how long, None: to the end;
    `top`: rows of a table, None: as many as fit or are usual.
    """

    target: str | None = None
    table: str = ""
    interval_s: float = 0.5
    window_s: float = 5.0
    for_s: float | None = None
    top: int | None = None
    once: bool = False
    json: bool = False
    quiet: bool = False


class Output(Protocol):
    """Where screens go."""

    def draw(self, view: LiveView, shows_help: bool = False) -> None:
        """Draw one."""


def top(asked: TopOptions) -> int:
    """Watch a program until it ends, or somebody quits."""
    of = watched(asked.target)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    for number in _ENDING:
        signal.signal(number, _end)
    window_ns = round(asked.window_s * _NS_PER_S)
    with contextlib.closing(of), LiveRecording(of.raw, window_ns) as recording:
        program = LiveProgram(recording.known, of.start_ns, window_ns)
        watch = Watch(asked, of, recording, program)
        if asked.json:
            watch.run(JsonLines(sys.stdout, of.name), -1)
        elif asked.once or not is_screen(sys.stdout):
            has_keys = sys.stdout.isatty() and not asked.once
            watch.run(Pages(sys.stdout, asked.top or 0), _terminal() if has_keys else -1)
        else:
            _on_screen(watch, sys.stdout)
        if watch.is_over and not asked.quiet:
            tell(f"layerscope: {of.title} has ended. Next: {of.next_command}")
    return 0


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave the terminal and the program as they were first."""
    raise SystemExit(_BY_SIGNAL + number)


def _terminal() -> int:
    """The terminal that keys come from; -1: there is none."""
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1


def _on_screen(watch: Watch, stream: TextIO) -> None:
    with contextlib.suppress(KeyboardInterrupt), LiveScreen(stream) as screen:
        watch.run(screen, _terminal())
    if watch.is_over:
        screen.leave(watch.view())


class Watch:
    """One watching: what is read, what is shown, and what the keys have changed."""

    def __init__(
        self,
        asked: TopOptions,
        of: WatchedRecording,
        recording: LiveRecording,
        program: LiveProgram,
    ) -> None:
        self.is_over = False
        self._asked, self._of = asked, of
        self._recording, self._program = recording, program
        self._table = asked.table
        self._is_held = self._shows_help = self._has_quit = False
        self._since = of.since
        self._next_look = 0.0
        self._closed = ""  # why nothing is recorded
        self._waiting: list[Increment] = []
        self._read_share = 1.0
        self._pace = Pace()
        self._paced_s = math.inf  # until then all was read

    def run(self, output: Output, descriptor: int) -> None:
        """Read and draw until the program ends, time is over or somebody quits; `descriptor`: the
        terminal whose keys are asked for, -1: none.
        """
        keyboard = Keyboard(descriptor)
        for_s = self._asked.for_s
        begun = time.monotonic()
        end = begun + for_s if for_s is not None else math.inf
        # A page stays where it is, so the first one waits until there is something to see.
        warm_s = 0.0 if isinstance(output, LiveScreen) else self._of.warm_s
        warm = min(begun + warm_s, max(end, begun))
        with contextlib.closing(keyboard), keyboard.listening():
            while not self._has_quit:
                begun = time.monotonic()
                self._read()
                is_whole = self._read_share == 1.0
                is_ready = is_whole and (begun >= warm or self.is_over)
                if is_ready or isinstance(output, LiveScreen):
                    output.draw(self.view(), self._shows_help)
                if is_ready and (self.is_over or self._asked.once or begun >= end):
                    return
                until = begun + self._asked.interval_s if is_whole else begun
                self._wait(keyboard, output, min(until, end))

    def _wait(self, keyboard: Keyboard, output: Output, until: float) -> None:
        """Do what keys ask for until it is time to read again."""
        while not self._has_quit:
            keys = keyboard.wait(until)
            if keyboard.is_stopped:
                with output.left() if isinstance(output, LiveScreen) else contextlib.nullcontext():
                    keyboard.stop()
            elif not keys and not keyboard.is_resized:
                return
            if keyboard.is_resized and isinstance(output, LiveScreen):
                output.forget()
            for key in keys:
                self._press(key)
            if not self._has_quit:
                output.draw(self.view(), self._shows_help)

    def _press(self, key: str) -> None:
        if key in TABLES:
            self._table, self._shows_help = TABLES[key], False
        elif key == " ":
            self._is_held = not self._is_held
            self._add_waiting()
        elif key == "r":
            self._program.reset()
            self._since = "since r"
        elif key == "?":
            self._shows_help = not self._shows_help
        elif key == "q":
            self._has_quit = True

    def _read(self) -> None:
        """Take in what is new, and see whether more will come."""
        now = time.monotonic()
        is_over = False
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            is_over = self._of.is_over()
            self._closed = "" if is_over else self._of.closed()
        increment = self._recording.advance(is_over, now + _READING_S)
        self._keep_pace(increment, now)
        self._read_share = increment.read_share
        self.is_over = is_over and self._read_share == 1.0
        self._is_held &= not self.is_over
        self._waiting.append(increment)
        self._add_waiting()

    def _keep_pace(self, increment: Increment, now: float) -> None:
        """Read fewer records where reading takes too much. What was recorded before we came is
        read whole.
        """
        is_whole = increment.read_share == 1.0
        if is_whole and self._paced_s < now:
            elapsed_s = now - self._paced_s
            elapsed_ns = round(elapsed_s * _NS_PER_S)
            self._pace.spent(increment.cpu_ns, elapsed_ns)
            self._recording.every = self._pace.every
        self._paced_s = now if is_whole else math.inf

    def _add_waiting(self) -> None:
        """Add up what has come; nothing while the screen is held."""
        if not self._is_held:
            for increment in self._waiting:
                self._program.add(increment)
            self._waiting.clear()

    def view(self) -> LiveView:
        """What is to be seen now."""
        facts = self._program.facts()
        table = self._table or first_table(self._program)
        top = self._asked.top
        if top is None:
            top = TOP if self._asked.json or self._asked.once else MOST_OF_A_SCREEN
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if self.is_over:
            now_ns = facts.until_ns
        begun_ns = self._of.program_start_ns or facts.until_ns
        about = Watching(
            title=self._of.title,
            pid=self._of.pid or self._first_pid(),
            cpus=self._of.cpus,
            running_ns=max(now_ns - begun_ns, 0),
            since=self._since,
        )
        return seen(self._program, about, table, top, " ".join(self._notes(facts)))

    def _first_pid(self) -> int:
        known = self._recording.known.processes
        return min(known, default=0)

    def _notes(self, facts: Facts) -> Iterator[str]:
        """What else there is to say."""
        if self._read_share < 1:
            yield f"Reading what was recorded so far: {100 * self._read_share:.0f} %."
        if self._pace.every > 1:
            yield f"1 of {self._pace.every} records read: {_PARTLY}"
        if self._is_held:
            yield "Held: space goes on."
        if self.is_over:
            yield "The program has ended."
        if self._closed:
            yield self._closed
        if facts.lost:
            yield f"{facts.lost:,} records were lost or taken out before they were read."
