"""One line on a terminal's stderr that says what takes so long, and goes away when it is over."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator

from layerscope.model import progress
from layerscope.show.screen import notify_styled, printable

_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Rewritten again and again."""

    def now(self, sentence: str) -> None:
        """This is going on."""
        width = shutil.get_terminal_size().columns - 1
        line = f"layerscope: {printable(sentence)}"
        notify_styled(f"{_CLEAR}{line[:width]}")

    def done(self) -> None:
        """It is over."""
        notify_styled(_CLEAR)


@contextlib.contextmanager
def on_terminal() -> Iterator[None]:
    """Show the progress of long work meanwhile, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with progress.told_to(ProgressLine()):
        yield
