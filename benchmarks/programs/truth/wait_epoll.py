"""Waits for `epoll` of a pipe."""

from __future__ import annotations

import os
import select
import threading
import time

import planted

READ, WRITE = os.pipe()
POLL = select.epoll()
POLL.register(READ, select.EPOLLIN)


def waits() -> None:
    """Until it is there."""
    POLL.poll()  # line: wait
    os.read(READ, 1)


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        os.write(WRITE, b".")


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="event|pipe", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()
