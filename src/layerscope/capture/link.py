"""The session's end of the drainer: starts it, hands it memory, and replaces one that dies or
hangs.

Everything that the program handed over is kept here, so a second drainer gets all of it and goes on
where the rings say. No call blocks on a drainer that does not listen.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from layerscope.capture.drainer_messages import DONE, END, WINDOW
from layerscope.capture.forked import fork, may_fork
from layerscope.capture.restarts import Restarts
from layerscope.model.events import Problem
from layerscope.rawfile.layout import PAGE_FIELDS, SEND_PROCESS, SEND_RING

# The drainer takes everything once more when the program has ended; a stopped one must not keep the
# prompt.
_PATIENCE_S = 10.0
# At the end so many more are tried before the session takes the rest by itself.
_MORE_AT_THE_END = 1
_FLUSH_POLL_S = 0.01
_ORDER_POLL_S = 0.005
# Of the header of a ring, as rawfile/layout.py has it: `published` to `consumed`.
_COUNTS = struct.Struct("<Q56xQ")
_COUNTS_OFFSET = 64
_SOURCE = str(Path(__file__).resolve().parent.parent.parent)
# The BLAS that comes with NumPy ends a process that may start no threads, and none of ours needs
# them.
_START = (
    "import os, runpy, sys; os.environ['OPENBLAS_NUM_THREADS'] = '1'; sys.path.insert(0, "
    "sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)

_DRAINER = "layerscope.capture.drainer"

Message = dict[str, Any]


def own_command(module: str, *arguments: str) -> list[str]:
    """A command that runs a module of ours, whatever the program's PYTHONPATH and working directory
    hold.

    A `queue.py` of the user's beside us, an old NumPy on their path, or a sitecustomize that prints
    would otherwise be ours too.
    """
    flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *flags, "-c", _START, _SOURCE, module, *arguments]


def open_log(raw: Path, name: str) -> Any:
    """Where our own processes complain: never on the program's stderr."""
    try:
        return (raw / f"{name}.log").open("ab")
    except OSError:
        return subprocess.DEVNULL


def ring_counts(fd: int) -> tuple[int, int]:
    """Of the ring in the memory `fd`: records ever published, and records ever taken."""
    published, consumed = _COUNTS.unpack(os.pread(fd, _COUNTS.size, _COUNTS_OFFSET))
    return published, consumed


