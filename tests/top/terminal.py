"""A terminal that a test looks at: a pty, and of its escape sequences those that screens are drawn
with.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 60.0
_SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """What a terminal of this size shows. Colours are counted and not kept."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.colours = 0
        self.is_alternate = False
        self.is_cursor_shown = True
        self._rows = self._blank()
        self._normal = self._blank()
        self._at = [0, 0]
        self._left = ""

    def _blank(self) -> list[list[str]]:
        width, height = self.size
        return [[" "] * width for _ in range(height)]

    def resize(self, width: int, height: int) -> None:
        """Another size: what was there is gone until it is drawn anew."""
        self.size = width, height
        self._rows, self._normal, self._at = self._blank(), self._blank(), [0, 0]

    @property
    def lines(self) -> list[str]:
        """Every line, without blanks at its end."""
        return ["".join(row).rstrip() for row in self._rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def feed(self, text: str) -> None:
        """Take in what a program writes."""
        text = self._left + text
        self._left = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    self._left = text[at:]
                    return
                self._obey(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        width, height = self.size
        row, column = self._at
        if character == "\r":
            self._at[1] = 0
        elif character == "\n":
            if row + 1 < height:
                self._at[0] += 1
            else:
                self._rows = [*self._rows[1:], [" "] * width]
        elif character >= " ":
            if column >= width:
                self._at[1] = 0
                self._put("\n")
                row, column = self._at
            self._rows[row][column] = character
            self._at[1] = column + 1

    def _obey(self, numbers: str, command: str) -> None:
        first = [int(number or 0) for number in numbers.lstrip("?").split(";")]
        if command == "H":
            self._at = [max(first[0], 1) - 1, max([*first, 1][1], 1) - 1]
        elif command == "A":
            self._at[0] = max(self._at[0] - max(first[0], 1), 0)
        elif command == "J":
            self._rows = self._blank()
        elif command == "K":
            self._rows[self._at[0]] = [" "] * self.size[0]
        elif command == "m":
            self.colours += any(30 <= number <= 107 for number in first)
        elif numbers == "?1049":
            self._alternate(command == "h")
        elif numbers == "?25":
            self.is_cursor_shown = command == "h"

    def _alternate(self, is_on: bool) -> None:
        if is_on == self.is_alternate:
            return
        self.is_alternate = is_on
        self._rows, self._normal = (self._blank(), self._rows) if is_on else (self._normal, [])


class Terminal:
    """A command in a terminal."""

    def __init__(
        self, *words: str, cwd: Path, width: int = 80, height: int = 24, **variables: str
    ) -> None:
        self.screen = Screen(width, height)
        self._master, slave = pty.openpty()
        self._set_size(width, height)
        self.settings = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        environment["PYTHONPATH"] = str(ROOT / "src")
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "layerscope", *words], cwd=cwd, env=environment, stdin=slave,
            stdout=slave, stderr=slave, start_new_session=True, close_fds=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._slave = slave

    def _set_size(self, width: int, height: int) -> None:
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def resize(self, width: int, height: int) -> None:
        """Let the window have another size; the program is told by the kernel."""
        self.screen.resize(width, height)
        self._set_size(width, height)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, is_there: Callable[[Screen], bool]) -> Screen:
        """Read on until the screen is like that."""
        until = time.monotonic() + TIMEOUT_S
        while not is_there(self.screen):
            assert time.monotonic() < until, self.screen.text
            assert self._read(0.2) or self.process.poll() is None, self.screen.text
        return self.screen

    def wait_for_text(self, *words: str) -> Screen:
        return self.wait_for(lambda screen: all(word in screen.text for word in words))

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.screen.feed(data.decode("utf-8", "replace"))
        return bool(data)

    def end(self) -> int:
        """Wait for its end; its exit status."""
        until = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < until:
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.wait(timeout=1)

    def is_restored(self) -> bool:
        """Whether the terminal is as it was: no other screen, a cursor, lines and echo."""
        is_same = termios.tcgetattr(self._slave) == self.settings
        return is_same and not self.screen.is_alternate and self.screen.is_cursor_shown

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)
