"""One recording while it happens: starts the program between its doors, takes the memory that its
processes hand over, forwards signals, and reaps.

Three processes stand beside the program: this one, the drainer (`drainer`) and the converter (given by
the caller as a command line). The program is a direct child in the same process group and session, with
our standard streams, our working directory, limits, mask and descriptors: what it would have without us.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerscope.collect import agent, layout
from layerscope.collect.prober import Prober
from layerscope.errors import RunError
from layerscope.host.clock import tsc_is_usable
from layerscope.model.events import Problem

_PEER = struct.Struct("iII")
# The drainer takes everything once more when the program has ended; a stopped one must not keep the prompt.
_DRAINER_PATIENCE_S = 10.0


@dataclass(slots=True)
class Ended:
    """How the program ended and what the kernel says it used."""

    status: int
    wall_ns: int
    user_ns: int
    system_ns: int
    max_rss_bytes: int
    faults_minor: int
    faults_major: int

    @property
    def signal(self) -> int | None:
        """The signal that ended the program, if one did."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def code(self) -> int | None:
        """The exit status of the program, if it exited."""
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None


@dataclass(slots=True)
class Memory:
    """What one process of the program handed over: kept so that a second drainer could go on."""

    pid: int
    process_start: int
    handed: list[tuple[dict[str, Any], int]] = field(default_factory=list)


