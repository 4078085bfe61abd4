"""Waits for `recv` of a socket."""

from __future__ import annotations

import socket

import planted

NEAR, FAR = socket.socketpair()


def waits() -> None:
    """Until it is there."""
    NEAR.recv(1)  # line: wait


def wakes() -> None:
    """Ends the wait."""
    FAR.send(b".")


planted.wait_in_turns(waits, wakes, "socket")
