"""Waits for `os.read` of a pipe."""

from __future__ import annotations

import os

import planted

READ, WRITE = os.pipe()


def waits() -> None:
    """Until it is there."""
    os.read(READ, 1)  # line: wait


def wakes() -> None:
    """Ends the wait."""
    os.write(WRITE, b".")


planted.wait_in_turns(waits, wakes, "pipe")
