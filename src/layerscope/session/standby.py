"""Opens the door of a program that was started with LAYERSCOPE_AUTOSTART=standby: a recorder beside
it, whose window is opened and closed from outside as that of `layerscope run --paused`.

The program is told by SIGURG, which everybody ignores who has no handler for it, and only if it
has one. It connects to a socket of ours with its pid in the name, and gets what it must know.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from layerscope.capture.link import own_command
from layerscope.model.errors import RunError
from layerscope.session.living import Living, living_of
from layerscope.session.outside import environment_of

# As layerscope/autostart.py has them.
VARIABLE, STANDBY = "LAYERSCOPE_AUTOSTART", "standby"
# A program in one long call of native code hears of a signal at its end.
_PATIENCE_S = 20.0
_READY_S = 60.0
_SETTLED_S = 5.0
_PACKET_BYTES = 65536
_PEER = struct.Struct("iII")


def is_prepared(pid: int) -> bool:
    """Whether the process has a door of ours, as far as we may see."""
    if environment_of(pid).get(VARIABLE) != STANDBY:
        return False
    caught = _status(pid).get("SigCgt", "0")
    return bool(int(caught, 16) >> (signal.SIGURG - 1) & 1)


def open_door(pid: int, folder: Path, name: str = "") -> Living:
    """Have the process recorded, in `folder`, as `name` or else by the program's; its window is
    closed as yet. RunError when it does not answer or cannot be.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(f"\0layerscope-standby-{_status(pid)['NSpid'].split()[-1]}")
            listener.listen(1)
            listener.settimeout(_PATIENCE_S)
            os.kill(pid, signal.SIGURG)
            with _accepted(listener, pid) as connection:
                _hand_over(connection, pid, folder, name)
        except TimeoutError as error:
            raise RunError(
                f"process {pid} does not answer: its main thread is in one long call of native "
                "code, or is stopped. Try again"
            ) from error
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"the door of process {pid} could not be opened: {error}") from error
    return _settled(pid)


def _accepted(listener: socket.socket, pid: int) -> socket.socket:
    """The connection of the process: nobody else may have what it gets."""
    give_up = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up:
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[0] == pid:
            connection.settimeout(_READY_S)
            return connection
        connection.close()
    raise TimeoutError


def _hand_over(connection: socket.socket, pid: int, folder: Path, name: str) -> None:
    """Start a recorder and tell the process how to reach it."""
    if json.loads(connection.recv(_PACKET_BYTES))["records"]:
        raise RunError(
            f"process {pid} is recorded already, by layerscope.profiler: it starts and stops that "
            "itself"
        )
    started = _recorder(pid, folder, name)
    connection.send(json.dumps(started["settings"]).encode(), socket.MSG_NOSIGNAL)
    if not json.loads(connection.recv(_PACKET_BYTES))["records"]:
        raise RunError(f"process {pid} could not load the recorder's library")


def _recorder(pid: int, folder: Path, name: str) -> dict[str, Any]:
    """A recorder beside the process, which stays when we have ended: what it says of itself."""
    about = {"pid": pid, "folder": str(folder), "stem": name, "steered": True}
    command = own_command("layerscope", "_record", json.dumps(about))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    answer: dict[str, Any] = json.loads(line or b"{}")
    if "settings" not in answer:
        raise RunError(f"no recorder could be started: {answer.get('problem', 'it has ended')}")
    return answer


def _settled(pid: int) -> Living:
    give_up = time.monotonic() + _SETTLED_S
    while time.monotonic() < give_up:
        found = living_of(pid)
        if found is not None:
            return found
        time.sleep(0.01)
    raise RunError(f"the recorder of process {pid} has ended")


def _status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
