"""The processes that make answers, one each (the verb `_answer`).

After the first request there is always one that waits: it has imported what it needs, which takes
longer than a small answer itself. It ends when we do.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from typing import Any

from layerscope.capture.link import open_log, own_command
from layerscope.recording.run import Run
from layerscope.session.answer import BY_STANDARD_INPUT


class Answering:
    """Has answers about one recording made; one at a time."""

    def __init__(self, recording: Run) -> None:
        self._recording = recording
        self._waiting: _Process | None = None

    def answer(self, request: dict[str, Any], connection: socket.socket | None) -> None:
        """Have a process of its own answer `request` on `connection`, which is closed; returns when
        it has ended. OSError: there is no room for one.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is None or not waiting.take(request, connection):
            waiting = _Process(self._recording)
            waiting.take(request, connection)
        if connection is not None:
            connection.close()
        waiting.wait()

    def prepare(self) -> None:
        """Let a process wait for the next request."""
        with contextlib.suppress(OSError):
            self._waiting = self._waiting or _Process(self._recording)

    def close(self) -> None:
        """No more requests come."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.wait()


class _Process:
    """One that waits for its request; without one it ends when we let it go."""

    def __init__(self, recording: Run) -> None:
        log = open_log(recording.raw, "answers")
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = own_command("layerscope", "_answer", str(recording.path), BY_STANDARD_INPUT)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    process_group=0,
                )
        except OSError:
            self._ours.close()
            raise
        finally:
            if not isinstance(log, int):
                log.close()

    def take(self, request: dict[str, Any], connection: socket.socket | None) -> bool:
        """Hand it the request; False: it has ended by itself."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        where = nowhere if connection is None else connection.fileno()
        text = json.dumps(request).encode()
        try:
            socket.send_fds(self._ours, [text], [where], socket.MSG_NOSIGNAL)
        except OSError:
            self.wait()
            return False
        finally:
            os.close(nowhere)
        return True

    def wait(self) -> None:
        """Until it has ended."""
        self._ours.close()
        self._process.wait()
