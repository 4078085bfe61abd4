"""Where everything that commands print passes: what a terminal would obey is written as an escape.

A name, a path, a column of a question or what another program said may hold any character.
`printable` makes one line of it; `guarded` puts a `Screen` in front of stdout and stderr, so that
nothing else can reach a terminal. Machine output that goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

# C0 but for newline and tab, DEL, C1, other ends of lines, marks that turn the direction of
# writing. In JSON their escapes mean the same.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(value: str) -> str:
    """`value` on one line: every character that cannot be seen is written as an escape."""
    return (
        value
        if value.isprintable()
        else "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    )


def line(sentence: str) -> None:
    """Print one line on stdout."""
    print(printable(sentence))


def tell(sentence: str) -> None:
    """Print one line on stderr."""
    print(printable(sentence), file=sys.stderr)


def notify(text: str) -> None:
    """Print on stderr if anybody takes it: a full disk or a reader that left is no reason to
    fail.
    """
    _give(sys.stderr, text)


def notify_styled(text: str) -> None:
    """The same of text that is printable already, with movements of the cursor around it."""
    _give(styled(sys.stderr), text)


def _give(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # What stays in the buffer would make the interpreter exit with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def styled(stream: TextIO) -> TextIO:
    """`stream` for text that is printable already, with colours or movements of the cursor around
    it.
    """
    return stream.stream if isinstance(stream, Screen) else stream


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Until the end stdout, where it is a terminal, and stderr are a `Screen`."""
    before = sys.stdout, sys.stderr
    try:
        if sys.stdout.isatty():
            sys.stdout = cast(TextIO, Screen(sys.stdout))
        sys.stderr = cast(TextIO, Screen(sys.stderr))
        yield
    finally:
        sys.stdout, sys.stderr = before


class Screen:
    """A text stream that writes `stream`, with escapes for what a terminal would obey."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write `text`; line ends stay."""
        self.stream.write(_escaped(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write all `lines`."""
        for text in lines:
            self.write(text)

    @property
    def buffer(self) -> _Bytes:
        """The same for bytes of UTF-8, which come in whole characters."""
        return _Bytes(self)


class _Bytes:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def write(self, data: bytes) -> int:
        text = data.decode("utf-8", "backslashreplace")
        self._screen.write(text)
        return len(data)

    def flush(self) -> None:
        self._screen.flush()


def _escaped(text: str) -> str:
    def code(found: re.Match[str]) -> str:
        return f"\\u{ord(found[0]):04x}"

    return _OBEYED.sub(code, text)
