"""Keys of a terminal, one by one, while it stays usable: what is typed is not shown and needs no
line end, Ctrl-C and Ctrl-Z work as ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType

_MOST_BYTES = 1024
_ESCAPE = "\x1b"


class Keyboard:
    """The keys that are pressed at the terminal `descriptor`; -1: there is none.

    `resized`: the window has another size since `wait` was called last.
    """

    def __init__(self, descriptor: int) -> None:
        self.resized = False
        self._descriptor = descriptor
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, until: float) -> str:
        """The keys that are pressed until `until` (time.monotonic), as soon as there are any or
        the window has another size.
        """
        self.resized = False
        listened = [self._wake] if self._descriptor < 0 else [self._wake, self._descriptor]
        while True:
            left = max(until - time.monotonic(), 0)
            ready, _, _ = select.select(listened, [], [], left)
            if not ready:
                return ""
            if self._wake in ready:
                self._note_signals()
                return ""
            if self._descriptor in ready:
                data = os.read(self._descriptor, _MOST_BYTES)
                if not data:  # the terminal is gone
                    listened.remove(self._descriptor)
                    continue
                keys = data.decode("utf-8", "replace")
                # Arrows and the like begin with it and mean nothing here.
                return keys.partition(_ESCAPE)[0]

    def _note_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, _MOST_BYTES)
        self.resized = True

    def _on_resize(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Until the end keys come at once; then the terminal is as it was."""
        if self._descriptor < 0:
            yield
            return
        before = termios.tcgetattr(self._descriptor)
        old = signal.signal(signal.SIGWINCH, self._on_resize)
        try:
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)
            yield
        finally:
            signal.signal(signal.SIGWINCH, old)
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def close(self) -> None:
        """Let go of the pipe that wakes."""
        os.close(self._wake)
        os.close(self._waker)
