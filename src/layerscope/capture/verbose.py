"""oneDNN's verbose log of a program while it runs, on request: what the program is told, and the
tap in its output.

oneDNN prints its log on standard output and nowhere else. So the program gets another output of the
same kind, a terminal, a regular file or a pipe, and a process of ours (`verbose_tap`) passes on
what is no line of the log. Where that would show, nothing is put in between, and a sentence says
so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscope.capture.link import open_log, own_command
from layerscope.capture.verbose_tap import (
    FILE,
    FINISH,
    KEEP,
    PIPE,
    RESIZE,
    TAKE,
    TERMINAL,
    copy_size,
)
from layerscope.model.events import Problem
from layerscope.model.layers import PRIMITIVES
from layerscope.rawfile.log_files import ONEDNN_LOG

_STDOUT, _STDERR = 1, 2
# The names of all versions: each library reads its own and those before it.
_VARIABLES = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_TIMESTAMPS = ("ONEDNN_VERBOSE_TIMESTAMP", "DNNL_VERBOSE_TIMESTAMP")
_EXECUTE_AND_CREATE = "2"
_PATIENCE_S = 10.0
_NULL_DEVICE = os.makedev(1, 3)
# Flags of an open file that a program can see and that change what its writes do.
_FLAGS = os.O_APPEND | os.O_NONBLOCK
WITHOUT = "the verbose log of oneDNN"


def asked_by_user(environment: Mapping[str, str]) -> bool:
    """Whether the user has set the log himself: then it stays in the output, as he asked for."""
    return any(environment.get(name) for name in _VARIABLES)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What the program's environment gets beside `environment`: lines of execution and creation,
    with times.
    """
    if asked_by_user(environment):
        return {}
    return dict.fromkeys(_VARIABLES, _EXECUTE_AND_CREATE) | {
        name: "1" for name in _TIMESTAMPS if name not in environment
    }


