"""Waits for `recv` of a socket."""

from __future__ import annotations

import socket
import threading
import time

import planted

NEAR, FAR = socket.socketpair()


def waits() -> None:
    """Until it is there."""
    NEAR.recv(1)  # line: wait


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        FAR.send(b".")


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="socket", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()
