"""Small files of the kernel, read with as little fuss as they deserve: what is not there is empty.

Nothing in them is trusted: a number that is none is None, whatever stands in its place.
"""

from __future__ import annotations

import math
from pathlib import Path

# No list of the kernel names more CPUs or nodes: NR_CPUS is 8192 at most.
_MOST_NUMBERS = 1 << 16


def text(path: Path) -> str:
    """What the file says, without white space around it; empty where there is none or it may not be
    read.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "replace").strip()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return ""


def number(path: Path) -> int | None:
    """The whole number in the file; None where there is none."""
    return whole(text(path))


def whole(word: str) -> int | None:
    """The whole number that `word` is; None where it is none."""
    try:
        return int(word) if word.isascii() else None
    except ValueError:
        return None


def decimal(word: str) -> float | None:
    """The number that `word` is, with a point; None where it is none."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fields(path: Path) -> dict[str, str]:
    """The lines `name: value` of the file; of a name that comes twice the first."""
    found: dict[str, str] = {}
    content = text(path)
    for line in content.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            continue
        name = name.strip()
        if name not in found:
            found[name] = value.strip()
    return found


def sized(value: str) -> int | None:
    """Bytes of `12 kB`, as /proc/meminfo and its like say it; None where it is no such size."""
    words = value.split()
    if not words:
        return None
    count = whole(words[0])
    if count is None or count < 0:
        return None
    return count * 1024


def listed(words: str) -> tuple[int, ...]:
    """The numbers of a list such as `0-3,8` (man 7 cpuset, "List format"), sorted; what is no such
    list has none.
    """
    found: set[int] = set()
    for part in words.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = whole(first), whole(last if dash else first)
        if low is not None and high is not None and low >= 0 and high < _MOST_NUMBERS:
            found.update(range(low, high + 1))
    return tuple(sorted(found))


def names(folder: Path) -> tuple[str, ...]:
    """The names in a folder, sorted; none where it may not be read."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except (OSError, ValueError):
        return ()
