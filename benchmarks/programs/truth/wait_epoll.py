"""Waits for `epoll` of a pipe."""

from __future__ import annotations

import os
import select

import planted

READ, WRITE = os.pipe()
POLL = select.epoll()
POLL.register(READ, select.EPOLLIN)


def waits() -> None:
    """Until it is there."""
    POLL.poll()  # line: wait
    os.read(READ, 1)


def wakes() -> None:
    """Ends the wait."""
    os.write(WRITE, b".")


planted.wait_in_turns(waits, wakes, "event|pipe")
