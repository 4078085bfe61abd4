"""Waits for processes."""

from __future__ import annotations

import subprocess

import planted


def waits() -> None:
    """Until it has ended."""
    with planted.Wait(wait="child", wait_function="waits"):
        process = subprocess.Popen(["sleep", "0.1"])  # which waits until the child runs
    with planted.Wait(wait="child", wait_function="waits", wait_line="wait"):
        process.wait()  # line: wait


def main() -> None:
    """Waits, and computes a little."""
    while planted.going():
        waits()
        planted.compute()
    planted.finish()


main()
