"""The session's end of the sampler (`native/sampler`): starts it, hands it the areas of samples, and ends it.

The sampler is a program in C beside the recorded one. It opens events on that one's threads from outside, reads what
the handler inside writes for each, unwinds, and writes `raw/stacks`. When it is gone nothing is sampled any more; the
program does not notice. No call blocks on a sampler that does not listen.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import socket
import subprocess
import threading
from pathlib import Path

from layerscope.collect.agent import LIBRARY
from layerscope.collect.layout import MESSAGE, MESSAGE_MAGIC
from layerscope.collect.link import Message, open_log
from layerscope.model.events import Problem
from layerscope.model.layers import STACKS

HZ = 99  # of CPU time; not a divisor of what programs do a hundred times a second
MOST_HZ = 1000
BINARY = LIBRARY.with_name("layerscope-sampler")
_CHECK_S = 10.0
# At the end it reads all that is left; a stopped one must not keep the prompt.
_PATIENCE_S = 10.0
# The message that names the program; of the others, what layout.SEND_SAMPLES says.
_MAIN = 0
_ALLOW = (
    "allow perf_event_open: sysctl kernel.perf_event_paranoid=2, or for a container docker run --cap-add PERFMON or "
    "--security-opt seccomp=unconfined"
)


class Sampler:
    """Samples one program `hz` times a second of CPU time; raw files go to `raw`.

    `uses_timers`: the kernel gives no events here, so the program is told to set timers of its own.
    """

    def __init__(self, raw: Path, problems: list[Problem], hz: int = HZ) -> None:
        self.raw = raw
        self.hz = hz
        self.cpu_ns = 0
        self.uses_timers = False
        self._problems = problems
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._untold: collections.deque[tuple[bytes, int]] = collections.deque()
        # The program is waited for in one thread, its memory arrives in another.
        self._lock = threading.RLock()

    @property
    def settings(self) -> dict[str, int]:
        """What the agent is told."""
        return {"hz": self.hz, "timers": int(self.uses_timers)}

    def check(self) -> Problem | None:
        """What cannot be recorded here; sets `uses_timers`."""
        try:
            done = subprocess.run([BINARY, "--check"], capture_output=True, timeout=_CHECK_S, check=True)
            refused = int(json.loads(done.stdout)["cpu_clock"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            what = f"the sampler of stacks does not run here: {error}"
            return Problem(STACKS, "no_sampler", what, "build it: python3 dev.py native", "all stacks and waits")
        self.uses_timers = bool(refused)
        if not refused:
            return None
        what = (
            f"the kernel gives no events for samples ({errno.errorcode.get(refused, refused)}): timers take their place"
        )
        lost = "up to 4 ms of exactness of each sample, page faults; waits are known to 0.1 s"
        return Problem(STACKS, "events_refused", what, _ALLOW, lost)

    def start(self) -> bool:
        """Start it, before the program; whether samples can be taken. What cannot be is among the problems."""
        unable = self.check()
        if unable is not None:
            self._problems.append(unable)
            if not self.uses_timers:
                return False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Not by a link in the recording, whose file system may go away.
        command = [str(BINARY), str(theirs.fileno()), os.path.realpath(self.raw), str(self.hz)]
        log = open_log(self.raw, "sampler")
        try:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            what = f"the sampler of stacks could not be started: {error.strerror}"
            self._problems.append(Problem(STACKS, "no_sampler", what, "raise ulimit -u", "all stacks and waits"))
            return False
        finally:
            theirs.close()
            if not isinstance(log, int):
                log.close()
        ours.setblocking(False)
        self._control = ours
        return True

    def begin(self, pid: int, start_ns: int) -> None:
        """The program `pid` runs, since `start_ns`."""
        with self._lock:
            self._untold.appendleft((MESSAGE.pack(MESSAGE_MAGIC, _MAIN, pid, 0, start_ns), -1))
        self.pump()

    def keep(self, message: Message, fd: int) -> None:
        """A process handed an area over: pass it on. `fd` is closed then."""
        packed = MESSAGE.pack(
            MESSAGE_MAGIC, message["type"], message["pid"], message["index"], message["process_start"]
        )
        with self._lock:
            self._untold.append((packed, fd))
        self.pump()

    def pump(self) -> None:
        """Tell the sampler what it takes without blocking."""
        with self._lock:
            while self._untold:
                packed, fd = self._untold[0]
                try:
                    if self._control is not None:
                        socket.send_fds(self._control, [packed], [fd] if fd >= 0 else [])
                except BlockingIOError:
                    return
                except OSError:  # it has ended, or does not listen at the end: `end` says so
                    self._hang_up()
                self._untold.popleft()
                if fd >= 0:
                    os.close(fd)

    def _hang_up(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None

    def end(self) -> None:
        """Let it take the rest; one that does not answer is killed."""
        if self._process is None:
            return
        with self._lock, contextlib.suppress(OSError):
            if self._control is not None:
                self._control.settimeout(_PATIENCE_S)
            self.pump()
            self._hang_up()
        try:
            out, _ = self._process.communicate(timeout=_PATIENCE_S)
            self.cpu_ns = int(json.loads(out.splitlines()[-1])["cpu_ns"])
        except (subprocess.TimeoutExpired, ValueError, KeyError, IndexError):
            self._process.kill()
            self._process.communicate()
            status = self._process.returncode
            what = f"the sampler of stacks did not come to its end (status {status})"
            remedy = "record again; the sampler must not be stopped or killed"
            self._problems.append(Problem(STACKS, "sampler_lost", what, remedy, "stacks and waits from then on"))
        self._process = None
