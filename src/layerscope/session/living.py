"""Which recording that is being made right now a process or a folder belongs to.

Every session listens on a socket with an abstract name (`Recorder.listen`) and says which recording
is its own. A recording is here only if its session answers: what stands in files or in the
environment of a process may be of one that has ended, and numbers of processes are used again.
Names of sockets hold within one network namespace, so what runs in another container is not seen.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct, field

from layerscope.host.ancestors import TICK_NS, began_ns, lineage
from layerscope.model.errors import ReadError
from layerscope.recording.run import RANKS, Run

# It says every second that an answer is coming.
SILENCE_S = 10.0
_PACKET_BYTES = 65536
_PEER = struct.Struct("iII")
_NAME = re.compile(r"@(layerscope-(\d+)-[0-9a-f]{16})$")
_ROOT = 0


class Living(Struct, frozen=True):
    """A recording that is being made: its folder, the folder of its raw files, the abstract name
    of the socket of its session, the session's pid, and the pid of the program. A pid is 0 where it
    is of another namespace. `window`: as `Steering.state` says it; `start_ns`: when the recording
    began, on CLOCK_MONOTONIC.
    """

    path: Path
    raw: Path
    socket: str
    session_pid: int
    program_pid: int
    window: dict[str, Any] = field(default_factory=dict)
    start_ns: int = 0


def living_of(pid: int) -> Living | None:
    """The recording of which the process `pid` is a part, or whose session it is; None: of none
    that we can ask.
    """
    for name in _sockets_in(_environment(pid)):
        found = living_behind(name)
        if found is not None:
            return found
    programs: dict[int, Living] = {}
    for found in every_living():
        programs[found.program_pid] = found
        if found.session_pid == pid:
            return found
    below = 0
    for one in lineage(pid):
        if one in programs and (not below or _takes_children(programs[one], below)):
            return programs[one]
        below = one
    return None


def _takes_children(living: Living, child: int) -> bool:
    """Whether the recording of a program has this child of it too: `layerscope attach` may be of
    one process, and what was forked before a running program was recorded is no part of that.
    """
    is_of_one = bool(living.window.get("of_one"))
    return not is_of_one and began_ns(child) + TICK_NS >= living.start_ns


def living_at(path: Path) -> Living | None:
    """The recording in the folder `path`, while it is being made; None: it is none, or complete, or
    its session is gone.
    """
    try:
        info = Run.open(path).info
    except ReadError:
        return None
    if info.state != "running" or info.host.get("name") != os.uname().nodename:
        return None
    for found in every_living():
        if found.session_pid == info.session_pid or _is_same(found.path, path):
            return found
    return None


def living_in(path: Path) -> list[Living]:
    """The recordings in the folder `path`, as long as they are being made: one, or of several ranks
    those of this machine.
    """
    if not (path / RANKS).is_dir():
        found = living_at(path)
        return [found] if found is not None else []
    return [one for one in every_living() if _is_same(one.path.parent.parent, path)]


def every_living() -> Iterator[Living]:
    """All recordings that are being made and that we may ask: our own; for root all."""
    for name in _listening():
        found = living_behind(name)
        if found is not None:
            yield found


def living_behind(name: str) -> Living | None:
    """The recording of the session that listens to the abstract name `name`."""
    try:
        session_pid, answer = _ask(name, {"what": "where"})
        path, raw, program = answer["path"], answer["raw"], answer["program"]
    except (OSError, ValueError, KeyError):
        return None
    window = answer.get("window", {})
    start_ns = int(answer.get("start_ns", 0))
    return Living(Path(path), Path(raw), name, session_pid, int(program), window, start_ns)


def ask(living: Living, request: dict[str, Any]) -> dict[str, Any]:
    """What the session answers. OSError when it has ended or does not answer."""
    _, answer = _ask(living.socket, request)
    return answer


def _ask(name: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The pid of whoever listens to `name`, and the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(SILENCE_S)
        connection.connect("\0" + name)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, _, _ = _PEER.unpack(peer)
        connection.send(json.dumps(request).encode(), socket.MSG_NOSIGNAL)
        answer = b""
        while packet := connection.recv(_PACKET_BYTES):
            answer += packet
    if not answer.strip():
        raise OSError("the session ended before it could answer")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("the session answers something else")
    return pid, found


def _listening() -> list[str]:
    """The abstract names of the sessions of this user; for root of all users."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = {}
    for line in lines:
        name = _NAME.search(line)
        if name and os.getuid() in (_ROOT, int(name[2])):
            found[name[1]] = True
    return list(found)


def _environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty where we may not read it or it is gone."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (word.partition(b"=") for word in data.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _sockets_in(variables: dict[str, str]) -> Iterator[str]:
    """The abstract names of the sessions that `layerscope run`, or the program that started this
    one, has put there.
    """
    for setting in variables.get("LAYERSCOPE_AGENT", "").split(";"):
        key, _, value = setting.partition("=")
        if key == "socket" and value:
            yield os.fsdecode(unquote_to_bytes(value))
    autostart = variables.get("LAYERSCOPE_AUTOSTART", "")
    if autostart.startswith("{"):
        try:
            name = json.loads(autostart)["socket"]
        except (ValueError, KeyError):
            return
        if isinstance(name, str) and name:
            yield name


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
