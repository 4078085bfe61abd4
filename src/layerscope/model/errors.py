"""What can go wrong, as one small tree: raised with the remedy in the sentence, caught once, in
`cli`.

LayerscopeError          status 125
├── UsageError           the command line asks for something that does not exist
├── RunError             recording cannot start or go on
└── ReadError            a recording or a foreign file cannot be read
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The name among `known` that somebody who typed `word` may have meant, as a question; empty if
    none is near.
    """
    import difflib  # only where somebody mistyped

    near = difflib.get_close_matches(word.casefold(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class LayerscopeError(Exception):
    """A failure of layerscope itself: what happened, what is kept, the remedy, in one sentence."""

    status = 125


class UsageError(LayerscopeError):
    """The command line asks for something that does not exist; the message lists what does."""


class RunError(LayerscopeError):
    """A recording cannot start or go on; `status` follows `timeout`: 125, 126 or 127."""

    def __init__(self, message: str, status: int = 125) -> None:
        super().__init__(message)
        self.status = status


class ReadError(LayerscopeError):
    """A recording or a foreign file cannot be read."""
