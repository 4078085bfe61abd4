"""What a process of the program hands over: a connection of its own to the recorder's socket with
one message, of memory or in JSON. The session takes it, and when that was killed, the drainer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from layerscope.host.ancestors import descends
from layerscope.rawfile import layout

_PEER = struct.Struct("iII")
_MESSAGE_BYTES = 65536
_SILENCE_S = 1.0
_ROOT = 0

Message = dict[str, Any]


class Handed(Struct):
    """One message of process `pid` of user `uid`. The descriptors in `fds` are closed afterwards,
    unless `is_kept` says that somebody else does it.
    """

    pid: int
    uid: int
    data: bytes
    fds: list[int]
    is_kept: bool = False

    def comes_from(self, program: int) -> bool:
        """Whether it is one of those that are listened to: `is_heard`."""
        return is_heard(self.pid, self.uid, program)

    def memory(self) -> Message | None:
        """The message as the drainer and the sampler take it, if memory came with it."""
        magic, kind, _, index, process_start = layout.MESSAGE.unpack(self.data)
        if magic != layout.MESSAGE_MAGIC or len(self.fds) != 1:
            return None
        return {"type": kind, "pid": self.pid, "index": index, "process_start": process_start}


def is_heard(pid: int, uid: int, program: int) -> bool:
    """Whether our own user, root, or a process of `program` that has become another user speaks:
    nobody else on this machine is listened to.
    """
    return uid in (os.getuid(), _ROOT) or descends(pid, program)


def speaker(connection: socket.socket) -> tuple[int, int]:
    """The process at the other end, and its user."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(peer)
    return pid, uid


@contextmanager
def handed_over(connection: socket.socket, silence_s: float = _SILENCE_S) -> Iterator[Handed]:
    """The one message of a connection. OSError: there is none within this time."""
    connection.settimeout(silence_s)
    pid, uid = speaker(connection)
    data, fds, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
    handed = Handed(pid, uid, data, fds)
    try:
        yield handed
    finally:
        for fd in () if handed.is_kept else fds:
            os.close(fd)


def close_door(listener: socket.socket) -> None:
    """Let nobody come through this socket any more, whoever else has it open: from now on a
    connection is refused.
    """
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
