"""What a drainer does whose session was killed, in the place of the session."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from layerscope.capture.handing_over import (
    Message,
    close_door,
    handed_over,
    is_heard,
    speaker,
)
from layerscope.model.layers import OPERATORS
from layerscope.rawfile import layout
from layerscope.rawfile.json_files import SESSION
from layerscope.rawfile.page import ProcessPage


class OrphanedDoor:
    """The socket at which a session listened that was killed. It never waits: memory must be
    emptied meanwhile.
    """

    def __init__(self, listener: socket.socket, program: int) -> None:
        self._listener = listener
        self._program = program
        self._silent: list[socket.socket] = []  # connections that have said nothing yet
        self._bell = select.epoll()
        listener.setblocking(False)
        # Once for each that comes: one for which there is no descriptor would ring for ever.
        self._bell.register(listener, select.EPOLLIN | select.EPOLLET)

    def fileno(self) -> int:
        """The descriptor on which there is something when somebody has come or spoken."""
        return self._bell.fileno()

    def take(self) -> Iterator[tuple[Message, int]]:
        """The memory that has been handed over by now, but for samples; each descriptor only until
        the next one.
        """
        self._bell.poll(0)
        self._let_in()
        silent, self._silent = self._silent, []
        for connection in silent:
            try:
                with handed_over(connection, 0) as handed:
                    message = handed.memory()
                    if message is not None and message["type"] != layout.SEND_SAMPLES:
                        yield message, handed.fds[0]
            except BlockingIOError:
                self._silent.append(connection)
                continue
            except (OSError, struct.error):  # it has left, or asks something
                pass
            connection.close()

    def _let_in(self) -> None:
        """Everybody who waits outside and is listened to."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                pid, uid = speaker(connection)
                if not is_heard(pid, uid, self._program):
                    connection.close()
                    continue
                self._silent.append(connection)
                self._bell.register(connection, select.EPOLLIN)

    def close(self) -> None:
        """Nobody takes anything any more."""
        close_door(self._listener)
        self._bell.close()
        for connection in self._silent:
            connection.close()


def reopened(listener: socket.socket, program: int) -> OrphanedDoor | None:
    """The door, to be opened again. None: there is no descriptor left for it, and it is closed."""
    try:
        return OrphanedDoor(listener, program)
    except OSError:
        close_door(listener)
        return None


def answer(pages: Sequence[ProcessPage]) -> None:
    """Answer the processes that ask whether the library of their framework can be recorded, as
    probers do: nobody can try it out any more, but another process may have the same one. Who has
    named no library yet is answered when it has.
    """
    asking = [page for page in pages if _state(page) == layout.PROBE_PENDING]
    for page in asking:
        library = page.text("library")
        if library:
            same = [one for one in pages if one.text("library") == library]
            _answer_like(page, same)


def _answer_like(page: ProcessPage, same: Sequence[ProcessPage]) -> None:
    """Answer as one of these was, if one can be recorded."""
    good = [one for one in same if _state(one) == layout.PROBE_GOOD]
    for one in good[:1]:
        for name in ("sequence_offset", "forward_thread_offset"):
            page.set(name, one.number(name))
    # Last: the agent reads the rest only after this.
    page.set("probe", layout.PROBE_GOOD if good else layout.PROBE_REFUSED)


def _state(page: ProcessPage) -> int:
    return page.number("probe")


def leave_word(raw: Path) -> None:
    """Say in the place of the session how it ended."""
    what = "layerscope itself was killed before the program ended; its other processes went on"
    problem = {
        "layer": OPERATORS,
        "code": "session_killed",
        "what": what,
        "remedy": "let layerscope run to the end of the program",
        "lost": "what was handed over at that very moment, stacks of threads and processes that "
        "began after it, and how the program ended",
    }
    with contextlib.suppress(OSError):
        (raw / SESSION).write_text(json.dumps({"problems": [problem]}))
