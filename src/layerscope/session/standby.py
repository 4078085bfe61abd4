"""Opens the door of a program that was started with LAYERSCOPE_AUTOSTART=standby: a recorder beside
it, whose window is opened and closed from outside as that of `layerscope run --paused`.

The program is told by SIGURG, and only if that is handled by what autostart.py left there: a
program that handles it itself, or is no Python, gets no signal. One of CPython 3.14 may also be
told by a script (remote_script.py), if somebody asks for that. It connects to a socket of ours
with its pid in the name, and gets what it must know.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from layerscope.capture.link import own_command
from layerscope.model.errors import RunError
from layerscope.session import signal_table
from layerscope.session.living import Living, living_of
from layerscope.session.outside import environment_of
from layerscope.session.record import has_ended
from layerscope.session.remote_script import RemoteScript

# As layerscope/autostart.py has them.
VARIABLE, STANDBY = "LAYERSCOPE_AUTOSTART", "standby"
# A program in one long call of native code hears of a signal at its end.
_PATIENCE_S = 20.0
_KNOCK_S = 0.2
_READY_S = 60.0
_SETTLED_S = 5.0
_PACKET_BYTES = 65536
_PEER = struct.Struct("iII")


def is_prepared(pid: int) -> bool:
    """Whether SIGURG opens a door of ours in the process, and means nothing else to it. False, too,
    where we may not see that.
    """
    if environment_of(pid).get(VARIABLE) != STANDBY:
        return False
    caught = _status(pid).get("SigCgt", "0")
    if not int(caught, 16) >> (signal.SIGURG - 1) & 1:
        return False
    with contextlib.suppress(OSError):
        return signal_table.is_ours(pid)
    return False


def is_resting(living: Living) -> bool:
    """Whether nothing is recorded until somebody says so."""
    return bool(living.window.get("steered")) and not living.window.get("open")


class Signal:
    """SIGURG, which opens a door that was prepared; sent once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = -1

    def __enter__(self) -> Signal:
        self._pidfd = os.pidfd_open(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pidfd)

    def again(self) -> None:
        """Send it."""
        if self.has_begun:
            return
        if not is_prepared(self._pid):  # looked at behind the pidfd: no other has its number
            raise RunError(f"process {self._pid} has no door any more")
        signal.pidfd_send_signal(self._pidfd, signal.SIGURG)
        self.has_begun = True

    has_begun = False
    unheard = (
        "does not answer: its main thread is in one long call of native code, or is stopped. Try "
        "again"
    )


def open_door(
    pid: int,
    folder: Path,
    name: str = "",
    options: dict[str, Any] | None = None,
    knock: Signal | RemoteScript | None = None,
) -> Living:
    """Have the process recorded, in `folder`, as `name` or else by the program's; its window is
    closed as yet. `options`: as `record_beside` takes them; `knock`: what has the process come to
    us. RunError when it does not answer or cannot be.
    """
    knock = knock or Signal(pid)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise RunError(f"process {pid} has ended") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            _listen(listener, pid)
            with knock, _accepted(listener, pid, pidfd, knock) as connection:
                about = {"pid": pid, "folder": str(folder), "stem": name, **(options or {})}
                _hand_over(connection, about, has_variable=isinstance(knock, Signal))
        return _settled(pid)
    except (OSError, ValueError, KeyError, RunError) as error:
        if has_ended(pidfd):
            raise RunError(f"process {pid} has ended") from error
        if isinstance(error, RunError):
            raise
        if isinstance(error, TimeoutError):
            raise RunError(f"process {pid} {knock.unheard}") from error
        raise RunError(f"the door of process {pid} could not be opened: {error}") from error
    finally:
        os.close(pidfd)


def _listen(listener: socket.socket, pid: int) -> None:
    try:
        listener.bind(f"\0layerscope-standby-{_status(pid)['NSpid'].split()[-1]}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise RunError(
            f"somebody else is opening the door of process {pid} right now; try again"
        ) from error
    listener.listen(1)


def _accepted(
    listener: socket.socket, pid: int, pidfd: int, knock: Signal | RemoteScript
) -> socket.socket:
    """The connection of the process: nobody else may have what it gets. TimeoutError where it does
    not come, which it does not either if it has ended.
    """
    give_up = time.monotonic() + _PATIENCE_S
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    while (left_s := give_up - time.monotonic()) > 0:
        knock.again()
        came = [descriptor for descriptor, _ in poll.poll(min(left_s, _KNOCK_S) * 1000)]
        if pidfd in came:
            break
        if not came:
            continue
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        came_pid, _, _ = _PEER.unpack(peer)
        if came_pid == pid:
            connection.settimeout(_READY_S)
            return connection
        connection.close()
    raise TimeoutError


def _hand_over(connection: socket.socket, about: dict[str, Any], has_variable: bool) -> None:
    """Start a recorder and tell the process how to reach it. `has_variable`: it was started with
    LAYERSCOPE_AUTOSTART, which tells the programs that it starts.
    """
    pid = about["pid"]
    state = json.loads(connection.recv(_PACKET_BYTES))
    if state["records"]:
        if living_of(pid) is not None:
            return  # somebody else was faster
        raise RunError(
            f"process {pid} is recorded already, by layerscope.profiler: it starts and stops that "
            "itself"
        )
    started = _recorder(about)
    settings = json.dumps({**started["settings"], "tells_children": has_variable})
    connection.send(settings.encode(), socket.MSG_NOSIGNAL)
    state = json.loads(connection.recv(_PACKET_BYTES))
    if not state["records"]:
        raise RunError(f"process {pid} could not load the recorder's library")


def _recorder(about: dict[str, Any]) -> dict[str, Any]:
    """A recorder beside the process, which stays when we have ended: what it says of itself."""
    command = own_command("layerscope", "_record", json.dumps({**about, "steered": True}))
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