class Session:
    """Records one program. `problems` is what could not be recorded, known at the end of `run`."""

    def __init__(self, raw: Path) -> None:
        self.raw = raw
        self.problems: list[Problem] = []
        self.drainer_cpu_ns = 0
        self.seen_processes = 0
        self.pid = 0
        self.start_ns = self.end_ns = 0
        self.drainers = 0
        self._use_tsc = tsc_is_usable()
        self._prober = Prober(self._use_tsc)
        self._memories: dict[tuple[int, int], Memory] = {}
        self._listener: socket.socket | None = None
        self._control: socket.socket | None = None
        self._drainer: subprocess.Popen[bytes] | None = None
        self._main: dict[str, Any] = {}
        self._stop_receiver = threading.Event()
        self._temporary_door: tempfile.TemporaryDirectory[str] | None = None
        self._refused: set[int] = set()

    # -- before the program ------------------------------------------------------------------------

    def open_door(self) -> dict[str, str]:
        """Start listening; returns the environment of the program."""
        environment = dict(os.environ)
        unable = agent.check()
        if unable:
            self.problems.append(unable)
            return environment
        name = f"layerscope-{os.getuid()}-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + name)
        self._listener.listen(4096)
        door = agent.make_door(self._door_folder(), name, self._use_tsc)
        old = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{door}{os.pathsep}{old}" if old else str(door)
        return environment

    def _door_folder(self) -> Path:
        """In the recording; elsewhere if its path cannot stand in a list that is separated by colons."""
        if os.pathsep not in str(self.raw):
            return self.raw / "door"
        self._temporary_door = tempfile.TemporaryDirectory(prefix="layerscope-door-")
        return Path(self._temporary_door.name)

    def start_drainer(self) -> None:
        """Start a drainer, and tell it all that is known: the first one nothing, a later one everything."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = own_command("layerscope.collect.drainer", str(theirs.fileno()), str(self.raw))
        self._drainer = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=open_log(self.raw, "drainer"), process_group=0,
        )  # fmt: skip
        theirs.close()
        self._control = ours
        self.drainers += 1
        if self._main:
            self._tell(self._main)
        for memory in self._memories.values():
            for message, fd in memory.handed:
                self._tell(message, fd)

    # -- while the program runs --------------------------------------------------------------------

    def run(self, program: Program) -> Ended:
        """Run `program` to its end. RunError 126 or 127 when it cannot be started."""
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        program.start()
        self.start_ns = start_ns
        self.pid = program.pid
        self._main = {"type": "main", "pid": self.pid, "start_ns": start_ns}
        self._tell(self._main)
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        preparation = threading.Thread(target=import_readers, daemon=True)
        preparation.start()
        program.wait(self._watch_drainer)
        self.end_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._stop_receiver.set()
        receiver.join()
        self._end_drainer()
        _, status, usage = os.wait4(self.pid, 0)
        preparation.join()
        self._prober.finish()
        program.release()
        return Ended(
            status, self.end_ns - start_ns, round(usage.ru_utime * 1e9), round(usage.ru_stime * 1e9),
            usage.ru_maxrss * 1024, usage.ru_minflt, usage.ru_majflt,
        )  # fmt: skip

    def _watch_drainer(self) -> None:
        if self._drainer is None or self._drainer.poll() is None:
            return
        status = self._drainer.returncode
        if self.drainers < 3:
            self.problems.append(
                Problem(
                    "operators", "drainer_restarted", f"the drainer ended in the middle of the run (status {status})",
                    "nothing to do: another one went on; `gaps` counts what did not fit into the rings meanwhile",
                    "",
                )
            )  # fmt: skip
            self.start_drainer()

    # -- what the program hands over ---------------------------------------------------------------

    def _receive(self) -> None:
        """Take what arrives and pass it on, until the program has ended and nothing is left."""
        if self._listener is None:
            return
        while True:
            stopping = self._stop_receiver.is_set()
            waiting = [self._listener] + ([self._control] if self._control else [])
            ready, _, _ = select.select(waiting, [], [], 0 if stopping else 0.1)
            if self._listener in ready:
                self._accept(self._listener)
            elif stopping:
                return
            if self._control in ready:
                self._hear()
            self._prober.publish()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(1.0)
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                pid, uid, _ = _PEER.unpack(peer)
                data, fds, _, _ = socket.recv_fds(connection, layout.MESSAGE.size, 1)
                magic, kind, _, index, process_start = layout.MESSAGE.unpack(data)
                if magic != layout.MESSAGE_MAGIC or uid != os.getuid() or len(fds) != 1:
                    for fd in fds:
                        os.close(fd)
                    return
                self._keep({"type": kind, "pid": pid, "index": index, "process_start": process_start}, fds[0])

    def _keep(self, message: dict[str, Any], fd: int) -> None:
        key = (message["pid"], message["process_start"])
        memory = self._memories.setdefault(key, Memory(*key))
        memory.handed.append((message, fd))
        if message["type"] == layout.SEND_PROCESS:
            self.seen_processes += 1
            self._prober.take(fd, message["pid"])
        self._tell(message, fd)

    def _tell(self, message: dict[str, Any], fd: int = -1) -> None:
        if self._control is None:
            return
        with contextlib.suppress(OSError):
            socket.send_fds(self._control, [json.dumps(message).encode()], [fd] if fd >= 0 else [])

    def _hear(self) -> None:
        """The drainer says that it is done with a process: its memory can go."""
        try:
            data = self._control.recv(4096) if self._control else b""
        except OSError:
            data = b""
        if not data:
            self._control = None
            return
        gone = json.loads(data)
        memory = self._memories.pop((gone["gone"], gone["process_start"]), None)
        for _, fd in memory.handed if memory else []:
            os.close(fd)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what the program runs on: python, torch."""
        return self._prober.versions

    # -- after the program -------------------------------------------------------------------------

    def _end_drainer(self) -> None:
        """Let the drainer take the rest; one that is gone is replaced for that."""
        if self._drainer is not None and self._drainer.poll() is not None:
            self._watch_drainer()
        if self._control is not None:
            self._control.shutdown(socket.SHUT_WR)
        if self._drainer is None:
            return
        try:
            out, _ = self._drainer.communicate(timeout=_DRAINER_PATIENCE_S)
            self.drainer_cpu_ns = json.loads(out)["cpu_ns"]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            self._drainer.kill()
            self._drainer.communicate()
            self.problems.append(
                Problem(
                    "operators", "drainer_lost", "the drainer did not come to its end: the last poll is missing",
                    "record again; the drainer must not be stopped or killed", "up to 0.2 s at the end",
                )
            )  # fmt: skip
        if self._control is not None:
            self._control.close()
        if self._listener is not None:
            self._listener.close()

    def abandon(self) -> None:
        """The program could not be started: end the drainer, close the door."""
        self._end_drainer()

    def explain(self, command: list[str]) -> None:
        """Say why no process of the program came through the door, when none did."""
        self.problems.extend(self._prober.problems)
        if self._listener is None or self.seen_processes:
            return
        self.problems.append(
            Problem(
                "operators", "no_framework",
                f"no process imported PyTorch by a Python that reads PYTHONPATH ({command[0]} did not)",
                "run the program with the Python that has torch; python -I, -E and -S keep layerscope out",
                "operators, ranges, optimizer steps and loader waits",
            )
        )  # fmt: skip


def open_log(raw: Path, name: str) -> Any:
    """Where our own processes complain: never on the program's stderr."""
    try:
        return (raw / f"{name}.log").open("ab")
    except OSError:
        return subprocess.DEVNULL


def import_readers() -> None:
    """Import what the summary needs while the program runs: the prompt comes back sooner."""
    with contextlib.suppress(ImportError):
        import duckdb  # noqa: F401
        import pyarrow.parquet  # noqa: F401

        import layerscope.analyse.summary  # noqa: F401