class DrainerLink:
    """Starts drainers one after the other and keeps what they must know."""

    def __init__(self, raw: Path, problems: list[Problem]) -> None:
        self.raw = raw
        self.drainers = 0
        self.cpu_ns = 0
        # Inherited by every drainer: its other end closes when we and the drainer have ended.
        self.kept_open: int | None = None
        # Where the program hands memory over: a drainer that outlives us listens there.
        self.listener: int | None = None
        self._problems = problems
        self._restarts = Restarts()
        self._was_started = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._main: Message = {}
        self._resolved = ""
        self._kept: dict[tuple[int, int], list[tuple[Message, int]]] = {}
        self._orders: dict[int, Message] = {}  # those that are not done yet, and the last window
        self._window = 0  # the number of that
        self._open_orders: set[int] = set()
        self._gone_records = 0  # of processes whose memory is not kept any more
        self._unsent: collections.deque[tuple[Message, int]] = collections.deque()
        # The program is waited for in one thread, its memory arrives in another.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start a drainer and queue all that is known for it: nothing for the first, everything for
        a later one.
        """
        with self._lock:
            self._was_started = True
            self._restarts.note_start()
            if self._control is not None:
                self._control.close()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._process = self._new_process(theirs.fileno())
            except OSError as error:
                self._process, self._control = None, None
                ours.close()
                what = f"a drainer could not be started ({error.strerror})"
                self._report(
                    "no_drainer",
                    what,
                    "raise ulimit -u",
                    "what did not fit into the rings, as `gaps` counts it",
                )
                return
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            self.drainers += 1
            self._unsent = collections.deque(self._everything())

    def _new_process(self, control: int) -> subprocess.Popen[bytes]:
        """A drainer that listens to this descriptor. OSError where the system has no room for
        it.
        """
        listener = -1 if self.listener is None else self.listener
        keep = [fd for fd in (control, self.kept_open, self.listener) if fd is not None]
        words = [_DRAINER, str(control), self._folder(), str(listener)]
        log = open_log(self.raw, "drainer")
        try:
            if may_fork():
                return fork(words, lambda: _drain(control, self._folder(), listener), keep, log)
            return subprocess.Popen(
                own_command(*words),
                pass_fds=keep,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        finally:
            if not isinstance(log, int):
                log.close()

    def _everything(self) -> list[tuple[Message, int]]:
        """All that a drainer must know, in order."""
        messages: list[tuple[Message, int]] = []
        if self._main:
            messages.append((self._main, -1))
        messages += [(order, -1) for order in self._orders.values()]
        for handed in self._kept.values():
            messages += handed
        return messages

    def _folder(self) -> str:
        """Where the raw files lie: not by a link in the recording, whose file system may go
        away.
        """
        self._resolved = self._resolved or os.path.realpath(self.raw)
        return self._resolved

    def begin(self, pid: int, start_ns: int, base: dict[str, int] | None = None) -> None:
        """The program has started. `base`: of one that runs already, what it had used by then."""
        with self._lock:
            main = {"type": "main", "pid": pid, "start_ns": start_ns, "base": base}
            self._main = main
            self._unsent.appendleft((main, -1))
        self.pump()

    def keep(self, message: Message, fd: int) -> None:
        """A process of the program handed memory over: keep it, and pass it on."""
        with self._lock:
            self._kept.setdefault((message["pid"], message["process_start"]), []).append(
                (message, fd)
            )
            self._unsent.append((message, fd))
        self.pump()

    def pump(self) -> None:
        """Tell the drainer what it takes without blocking, and hear what it says."""
        with self._lock, contextlib.suppress(OSError):
            while self._control is not None:
                try:
                    data = self._control.recv(4096)
                except BlockingIOError:
                    break
                if not data:
                    self._control.close()
                    self._control = None
                    break
                self._hear(json.loads(data))
            while self._control is not None and self._unsent:
                message, fd = self._unsent[0]
                socket.send_fds(
                    self._control, [json.dumps(message).encode()], [fd] if fd >= 0 else []
                )
                self._unsent.popleft()

    def order(self, order: Message, patience_s: float) -> bool:
        """Have the drainer do something (`drainer_messages`); False: it has not in that time."""
        with self._lock:
            number = 1 + max(self._orders, default=self._window)
            order = {**order, "number": number}
            if order["type"] == WINDOW:
                self._orders.pop(self._window, None)
                self._window = number
            self._orders[number] = order
            self._open_orders.add(number)
            self._unsent.append((order, -1))
        give_up = time.monotonic() + patience_s
        while number in self._open_orders and time.monotonic() < give_up:
            self.pump()
            time.sleep(_ORDER_POLL_S)
        return number not in self._open_orders

    def _hear(self, message: Message) -> None:
        """The drainer is done with a process, or with an order."""
        if DONE not in message:
            self._let_go(message)
            return
        self._open_orders.discard(message[DONE])
        if message[DONE] != self._window:  # which another drainer has to know
            self._orders.pop(message[DONE], None)

    def _let_go(self, gone: Message) -> None:
        """The drainer is done with a process: its memory can go."""
        key = (gone["gone"], gone["process_start"])
        handed = self._kept.pop(key, [])
        self._gone_records += _published(handed)
        done = {fd for _, fd in handed}
        self._unsent = collections.deque(pair for pair in self._unsent if pair[1] not in done)
        for fd in done:
            os.close(fd)

    @property
    def has_unsent(self) -> bool:
        """Whether there is more for the drainer than it took so far."""
        return bool(self._unsent)

    @property
    def program_pids(self) -> set[int]:
        """The processes of the program that have handed memory over."""
        with self._lock:
            return {pid for pid, _ in self._kept}

    def steps(self) -> int:
        """How many steps these processes have begun, as their agents count them where there is a
        window.
        """
        at, form = PAGE_FIELDS["window_steps"]
        with self._lock:
            pages = self._memory(SEND_PROCESS)
            return sum(struct.unpack(form, os.pread(fd, 8, at))[0] for fd in pages)

    @property
    def pid(self) -> int:
        """Of the drainer, 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    def records(self) -> int:
        """How many records the program has made so far."""
        with self._lock:
            return self._gone_records + sum(map(_published, self._kept.values()))

    def flush(self, patience_s: float) -> bool:
        """Wait until the drainer has taken what the rings hold now; False when it did not in that
        time.
        """
        with self._lock:
            ends = {fd: ring_counts(fd)[0] for fd in self._memory(SEND_RING)}
        give_up = time.monotonic() + patience_s
        while ends and time.monotonic() < give_up:
            with self._lock:
                kept = {fd for handed in self._kept.values() for _, fd in handed}
                for fd in list(ends):
                    if fd not in kept or ring_counts(fd)[1] >= ends[fd]:
                        del ends[fd]
            if ends:
                time.sleep(_FLUSH_POLL_S)
        return not ends

    def watch(self) -> None:
        """Replace a drainer that has ended, at once as long as that does not happen again and
        again.
        """
        with self._lock:
            lives = self._process is not None and self._process.poll() is None
            if lives or not self._was_started or not self._restarts.may_start():
                return
            self._restarted("ended in the middle of the run")
        self.pump()

    def _restarted(self, how: str) -> None:
        if self._process is not None:
            what = self._restarts.note_end(
                "the drainer", f"{how} (status {self._process.returncode})"
            )
            remedy = (
                "nothing to do: another one went on; `gaps` counts what did not fit into the "
                "rings meanwhile"
            )
            self._report("drainer_restarted", what, remedy, "")
            if self._process.stdout is not None:
                self._process.stdout.close()
        self.start()

    def end(self) -> None:
        """Let the drainer take the rest. One that is gone or does not answer is replaced, at last
        by ourselves.
        """
        more = _MORE_AT_THE_END
        while self._was_started and not self._finished():
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                if self._process.stdout is not None:
                    self._process.stdout.close()
            if not more:
                self._drain_here()
                break
            more -= 1
            self._restarted("did not come to its end")
        if self._control is not None:
            self._control.close()
        for handed in self._kept.values():
            for _, fd in handed:
                os.close(fd)
        self._kept.clear()

    def _finished(self) -> bool:
        """Whether the drainer took everything and said what that cost."""
        if self._process is None:
            return False
        try:
            if self._control is not None:
                self._control.settimeout(_PATIENCE_S)
                _send_all(self._control, self._unsent)
            out, _ = self._process.communicate(timeout=_PATIENCE_S)
            self.cpu_ns += int(json.loads(out)["cpu_ns"])
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
            return False
        return True

    def _drain_here(self) -> None:
        """Be the drainer for the rest: no other one lived long enough."""
        from layerscope.capture.drainer import Drainer

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        everything = collections.deque(self._everything())
        with ours, theirs:
            sender = threading.Thread(target=_send_all, args=(ours, everything), daemon=True)
            sender.start()
            try:
                Drainer(theirs, Path(self._folder())).run()
            except (OSError, ValueError) as error:
                left = sum(
                    published - taken
                    for published, taken in map(ring_counts, self._memory(SEND_RING))
                )
                what = f"no drainer came to its end ({error})"
                self._report(
                    "drainer_lost",
                    what,
                    "record again",
                    f"{left:,} records that were still in the rings",
                )
            sender.join()

    def _memory(self, kind: int) -> list[int]:
        """What processes have handed over of this kind (`layout.SEND_RING` and others)."""
        return [
            fd
            for handed in self._kept.values()
            for message, fd in handed
            if message["type"] == kind
        ]

    def _report(self, code: str, what: str, remedy: str, lost: str) -> None:
        """A problem; it takes the place of an earlier one of the same kind."""
        others = [problem for problem in self._problems if problem.code != code]
        problem = Problem("operators", code, what, remedy, lost)
        self._problems[:] = [*others, problem]


def _drain(control: int, raw: str, listener: int) -> None:
    """Be the drainer."""
    from layerscope.capture.drainer import drain

    drain(control, raw, listener)


def _published(handed: list[tuple[Message, int]]) -> int:
    """Records that one process has made."""
    count = 0
    for message, fd in handed:
        if message["type"] == SEND_RING:
            published, _ = ring_counts(fd)
            count += published
    return count


def _send_all(control: socket.socket, messages: collections.deque[tuple[Message, int]]) -> None:
    """Send these, and that it was all."""
    while messages:
        message, fd = messages.popleft()
        data = json.dumps(message).encode()
        fds = [fd] if fd >= 0 else []
        socket.send_fds(control, [data], fds)
    end = json.dumps({"type": END})
    control.send(end.encode())
    control.shutdown(socket.SHUT_WR)
