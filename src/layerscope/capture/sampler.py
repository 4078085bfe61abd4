"""The session's end of the sampler (`native/sampler`): starts it, hands it the areas of samples,
and ends it.

The sampler is a program in C beside the recorded one. It opens events on that one's threads from
outside, reads what the handler inside writes for each, unwinds, and writes `raw/stacks`. One that
dies is replaced: the areas are kept here until it says that it needs them no more, so another one
goes on with them, in a file of its own. The program does not notice. No call blocks on a sampler
that does not listen.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import errno
import json
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from layerscope.capture.agent import BUILD_AGAIN, LIBRARY
from layerscope.capture.link import Message, open_log
from layerscope.capture.restarts import Restarts
from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.rawfile.json_files import read_options
from layerscope.rawfile.layout import MESSAGE, MESSAGE_MAGIC, SEND_END, SEND_RATE, SEND_USED
from layerscope.rawfile.raw_file import SAMPLER_FILE, stacks_bytes

HZ = 99  # of CPU time; not a divisor of what programs do a hundred times a second
MOST_HZ = 1000
BINARY = LIBRARY.with_name("layerscope-sampler")
_CHECK_S = 10.0
# With fewer, what carries operators goes first: it needs a dozen, and one for each thread.
_FEWEST_FILES = 64
_MS_NS = 1_000_000
# Of what the files of all samplers may take, each one has this part at least.
_LEAST_PART = 32
# At the end it reads all that is left; a stopped one must not keep the prompt.
_PATIENCE_S = 10.0
# The message that names the program; of the others, what layout.SEND_SAMPLES says.
_MAIN = 0
_ALLOW = (
    "allow perf_event_open: sysctl kernel.perf_event_paranoid=2, or for a container docker run "
    "--cap-add PERFMON or --security-opt seccomp=unconfined"
)


class Outside(enum.Enum):
    """What is recorded of a program that runs already, as the sampler takes it."""

    TREE = 1
    ALONE = 3


def rights() -> dict[str, int]:
    """What the kernel allows a sampler of this user, 0 or the errno why not: `cpu_clock` (samples),
    `switches` (exact waits), `wakers` (who ended a wait), `kernel` (what the kernel does for a
    thread).

    OSError, SubprocessError, ValueError and KeyError of a sampler that does not run.
    """
    done = subprocess.run([BINARY, "--check"], capture_output=True, timeout=_CHECK_S, check=True)
    facilities = json.loads(done.stdout)
    return {name: int(facilities[name]) for name in ("cpu_clock", "switches", "wakers", "kernel")}


class Sampler:
    """Samples one program `hz` times a second of CPU time; raw files go to `raw`.

    `outside`: the program runs already, and which of it is recorded. `uses_timers`: the kernel
    gives no events here, so the program is told to set timers of its own.
    """

    def __init__(
        self, raw: Path, problems: list[Problem], hz: int = HZ, outside: Outside | None = None
    ) -> None:
        self.raw = raw
        self.hz = self.lowest_hz = self._now_hz = hz
        # Called every second with what the program, and the handlers of samples in it, have used
        # so far: CPU time in ns.
        self.on_used: Callable[[int, int], None] | None = None
        self.cpu_ns = 0
        self.samplers = 0
        self.uses_timers = False
        self.is_resting = False  # set before `start`: it begins with `resume`
        self._outside = 0 if outside is None else outside.value
        self._problems = problems
        self._restarts = Restarts()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._resolved = ""
        self._main = b""
        self._kept: dict[bytes, int] = {}  # areas, by the message that goes with each
        self._unsent: collections.deque[tuple[bytes, int]] = collections.deque()
        # The program is waited for in one thread, its memory arrives in another.
        self._lock = threading.RLock()

    @property
    def settings(self) -> dict[str, int]:
        """What the agent is told."""
        return {"hz": self.hz, "timers": int(self.uses_timers)}

    def check(self) -> Problem | None:
        """What cannot be recorded here; sets `uses_timers`."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= files < _FEWEST_FILES:
            what = (
                f"stacks need a descriptor for each thread, and the limit of open files is {files}"
            )
            return Problem(
                STACKS,
                "no_descriptors",
                what,
                f"ulimit -n {_FEWEST_FILES} or more",
                "all stacks and waits",
            )
        try:
            refused = rights()["cpu_clock"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            what = f"the sampler of stacks does not run here: {error}"
            return Problem(
                STACKS, "no_sampler", what, f"build it: {BUILD_AGAIN}", "all stacks and waits"
            )
        self.uses_timers = bool(refused)
        if not refused:
            return None
        what = (
            f"the kernel gives no events for samples ({errno.errorcode.get(refused, refused)}): "
            "timers take their place"
        )
        lost = "up to 4 ms of exactness of each sample, page faults; waits are known to 0.1 s"
        return Problem(STACKS, "events_refused", what, _ALLOW, lost)

    def start(self) -> bool:
        """Start it, before the program; whether samples can be taken. What cannot be is among the
        problems.
        """
        unable = self.check()
        if unable is not None:
            self._problems.append(unable)
            if not self.uses_timers:
                return False
        # Not by a link in the recording, whose file system may go away.
        self._resolved = os.path.realpath(self.raw)
        # Timers tick in the program, and somebody has to take what they leave.
        self.is_resting &= not self.uses_timers
        return self.is_resting or self._begin()

    def rest(self) -> None:
        """Take no samples until `resume`: the sampler comes to its end, and another one will go
        on.
        """
        with self._lock:
            if self._process is None or self.uses_timers:
                return
            self.is_resting = True
            self._finish(self._process)

    def resume(self) -> None:
        """Take samples from now on."""
        with self._lock:
            if not self.is_resting:
                return
            self.is_resting = False
            self._begin()
        self.pump()

    def _begin(self) -> bool:
        """Start a sampler and queue all that is known for it: nothing for the first, everything for
        a later one.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._restarts.note_start()
        words = [
            theirs.fileno(),
            self._resolved,
            self._now_hz,
            self._left_bytes(),
            self.samplers,
        ]
        log = open_log(self.raw, "sampler")
        try:
            self._process = subprocess.Popen(
                [str(BINARY), *map(str, words)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        except OSError as error:
            ours.close()
            self._process = None
            what = f"the sampler of stacks could not be started: {error.strerror}"
            self._problems.append(
                Problem(STACKS, "no_sampler", what, "raise ulimit -u", "all stacks and waits")
            )
            return False
        finally:
            theirs.close()
            if not isinstance(log, int):
                log.close()
        ours.setblocking(False)
        self._control = ours
        self.samplers += 1
        main = [(self._main, -1)] if self._main else []
        rate = [(_rate(self._now_hz), -1)] if self.on_used else []
        self._unsent = collections.deque([*main, *rate, *self._kept.items()])
        return True

    def _left_bytes(self) -> int:
        """What its file may take, 0: as much as there is: less than the others have left. All parts
        together stay bounded, however often one takes the place of another.
        """
        most_bytes = stacks_bytes(read_options(self.raw))
        others = Path(self._resolved).glob(f"{SAMPLER_FILE}*")
        used_bytes = sum(file.stat().st_size for file in others)
        return max(most_bytes - used_bytes, most_bytes // (_LEAST_PART * (1 + self.samplers)))

    @property
    def has_unsent(self) -> bool:
        """Whether there is more for the sampler than it took so far."""
        return self._control is not None and bool(self._unsent)

    @property
    def pid(self) -> int:
        """Of the process, 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    def set_rate(self, hz: int) -> None:
        """Sample so often from now on: told with the next `pump`."""
        with self._lock:
            self._now_hz = hz
            self.lowest_hz = min(hz, self.lowest_hz)
            self._unsent.append((_rate(hz), -1))

    def begin(self, pid: int, start_ns: int) -> None:
        """The program `pid` runs, since `start_ns`."""
        with self._lock:
            self._main = MESSAGE.pack(MESSAGE_MAGIC, _MAIN, pid, self._outside, start_ns)
            self._unsent.appendleft((self._main, -1))
        self.pump()

    def keep(self, message: Message, fd: int) -> None:
        """A process handed an area over: keep it, and pass it on."""
        packed = MESSAGE.pack(
            MESSAGE_MAGIC,
            message["type"],
            message["pid"],
            message["index"],
            message["process_start"],
        )
        with self._lock:
            if packed in self._kept:
                os.close(self._kept[packed])
            self._kept[packed] = fd
            self._unsent = collections.deque(pair for pair in self._unsent if pair[0] != packed)
            self._unsent.append((packed, fd))
        self.pump()

    def pump(self) -> None:
        """Tell the sampler what it takes without blocking, and hear what it needs no more."""
        with self._lock:
            try:
                while self._control is not None and self._hear(self._control):
                    pass
                while self._control is not None and self._unsent:
                    packed, fd = self._unsent[0]
                    socket.send_fds(self._control, [packed], [fd] if fd >= 0 else [])
                    self._unsent.popleft()
            except BlockingIOError:
                return
            except OSError:  # it has ended, or does not listen at the end: `watch` or `end` says so
                self._hang_up()

    def _hear(self, control: socket.socket) -> bool:
        """Take one message: of an area that can go, or of what was used. Whether there was one."""
        try:
            packed = control.recv(4096)
        except BlockingIOError:
            return False
        if not packed:
            self._hang_up()
        elif packed in self._kept:
            self._unsent = collections.deque(pair for pair in self._unsent if pair[0] != packed)
            os.close(self._kept.pop(packed))
        elif self.on_used is not None and len(packed) == MESSAGE.size:
            _, kind, _, handler_ms, program_ns = MESSAGE.unpack(packed)
            if kind == SEND_USED:
                self.on_used(program_ns, handler_ms * _MS_NS)
        return bool(packed)

    def _hang_up(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None

    def watch(self) -> None:
        """Replace a sampler that has ended. Call it every second or so, and when a child has
        ended.
        """
        with self._lock:
            if (
                self._process is None
                or self._process.poll() is None
                or not self._restarts.may_start()
            ):
                return
            how = f"ended in the middle of the run (status {self._process.returncode})"
            what = self._restarts.note_end("the sampler of stacks", how)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._hang_up()
            remedy = "nothing to do: another one went on; `gaps` has the time between"
            lost = "stacks and waits of that time, and of up to a quarter of a second before"
            self._problems[:] = [
                known for known in self._problems if known.code != "sampler_restarted"
            ]
            self._problems.append(Problem(STACKS, "sampler_restarted", what, remedy, lost))
            self._begin()
        self.pump()

    def end(self) -> None:
        """Let it take the rest; one that does not answer is killed."""
        with self._lock:
            self.is_resting = False  # nobody may resume it
            if self._process is not None:
                self._finish(self._process)
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()
        self._unsent.clear()

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        """Have it write what is left, and end."""
        with contextlib.suppress(OSError):
            if self._control is not None:
                self._control.settimeout(_PATIENCE_S)
            self._tell_rest()
        self._wait(process)
        self._hang_up()
        self._process = None

    def _tell_rest(self) -> None:
        while self._control is not None and self._unsent:
            packed, fd = self._unsent.popleft()
            socket.send_fds(self._control, [packed], [fd] if fd >= 0 else [])
        if self._control is not None:
            self._control.send(MESSAGE.pack(MESSAGE_MAGIC, SEND_END, 0, 0, 0))
            # Not closed: with something in it that was not read, the other end would lose what was
            # sent.
            self._control.shutdown(socket.SHUT_WR)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            out, _ = process.communicate(timeout=_PATIENCE_S)
            self.cpu_ns += int(json.loads(out.splitlines()[-1])["cpu_ns"])
        except (subprocess.TimeoutExpired, ValueError, KeyError, IndexError):
            process.kill()
            process.communicate()
            what = f"the sampler of stacks did not come to its end (status {process.returncode})"
            remedy = "record again; the sampler must not be stopped or killed"
            self._problems.append(
                Problem(STACKS, "sampler_lost", what, remedy, "stacks and waits from then on")
            )


def _rate(hz: int) -> bytes:
    """The message that asks for samples at this rate."""
    return MESSAGE.pack(MESSAGE_MAGIC, SEND_RATE, 0, hz, 0)
