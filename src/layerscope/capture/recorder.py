"""What stands beside a program while it is recorded, whoever started it: a door that listens, the
drainer behind it, and the answers about its build of a framework.

`Session` is one that starts the program itself; the verb `_record` stands beside a program that
runs already. A process of the program sends its memory, or asks for something in JSON
(`layerscope.profiler` does): a question is handed on to `on_request`, with the connection that
waits for the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from layerscope.capture import agent
from layerscope.capture.adapter import Shapes
from layerscope.capture.frameworks import adapters
from layerscope.capture.handing_over import Handed, close_door, handed_over
from layerscope.capture.link import DrainerLink
from layerscope.capture.sampler import Sampler
from layerscope.host.clock import tsc_is_usable
from layerscope.model.events import Problem
from layerscope.model.frameworks import titles
from layerscope.model.layers import COUNTERS
from layerscope.rawfile import layout

# While somebody waits for an answer or for memory to be passed on, and else.
_POLL_MS, _QUIET_POLL_MS = 100, 500
EVERYTHING = "operators, ranges, optimizer steps and loader waits"

Request = dict[str, Any]


class Recorder:
    """Takes what the processes of one program hand over, from `listen` to `end`; raw files go to
    `raw`.
    """

    def __init__(self, raw: Path) -> None:
        self.raw = raw
        self.problems: list[Problem] = []
        self.seen_processes = 0
        self.pid = 0
        self.base: dict[str, int] | None = None  # what a program that runs already had used
        self.start_ns = self.end_ns = 0
        self.shapes: Shapes | None = None  # what reads the shapes of inputs, where they are wanted
        self.window: list[object] | None = (
            None  # what of the program is recorded, as the agent takes it; None: all
        )
        self.link = DrainerLink(raw, self.problems)
        self.sampler: Sampler | None = None  # of stacks, where they are wanted
        self.layers: dict[str, object] = {}  # settings of layers that were asked for or left out
        # Takes the connection over, and closes it when it has answered.
        self.on_request: Callable[[socket.socket, Request], None] | None = None
        self.on_watch: list[Callable[[], None]] = []
        self._use_tsc = tsc_is_usable()
        self._probers = [one.prober(self._use_tsc) for one in adapters() if one.prober]
        self._listener: socket.socket | None = None
        self._takes_memory = True
        self._receiver: threading.Thread | None = None
        self._stop_receiver = -1  # an event (eventfd(2)), while it receives
        self._refused: set[int] = set()

    def listen(self) -> agent.Settings | None:
        """Open the socket; what the program must know to come through it. None, and a problem, when
        it cannot be.
        """
        unable = agent.check()
        if unable:
            self.problems.append(unable)
            return None
        name = self._bind()
        return agent.settings(name, self._use_tsc) if name else None

    def listen_for_requests(self) -> None:
        """Open the socket for questions alone: the program knows nothing of it."""
        self._takes_memory = False
        self._bind()

    def _bind(self) -> str:
        """The name that the socket listens at; empty, and a problem, where there can be none."""
        name = f"layerscope-{os.getuid()}-{os.urandom(8).hex()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind("\0" + name)
            listener.listen(4096)
        except OSError as error:
            listener.close()
            if self._takes_memory:
                self.say_no_door(error)
            return ""
        self._listener = listener
        if self._takes_memory:
            self.link.listener = listener.fileno()
        return name

    def stop_listening(self) -> None:
        """Close the socket again: nobody can come through it."""
        if self._listener is not None:
            close_door(self._listener)
            self._listener, self.link.listener = None, None

    def say_no_door(self, error: OSError) -> None:
        """The program cannot be reached, because of `error`."""
        what = f"the injection into the program could not be prepared: {error.strerror}"
        self.problems.append(
            Problem("operators", "no_door", what, "choose another place with -o", EVERYTHING)
        )

    @property
    def is_outside(self) -> bool:
        """Whether nothing of ours is in the program."""
        return not self._takes_memory

    # -- while the program runs --------------------------------------------------------------------

    def begin(self, pid: int, start_ns: int) -> None:
        """The program `pid` runs since `start_ns`: take what it hands over from now on."""
        self.pid, self.start_ns = pid, start_ns
        with surviving(self.problems):
            if self.sampler is not None:
                self.sampler.begin(pid, start_ns)
            self.link.begin(pid, start_ns, self.base)
            self._stop_receiver = os.eventfd(0)
            receiver = threading.Thread(target=self._receive, daemon=True)
            receiver.start()
            self._receiver = receiver

    def watch(self) -> None:
        """Call it every second or so: replaces a drainer or a sampler that has ended."""
        with surviving(self.problems):
            self.link.watch()
            if self.sampler is not None:
                self.sampler.watch()
            for act in self.on_watch:
                act()

    def end(self, end_ns: int) -> None:
        """The program ended at `end_ns`: let the drainer take the rest, and close the door."""
        self.end_ns = end_ns
        if self._receiver is not None:
            os.eventfd_write(self._stop_receiver, 1)
            self._receiver.join()
            os.close(self._stop_receiver)
        with surviving(self.problems):
            self.close()

    def close(self) -> None:
        """Let the drainer take the rest, and close the door."""
        if self.sampler is not None:
            self.sampler.end()
        self.link.end()
        if self._listener is not None:
            close_door(self._listener)

    # -- what the program hands over ---------------------------------------------------------------

    def _receive(self) -> None:
        """Take what arrives and pass it on, until the program has ended and nothing is left."""
        if self._listener is None:
            return
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._stop_receiver, select.POLLIN)
        while True:
            came = [descriptor for descriptor, _ in poll.poll(self._patience_ms())]
            if came == [self._stop_receiver]:
                return
            with surviving(self.problems):
                if self._listener.fileno() in came:
                    self._accept(self._listener)
                self.link.pump()
                if self.sampler is not None:
                    self.sampler.pump()
                for prober in self._probers:
                    prober.publish()

    def _patience_ms(self) -> int:
        """When to look again at what tells nobody that it has something to say."""
        is_waited_for = (
            self.link.has_unsent
            or (self.sampler is not None and self.sampler.has_unsent)
            or any(prober.is_waited_for for prober in self._probers)
        )
        return _POLL_MS if is_waited_for else _QUIET_POLL_MS

    def _accept(self, listener: socket.socket) -> None:
        # What arrives may be damaged or no memory at all; the next one must still be taken.
        with contextlib.suppress(OSError, ValueError, struct.error):
            connection, _ = listener.accept()
            if not self._hear(connection):
                connection.close()

    def _hear(self, connection: socket.socket) -> bool:
        """Take the one message of a connection; whether somebody else closes it."""
        with handed_over(connection) as handed:
            if not handed.comes_from(self.pid):
                self._refused.add(handed.uid)
                return False
            if handed.data.startswith(b"{") and self.on_request is not None:
                request = json.loads(handed.data)
                if "file" in request and handed.uid != os.getuid():
                    # It has given up our rights, and must not write with them.
                    why = f"the recorder writes no file for user {handed.uid}"
                    connection.send(json.dumps({"error": why}).encode())
                    return False
                self.on_request(connection, {**request, "pid": handed.pid})
                return True
            handed.is_kept = self._keep(handed)
        return False

    def _keep(self, handed: Handed) -> bool:
        """Memory that a process handed over; False when it is none."""
        message = handed.memory()
        if message is None:
            return False
        (fd,) = handed.fds
        if message["type"] == layout.SEND_PROCESS:
            self.seen_processes += 1
            for prober in self._probers:
                prober.take(fd, handed.pid)
        if message["type"] != layout.SEND_SAMPLES:
            self.link.keep(message, fd)
        elif self.sampler is not None:
            self.sampler.keep(message, fd)
        else:
            return False
        return True

    # -- after the program -------------------------------------------------------------------------

    @property
    def span_costs_ns(self) -> tuple[float, float]:
        """CPU time inside the program of one recorded span: of a kind other than backward, and of
        kind backward; of several frameworks the dearest.
        """
        shapes_ns = self.shapes.cost_ns if self.shapes else 0.0
        costs = [prober.span_costs_ns for prober in self._probers]
        operator_ns = max((operator for operator, _ in costs), default=0.0)
        backward_ns = max((backward for _, backward in costs), default=0.0)
        return operator_ns + shapes_ns, backward_ns + shapes_ns

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what the program runs on: python, the framework, its libraries."""
        versions: dict[str, str] = {}
        for prober in self._probers:
            versions |= prober.versions
        return versions

    def finish_probes(self) -> None:
        """Wait for what is still being asked about the program's framework: it is kept for the next
        time.
        """
        with surviving(self.problems):
            for prober in self._probers:
                prober.finish()

    def explain(self, command: list[str]) -> None:
        """Say why no process of the program came through the door, when none did."""
        for prober in self._probers:
            self.problems += prober.problems
        for uid in sorted(self._refused):
            self.problems.append(
                Problem(
                    "operators",
                    "other_user",
                    f"a process of user {uid} sent its records, which were refused",
                    f"record as user {uid} if it belongs to the program",
                    "everything in that process",
                )
            )
        is_door = self._listener is not None and self._takes_memory
        if is_door and not self.seen_processes:
            nobody = self.nobody_came(command)
            self.problems += [nobody] if nobody not in self.problems else []
        if not Path("/proc/self/stat").exists():
            what = "/proc is not mounted here, so nothing about a process could be read"
            lost = "CPU time, memory, names of threads and other counters"
            self.problems.append(
                Problem(COUNTERS, "no_proc", what, "mount it: mount -t proc proc /proc", lost)
            )

    def nobody_came(self, command: list[str]) -> Problem:
        """Why no process handed anything over, as far as that is known."""
        return Problem(
            "operators",
            "no_framework",
            f"the program imported no {titles()} while the profiler ran",
            "call set_state('run') before the work, not after it",
            EVERYTHING,
        )


@contextlib.contextmanager
def surviving(problems: list[Problem]) -> Iterator[None]:
    """A fault of ours must not become one of the program: not its status, not its signals, not its
    memory.

    The one broad except outside of the program: whatever went wrong is said in the recording.
    """
    try:
        yield
    except Exception as error:
        problem = _fault(error)
        if all(known.what != problem.what for known in problems):
            problems.append(problem)


def _fault(error: Exception) -> Problem:
    """What to say about `error`, which nobody expected: mostly that it is a fault of ours."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        what = "the limit of processes leaves layerscope no thread of its own"
        return Problem("operators", "no_threads", what, "raise that limit (ulimit -u)", EVERYTHING)
    what = f"layerscope itself failed: {type(error).__name__}: {error}"
    return Problem(
        "operators", "internal_error", what, "report it, with this sentence", "not known"
    )
