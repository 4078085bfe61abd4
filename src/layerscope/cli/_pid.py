"""The argument that names a process."""

from __future__ import annotations

from layerscope.model.errors import UsageError


def pid_of(word: str) -> int:
    """The number of a process; UsageError where it is none."""
    if not word.isascii() or not word.isdigit() or not int(word):
        raise UsageError(
            f"{word} is no number of a process. `ps -e` lists those that run; `pgrep -f NAME` "
            "finds one"
        )
    return int(word)
