"""Who is told how far long work is: the command line, where it talks to a terminal. Else nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Listener(Protocol):
    """Shows one line at a time."""

    def now(self, sentence: str) -> None:
        """This is going on, in the place of what was told before."""

    def done(self) -> None:
        """It is over."""


_listening: list[Listener] = []


@contextlib.contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """Tell `listener` meanwhile."""
    _listening.append(listener)
    try:
        yield
    finally:
        _listening.remove(listener)


def listener() -> Listener | None:
    """Who is to be told; None: nobody."""
    return _listening[-1] if _listening else None
