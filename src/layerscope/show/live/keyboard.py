"""Keys of a terminal, one by one, while it stays usable: what is typed is not shown and needs no
line end, Ctrl-C works as ever, and who asks for keys is told of Ctrl-Z.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Any

_MOST_BYTES = 1024
# Arrows and the like, which mean nothing here; keys may come with them.
_ESCAPED = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O[@-~])?")
_SIGNALS = (signal.SIGWINCH, signal.SIGTSTP)


class Keyboard:
    """The keys that are pressed at the terminal `descriptor`; -1: there is none.

    Since `wait` was called last: `is_resized`, the window has another size; `is_stopped`, somebody
    wants us to stop for a while.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_resized = self.is_stopped = False
        self._descriptor = descriptor
        self._before: list[Any] = []
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, until: float) -> str:
        """The keys that are pressed until `until` (time.monotonic), as soon as there are any or
        a signal tells something.
        """
        self.is_resized = self.is_stopped = False
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
                return _ESCAPED.sub("", keys)

    def _note_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            told = os.read(self._wake, _MOST_BYTES)
            self.is_resized = signal.SIGWINCH in told
            self.is_stopped = signal.SIGTSTP in told

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, bytes([number]))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Until the end keys come at once; then the terminal is as it was."""
        if self._descriptor < 0:
            yield
            return
        before = self._before = termios.tcgetattr(self._descriptor)
        old = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def stop(self) -> None:
        """Stop this process, with the terminal as the shell knows it, until it is continued."""
        now = termios.tcgetattr(self._descriptor)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
        os.kill(os.getpid(), signal.SIGSTOP)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, now)

    def close(self) -> None:
        """Let go of the pipe that wakes."""
        os.close(self._wake)
        os.close(self._waker)
