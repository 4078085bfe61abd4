"""The user's program as a child of ours: started as if nobody stood in between, and given every
signal that was meant for it, once.

What a fork and an exec by us would change, and is put back: the signal mask, ignored signals, the
limit of descriptors. What stays different: its parent, and that SIGPIPE and SIGXFSZ have their
defaults (our own Python ignored them before it could look what they were). A program that stops
itself does not stop us: nobody would wake us when somebody else continues it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import warnings
from collections.abc import Callable, Iterable
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import astuple, replace

from layerscope.model.errors import RunError

# Whoever sends one of the others to us means us (job control, our own faults and limits) or nobody.
_OURS = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGXCPU,
}
FORWARDED = frozenset(signal.valid_signals()) - _OURS
WATCHED = FORWARDED | {signal.SIGCHLD}
_PATIENCE_S = 1.0
_ANSWER_MS = 200
_SET_BYTES = 16  # a bit for each of the signals 1 to 64
_USAGE = struct.Struct("<9q")
# getrusage(2): blocks of storage are counted in units of this size, whatever its device has.
_BLOCK_BYTES = 512
# Between the last look at it and the exec, memory still grows by some pages.
_GROWS_BYTES = 1 << 20


class ProcessUsage(Struct, frozen=True):
    """What a process has used, those of its children included that it has waited for.

    `max_rss_bytes`, of the largest of them: 0 where it is not known.
    """

    user_ns: int
    system_ns: int
    max_rss_bytes: int
    faults_minor: int
    faults_major: int
    switches_voluntary: int
    switches_forced: int
    storage_read_bytes: int
    storage_written_bytes: int

    @classmethod
    def of(cls, usage: resource.struct_rusage) -> ProcessUsage:
        """The same, as the system says it."""
        return cls(
            round(usage.ru_utime * 1e9),
            round(usage.ru_stime * 1e9),
            usage.ru_maxrss * 1024,
            usage.ru_minflt,
            usage.ru_majflt,
            usage.ru_nvcsw,
            usage.ru_nivcsw,
            usage.ru_inblock * _BLOCK_BYTES,
            usage.ru_oublock * _BLOCK_BYTES,
        )


class Program:
    """One child, from `start` until `wait` returns; it is then a zombie whose counters can be
    read.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.command = command
        self.pid = 0
        self.streams: dict[int, int] = {}  # standard streams that it gets instead of ours
        self.on_resize: Callable[[], bool] = lambda: (
            False
        )  # whether it has to hear of a terminal's new size now
        self._environment = environment
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._children_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        self._mask: set[int] = set()
        self._witness = Witness()
        # Shared with the child: what it had used before its exec, and the signals that it got
        # instead of us.
        self._at_exec = mmap.mmap(-1, _USAGE.size + _SET_BYTES)
        if self._children_ignored:
            # With SIGCHLD ignored nobody can wait for a child: neither we for the program nor for
            # our own.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _raise_descriptor_limit(self._descriptors)

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Start it, in another `environment` if one is given; from now on signals to us are held
        back for `wait`.

        RunError 126 or 127 when it cannot start.
        """
        self._environment = environment or self._environment
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self._witness.start()
        try:
            self.pid = self._spawn(self.command)
            self._drop_what_it_has()
            self._let_go_of_streams()
        except OSError as error:
            self.release()
            raise _not_started(self.command, error) from error

    def _let_go_of_streams(self) -> None:
        """From now on only the program holds them, so that their end shows."""
        for stream in set(self.streams.values()):
            os.close(stream)
        self.streams = {}

    def _spawn(self, command: list[str]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # newer Pythons warn of a fork beside threads; ours only run NumPy's
            try:
                child = subprocess.Popen(
                    command, env=self._environment, close_fds=False, preexec_fn=self._as_child
                )
            except OSError as error:
                path = shutil.which(command[0])
                if error.errno != errno.ENOEXEC or path is None or _is_binary(path):
                    raise
                return self._spawn(
                    ["/bin/sh", path, *command[1:]]
                )  # a script without #!, as execvp does it
        child.returncode = 0  # it is ours to wait for: the object must not
        return child.pid

    def _as_child(self) -> None:
        """What the child does before its exec. Signals are still blocked."""
        missed = _pending(os.getppid()) & ~_bits(signal.sigpending())
        self._at_exec[_USAGE.size :] = missed.to_bytes(_SET_BYTES, "little")
        for number in FORWARDED:
            if missed >> number & 1:
                os.kill(os.getpid(), number)
        self._before_exec()

    def _drop_what_it_has(self) -> None:
        """Signals that came before the fork the child has sent to itself: they must not come
        twice.
        """
        missed = int.from_bytes(self._at_exec[_USAGE.size :], "little")
        for number in FORWARDED:
            if missed >> number & 1 and (came := signal.sigtimedwait({number}, 0)) is not None:
                self._witness.saw(came)

    def _before_exec(self) -> None:
        for number, stream in self.streams.items():
            os.dup2(stream, number)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._descriptors)
        if self._children_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if callable(
            signal.getsignal(signal.SIGINT)
        ):  # Python's own, which would only remember that it came
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._at_exec[: _USAGE.size] = _USAGE.pack(
            *astuple(ProcessUsage.of(resource.getrusage(resource.RUSAGE_SELF)))
        )

    def own_usage(self, whole: resource.struct_rusage) -> ProcessUsage:
        """What the program used of this, which the system counts from our fork on: as a copy of us
        it was large.
        """
        used = ProcessUsage.of(whole)
        before = ProcessUsage(*_USAGE.unpack(self._at_exec[: _USAGE.size]))
        pairs = zip(astuple(used), astuple(before), strict=True)
        grown = ProcessUsage(*(max(now - then, 0) for now, then in pairs))
        is_larger = used.max_rss_bytes > before.max_rss_bytes + _GROWS_BYTES
        max_rss_bytes = used.max_rss_bytes if is_larger else 0
        return replace(grown, max_rss_bytes=max_rss_bytes)

    def wait(self, idle: Callable[[], None]) -> None:
        """Until it has ended, but is not reaped. Calls `idle` every second and when a child of ours
        changed.
        """
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            came = signal.sigtimedwait(WATCHED, _PATIENCE_S)
            if came is None or came.si_signo == signal.SIGCHLD:
                idle()
                continue
            number = came.si_signo
            if not self._witness.saw(came) or (number == signal.SIGWINCH and self.on_resize()):
                # It has ended, or belongs to another user (sudo).
                with contextlib.suppress(OSError):
                    os.kill(self.pid, number)

    def instead_of_us(self) -> NoReturn:
        """Be the program, which could not be started beside us. RunError 126 or 127 when it cannot
        be started.
        """
        self._before_exec()
        become(self.command)

    def release(self) -> None:
        """Take signals as before again. What came for the program when it had just ended is
        dropped.
        """
        self._witness.stop()
        while signal.sigtimedwait(FORWARDED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _bits(signals: Iterable[int]) -> int:
    """A mask with a bit for each signal."""
    mask = 0
    for number in signals:
        mask |= 1 << number
    return mask


def _pending(pid: int) -> int:
    """A bit for each signal to be forwarded that waits for `pid`; none where the system does not
    say.
    """
    waiting = 0
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in ("SigPnd", "ShdPnd"):
                waiting |= int(value, 16) << 1  # its lowest bit is signal 1
    return waiting & _bits(FORWARDED)


def become(command: list[str]) -> NoReturn:
    """Be the program instead of watching it. RunError 126 or 127 when it cannot be started."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # our own Python ignored them
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            path = shutil.which(command[0])
            if error.errno != errno.ENOEXEC or path is None or _is_binary(path):
                raise
            os.execv("/bin/sh", ["/bin/sh", path, *command[1:]])
    except OSError as error:
        raise _not_started(command, error) from error


