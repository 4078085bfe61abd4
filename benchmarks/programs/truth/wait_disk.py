"""Waits for the disk, by `fsync`."""

from __future__ import annotations

import os
import tempfile

import planted


def waits(fd: int) -> None:
    """Until it is on the disk."""
    os.fsync(fd)  # line: wait


def main() -> None:
    """Writes, waits, and computes a little."""
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=".") as file:
        while planted.going():
            os.pwrite(file.fileno(), block, 0)
            with planted.Wait(wait="file", wait_function="waits", wait_line="wait"):
                waits(file.fileno())
            planted.compute()
    planted.finish()


main()
