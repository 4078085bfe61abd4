"""One recording while it happens: starts the program between its doors, takes the memory that its
processes hand over, forwards signals, and reaps.

Three processes stand beside the program: this one, the drainer (`link`, `drainer`) and the converter (the
caller's), and a witness of signals (`program`) that only sleeps. The program is a direct child in the same
process group and session, with our standard streams, our working directory, limits, mask and descriptors:
what it would have without us.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from layerscope.collect import agent, layout
from layerscope.collect.link import DrainerLink
from layerscope.collect.prober import Prober
from layerscope.collect.program import Program
from layerscope.host.clock import tsc_is_usable
from layerscope.model.events import Problem

_PEER = struct.Struct("iII")
_POLL_MS = 100
_EVERYTHING = "operators, ranges, optimizer steps and loader waits"


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


class Session:
    """Records one program. `problems` is what could not be recorded, known at the end of `run`."""

    def __init__(self, raw: Path) -> None:
        self.raw = raw
        self.problems: list[Problem] = []
        self.seen_processes = 0
        self.pid = 0
        self.start_ns = self.end_ns = 0
        self.link = DrainerLink(raw, self.problems)
        self._use_tsc = tsc_is_usable()
        self._prober = Prober(self._use_tsc)
        self._listener: socket.socket | None = None
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
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind("\0" + name)
            listener.listen(4096)
            door = agent.make_door(self._door_folder(), name, self._use_tsc)
        except OSError as error:
            listener.close()
            what = f"the door into the program could not be made: {error.strerror}"
            self.problems.append(Problem("operators", "no_door", what, "choose another place with -o", _EVERYTHING))
            return environment
        self._listener = listener
        old = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{door}{os.pathsep}{old}" if old else str(door)
        return environment

    def _door_folder(self) -> Path:
        """In the recording; elsewhere if its path cannot stand in a list that is separated by colons."""
        if os.pathsep not in str(self.raw):
            return self.raw / "door"
        self._temporary_door = tempfile.TemporaryDirectory(prefix="layerscope-door-")
        return Path(self._temporary_door.name)

    # -- while the program runs --------------------------------------------------------------------

    def run(self, program: Program, prepare: Callable[[], None]) -> Ended:
        """Run `program` to its end; `prepare` is called beside it. RunError 126 or 127 when it cannot be started."""
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        program.start()
        self.start_ns = start_ns
        self.pid = program.pid
        with surviving(self.problems):
            self.link.begin(self.pid, start_ns)
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        preparation = threading.Thread(target=prepare, daemon=True)
        preparation.start()
        program.wait(self._watch)
        self.end_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._stop_receiver.set()
        receiver.join()
        with surviving(self.problems):
            self.close()
        _, status, usage = os.wait4(self.pid, 0)
        preparation.join()
        with surviving(self.problems):
            self._prober.finish()
        program.release()
        return Ended(
            status, self.end_ns - start_ns, round(usage.ru_utime * 1e9), round(usage.ru_stime * 1e9),
            usage.ru_maxrss * 1024, usage.ru_minflt, usage.ru_majflt,
        )  # fmt: skip

    def _watch(self) -> None:
        with surviving(self.problems):
            self.link.watch()

    # -- what the program hands over ---------------------------------------------------------------

    def _receive(self) -> None:
        """Take what arrives and pass it on, until the program has ended and nothing is left."""
        if self._listener is None:
            return
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            stopping = self._stop_receiver.is_set()
            waiting = poll.poll(0 if stopping else _POLL_MS)
            if stopping and not waiting:
                return
            with surviving(self.problems):
                if waiting:
                    self._accept(self._listener)
                self.link.pump()
                self._prober.publish()

    def _accept(self, listener: socket.socket) -> None:
        # What arrives may be damaged or no memory at all; the next one must still be taken.
        with contextlib.suppress(OSError, ValueError, struct.error):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(1.0)
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                pid, uid, _ = _PEER.unpack(peer)
                data, fds, _, _ = socket.recv_fds(connection, layout.MESSAGE.size, 1)
            kept = False
            try:
                magic, kind, _, index, process_start = layout.MESSAGE.unpack(data)
                if magic == layout.MESSAGE_MAGIC and len(fds) == 1 and self._lets_in(pid, uid):
                    if kind == layout.SEND_PROCESS:
                        self.seen_processes += 1
                        self._prober.take(fds[0], pid)
                    self.link.keep({"type": kind, "pid": pid, "index": index, "process_start": process_start}, fds[0])
                    kept = True
            finally:
                for fd in () if kept else fds:
                    os.close(fd)

    def _lets_in(self, pid: int, uid: int) -> bool:
        """Our own user, and a program of ours that has become another one; nobody else on this machine."""
        if uid == os.getuid() or _descends(pid, self.pid):
            return True
        self._refused.add(uid)
        return False

    @property
    def span_costs_ns(self) -> tuple[float, float]:
        """CPU time inside the program of one recorded span: of a kind other than backward, and of kind backward."""
        return self._prober.span_costs_ns

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what the program runs on: python, torch."""
        return self._prober.versions

    # -- after the program -------------------------------------------------------------------------

    def close(self) -> None:
        """Let the drainer take the rest, and close the door."""
        self.link.end()
        if self._listener is not None:
            self._listener.close()
        if self._temporary_door is not None:
            self._temporary_door.cleanup()

    def explain(self, command: list[str]) -> None:
        """Say why no process of the program came through the door, when none did."""
        self.problems.extend(self._prober.problems)
        for uid in sorted(self._refused):
            self.problems.append(
                Problem(
                    "operators", "other_user", f"a process of user {uid} offered its records and was not let in",
                    f"record as user {uid} if it belongs to the program", "everything in that process",
                )
            )  # fmt: skip
        if self._listener is None or self.seen_processes:
            return
        self.problems.append(
            Problem(
                "operators", "no_framework",
                f"no process imported PyTorch by a Python that reads PYTHONPATH ({command[0]} did not)",
                "run the program with the Python that has torch; python -I, -E and -S keep layerscope out",
                _EVERYTHING,
            )
        )  # fmt: skip


@contextlib.contextmanager
def surviving(problems: list[Problem]) -> Iterator[None]:
    """A fault of ours must not become one of the program: not its status, not its signals, not its memory.

    The one broad except outside of the program: whatever went wrong is said in the recording.
    """
    try:
        yield
    except Exception as error:
        what = f"layerscope itself failed: {type(error).__name__}: {error}"
        if all(problem.what != what for problem in problems):
            problems.append(Problem("operators", "internal_error", what, "report it, with this sentence", "not known"))


def _descends(pid: int, ancestor: int) -> bool:
    """Whether the living process `pid` is `ancestor` or a descendant of it."""
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            return False
    return pid == ancestor and ancestor > 1
