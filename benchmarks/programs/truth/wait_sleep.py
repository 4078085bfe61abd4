"""Waits for `time.sleep`."""

from __future__ import annotations

import time

import planted


def waits() -> None:
    """Until it is there."""
    time.sleep(0.03)  # line: wait


def main() -> None:
    """Waits, and computes a little."""
    while planted.going():
        with planted.Wait(wait="sleep", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()