def lacks_room(error: RunError) -> bool:
    """Whether a program could not be started because the system has no process or no memory left
    for it.
    """
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (
        errno.EAGAIN,
        errno.ENOMEM,
    )


def _not_started(command: list[str], error: OSError) -> RunError:
    is_missing = isinstance(error, FileNotFoundError)
    status = 127 if is_missing else 126
    message = f"cannot run {command[0]}: {error.strerror}"
    return RunError(message, status)


class Witness:
    """A process in our group that does nothing but get signals: what it got too was sent to the
    whole group (by a key of the terminal, by a shell's `kill %1`), so the program has it already.
    """

    def __init__(self) -> None:
        self._pid = -1
        self._ask = self._answer = -1
        self._seen = 0

    def start(self) -> None:
        """Fork it, with every signal blocked; it ends when we do."""
        question, self._ask = os.pipe()
        self._answer, reply = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pid = os.fork()
        if self._pid == 0:
            _be_witness(question, reply)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(question)
        os.close(reply)

    def saw(self, came: signal.struct_siginfo) -> bool:
        """Whether the signal that we got went to the whole group."""
        try:
            os.write(self._ask, b"?")
            poll = select.poll()
            poll.register(self._answer, select.POLLIN)
            if not poll.poll(_ANSWER_MS):
                raise TimeoutError
            self._seen |= int.from_bytes(os.read(self._answer, _SET_BYTES), "little")
        except OSError:
            return (
                came.si_code > 0
            )  # it is gone: a guess; what the kernel sends by itself mostly goes to groups
        # It may have told us of one already that we have not come to.
        bit = 1 << came.si_signo
        saw = bool(self._seen & bit)
        self._seen &= ~bit
        return saw

    def stop(self) -> None:
        """End it."""
        for number in (self._ask, self._answer):
            if number >= 0:
                os.close(number)
        self._ask = self._answer = -1
        if self._pid > 0:
            with contextlib.suppress(
                ChildProcessError
            ):  # killed, and reaped by whoever reaps orphans
                os.waitpid(self._pid, 0)
            self._pid = -1


def _be_witness(question: int, reply: int) -> None:
    """Answer every byte with the set of signals that came since the last. Never returns."""
    try:
        for number in range(3, max(question, reply)):
            if number not in (question, reply):
                with contextlib.suppress(OSError):
                    os.close(number)
        os.closerange(max(question, reply) + 1, max(question, reply) + 1024)
        # The program's own streams must see their end when the program closes them.
        for number in range(3):
            with contextlib.suppress(OSError):
                os.close(number)
        while os.read(question, 1):
            came = 0
            while (one := signal.sigtimedwait(signal.valid_signals(), 0)) is not None:
                came |= 1 << one.si_signo
            os.write(reply, came.to_bytes(_SET_BYTES, "little"))
    finally:
        os._exit(0)


def _is_binary(path: str) -> bool:
    """What a shell asks before it takes a file for a script."""
    with open(path, "rb") as file:
        return b"\0" in file.read(80)


def _raise_descriptor_limit(limits: tuple[int, int]) -> None:
    """We hold a descriptor for every thread of the program."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
