"""The inside of a door that was prepared by LAYERSCOPE_AUTOSTART=standby, when somebody opens it.

Whoever sends SIGURG listens on a socket with an abstract name that has our pid in it, and must be
our own user or root: what comes by it says which library is loaded into this process.
"""

from __future__ import annotations

import json
import os
import socket
import struct

from layerscope.profiler.steering import AUTOSTART, open_door, steering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# While a recorder is started.
PATIENCE_S = 60.0
_PACKET_BYTES = 65536
_PEER = struct.Struct("iII")
_ROOT = 0


def name_of(pid: int) -> str:
    """The abstract name on which whoever opens the door of the process `pid` listens."""
    return f"\0layerscope-standby-{pid}"


def open_recording() -> None:
    """Hear from whoever sent the signal, and record from now on as they say. Nobody there: it was
    a signal for somebody else.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(name_of(os.getpid()))
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, uid, _ = _PEER.unpack(peer)
        trusted = (os.geteuid(), _ROOT)
        if uid not in trusted:
            return
        _say(connection, {"records": bool(steering.settings)})
        data = connection.recv(_PACKET_BYTES)
        if data:
            asked = json.loads(data)
            _say(connection, {"records": _record(asked)})


def _record(settings: dict[str, Any]) -> bool:
    """Hand over what the recorder with these settings asks for; the programs that we start, too."""
    with steering.lock:
        if steering.settings:
            return False
        tells_children = settings.pop("tells_children", True)
        door = open_door(settings["hooks"])
        door.settings.update(settings)
        steering.adopt(door)
        if tells_children:
            os.environ[AUTOSTART] = json.dumps(settings)
        steering.run()
        return steering.agent is not None


def _say(connection: socket.socket, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode()
    connection.send(data, socket.MSG_NOSIGNAL)