class VerboseTap:
    """One tap. `streams`: by number of a standard stream, the descriptor that the program gets
    instead of its own.

    Who starts the program closes them then.
    """

    def __init__(self, raw: Path, keeps: bool) -> None:
        self.streams: dict[int, int] = {}
        self.problems: list[Problem] = []
        self._raw = raw
        self._keeps = keeps
        self._is_terminal = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> bool:
        """Put the tap into our standard output. False, and a problem: it stays as it is."""
        try:
            about = os.fstat(_STDOUT)
            opened = self._open(about)
        except (OSError, termios.error) as error:
            return self._refuse(f"the standard output could not be replaced ({error.args[-1]})")
        if opened is None:
            return self._refuse(
                "the standard output is neither a terminal nor a regular file nor a pipe"
            )
        kind, source, ours, more = opened
        self._is_terminal = kind == TERMINAL
        started = self._start_tap(kind, source, more)
        os.close(source)
        if not started:
            os.close(ours)
            return False
        self.streams[_STDOUT] = ours
        with contextlib.suppress(OSError):
            other = os.fstat(_STDERR)
            if (other.st_dev, other.st_ino, other.st_rdev) == (
                about.st_dev,
                about.st_ino,
                about.st_rdev,
            ):
                self.streams[_STDERR] = ours  # so that what goes to both comes in its order
        return True

    def _open(self, about: os.stat_result) -> tuple[str, int, int, list[str]] | None:
        """A stream of the same kind: its kind, the end to read from, the end for the program, more
        for the tap.
        """
        if os.isatty(_STDOUT):
            source, ours = os.openpty()
            copy_size(_STDOUT, ours)
            modes = termios.tcgetattr(_STDOUT)
            modes[1] &= ~termios.OPOST  # the user's own terminal does that
            termios.tcsetattr(ours, termios.TCSANOW, modes)
            return TERMINAL, source, ours, []
        if stat.S_ISREG(about.st_mode):
            path = self._raw / "stdout"
            flags = fcntl.fcntl(_STDOUT, fcntl.F_GETFL)
            is_appended = bool(flags & os.O_APPEND)
            at = about.st_size if is_appended else os.lseek(_STDOUT, 0, os.SEEK_CUR)
            mode = (flags & os.O_ACCMODE) | (flags & _FLAGS)
            ours = os.open(path, mode | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.truncate(path, at)
            os.lseek(ours, at, os.SEEK_SET)
            return (
                FILE,
                os.open(path, os.O_RDONLY | os.O_CLOEXEC),
                ours,
                [str(path.absolute()), str(at)],
            )
        if stat.S_ISFIFO(about.st_mode) or about.st_rdev == _NULL_DEVICE:
            source, ours = os.pipe()
            if stat.S_ISFIFO(about.st_mode):
                with contextlib.suppress(
                    OSError
                ):  # an unprivileged user may not have as much again
                    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, fcntl.fcntl(_STDOUT, fcntl.F_GETPIPE_SZ))
                os.set_blocking(ours, os.get_blocking(_STDOUT))
            return PIPE, source, ours, []
        return None

    def _start_tap(self, kind: str, source: int, more: list[str]) -> bool:
        ours, theirs = socket.socketpair()
        fds = [source, _STDOUT, theirs.fileno()]
        mode = KEEP if self._keeps else TAKE
        words = [kind, *map(str, fds), str((self._raw / ONEDNN_LOG).absolute()), mode, *more]
        command = own_command("layerscope.capture.verbose_tap", *words)
        log = open_log(self._raw, "verbose_tap")
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=[source, theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=log,
                process_group=0,
            )
        except OSError as error:
            ours.close()
            return self._refuse(
                f"the process that takes its lines could not be started ({error.strerror})"
            )
        finally:
            theirs.close()
            if not isinstance(log, int):
                log.close()
        self._control = ours
        return True

    def _refuse(self, why: str) -> bool:
        remedy = "record in a terminal, or into a file or a pipe"
        self.problems.append(
            Problem(PRIMITIVES, "no_verbose", f"{WITHOUT} was not taken: {why}", remedy, WITHOUT)
        )
        return False

    def resize(self) -> bool:
        """The user's terminal has another size: give it to the program's. False: there is none of
        ours.
        """
        if not self._is_terminal or self._control is None:
            return False
        with contextlib.suppress(OSError):
            self._control.settimeout(_PATIENCE_S)
            self._control.sendall(RESIZE)
            return bool(self._control.recv(1))
        return False

    def finish(self) -> None:
        """The program has ended: wait until all that it printed is out. What it left running goes
        on to print.
        """
        if self._control is None or self._process is None:
            return
        result: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            self._control.settimeout(_PATIENCE_S)
            self._control.sendall(FINISH)
            with self._control.makefile("rb") as answer:
                result = json.loads(answer.readline())
        self._control.close()
        self._control = None
        # It may live longer than we do; nobody waits for it then.
        self._process.returncode = 0
        self._report(result)

    def _report(self, result: dict[str, Any]) -> None:
        """Problems of what the tap could not do."""
        again = "record again, with room on the disk"
        if not result:
            what = "the process in the program's standard output did not answer at its end"
            self.problems.append(
                Problem(PRIMITIVES, "verbose_cut", what, "record again", f"the end of {WITHOUT}")
            )
            return
        if result["output"]:
            what = f"the program's standard output took no more ({result['output']})"
            self.problems.append(
                Problem(
                    PRIMITIVES, "output_lost", what, again, "what the program printed after that"
                )
            )
        if result["lost"]:
            why = result["error"] or "there are too many"
            lost, lines = result["lost"], result["lines"]
            what = f"{lost:,} of {lines:,} lines of {WITHOUT} were not kept ({why})"
            self.problems.append(
                Problem(PRIMITIVES, "verbose_cut", what, again, "the primitives in those lines")
            )
