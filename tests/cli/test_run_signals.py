"""Signals and terminals: what is sent to `layerscope run` reaches the program, and reaches it
once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential import PROGRAMS, Differential, environment, program
from tests.repeated import also

PATIENCE_S = 30
pytestmark = pytest.mark.slow


@pytest.fixture
def differential(tmp_path: Path) -> Differential:
    return Differential(tmp_path)


class Terminal:
    """A program on a terminal of its own: what it prints, what is typed."""

    def __init__(self, command: list[str], folder: Path, shell: bool = False) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        self.seen = b""
        self._events, events = os.pipe()
        os.set_inheritable(events, True)

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.dup2(events, 3)

        words = [sys.executable, str(PROGRAMS / "job_shell.py"), *command] if shell else command
        self.process = subprocess.Popen(
            words, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment(), preexec_fn=own_terminal,
            pass_fds=[3] if shell else [],
        )  # fmt: skip
        os.close(slave)
        os.close(events)

    def read(self, wanted: bytes) -> bytes:
        """Everything printed so far, as soon as `wanted` is in it."""
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.5)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:  # the last program on the terminal has ended
                    assert wanted in self.seen, self.seen
        return self.seen

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 50, 0, 0))

    def events(self) -> list[str]:
        return os.read(self._events, 4096).decode().splitlines()

    def program_pid(self) -> int:
        return int(self.read(b"ready").split(b"ready ")[1].split()[0])

    def close(self) -> None:
        for number in (self.master, self._events):
            with contextlib.suppress(OSError):
                os.close(number)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def terminal(
    differential: Differential, command: list[str], recorded: bool, shell: bool = False
) -> Iterator[Terminal]:
    words = [*differential.recorder(), *command] if recorded else command
    one = Terminal(words, differential.work, shell)
    try:
        yield one
    finally:
        one.close()


def counts(text: bytes) -> dict[str, int]:
    """What signals.py says at its end."""
    line = next(line for line in text.decode().splitlines() if line.startswith("["))
    return dict(eval(line))


@pytest.mark.parametrize("recorded", [False, True])
def test_keys_of_a_terminal_reach_the_program_once(
    recorded: bool, differential: Differential, program_python: str
) -> None:
    with terminal(differential, program(program_python, "signals.py"), recorded) as one:
        pid = one.program_pid()
        for act, name in ((lambda: one.type(b"\x03"), b"SIGINT"), (lambda: one.type(b"\x1c"), b"SIGQUIT"),
                          (one.resize, b"SIGWINCH")):  # fmt: skip
            act()
            one.read(b"got " + name)
        os.kill(pid, signal.SIGTERM)
        assert counts(one.read(b"]")) == {"SIGINT": 1, "SIGQUIT": 1, "SIGWINCH": 1, "SIGTERM": 1}
        assert one.process.wait(PATIENCE_S) == 9


@pytest.mark.parametrize("recorded", [False, True])
def test_a_job_is_stopped_and_continued_once(
    recorded: bool, differential: Differential, program_python: str
) -> None:
    command = program(program_python, "signals.py", "SIGTSTP")
    with terminal(differential, command, recorded, shell=True) as one:
        pid = one.program_pid()
        one.type(b"\x1a")
        one.read(b"got SIGCONT")
        os.kill(pid, signal.SIGTERM)
        assert counts(one.read(b"]")) == {"SIGCONT": 1, "SIGTERM": 1}
        assert one.process.wait(PATIENCE_S) == 0
        assert one.events() == [f"stopped by {int(signal.SIGTSTP)}", "ended 9"]


@pytest.mark.parametrize("recorded", [False, True])
def test_ctrl_c_ends_a_program_that_does_not_mind_as_before(
    recorded: bool, differential: Differential, program_python: str
) -> None:
    with terminal(differential, program(program_python, "signals.py", "SIGINT"), recorded) as one:
        one.program_pid()
        one.type(b"\x03")
        one.read(b"KeyboardInterrupt")
        assert one.process.wait(PATIENCE_S) == -signal.SIGINT
        assert one.seen.count(b"Traceback") == 1
        assert b"layerscope" not in one.seen.replace(str(PROGRAMS).encode(), b"")


@pytest.mark.parametrize("recorded", [False, True])
def test_a_terminal_that_hangs_up_says_so_to_the_program_once(
    recorded: bool, differential: Differential, program_python: str, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys, time\nhups = []\nsignal.signal(signal.SIGHUP, lambda *_: hups.append(1))\n"
        "print('ready', os.getpid(), flush=True)\nend = time.monotonic() + 20\n"
        "while not hups and time.monotonic() < end: time.sleep(0.02)\ntime.sleep(0.5)\n"
        f"open({str(tmp_path / 'hups')!r}, 'w').write(str(len(hups)))"
    )
    with terminal(differential, [program_python, "-c", code], recorded) as one:
        one.program_pid()
        os.close(one.master)
        one.process.wait(PATIENCE_S)
    assert (tmp_path / "hups").read_text() == "1"


def test_a_program_sees_its_terminal(differential: Differential, program_python: str) -> None:
    seen = []
    for recorded in (False, True):
        with terminal(
            differential, program(program_python, "facts.py", "bare"), recorded, shell=True
        ) as one:
            found = json.loads(one.read(b"\n}\r\n"))
            seen.append(found)
            one.process.wait(PATIENCE_S)
    for found in seen:
        for name in (
            "own group",
            "group of the parent",
        ):  # a shell makes leaders of the programs that it starts
            del found["process"][name]
        for number in "012":
            found["process"]["descriptors"][number][0] = found["process"]["descriptors"][number][0][
                :9
            ]
    assert seen[0] == seen[1]
    assert seen[1]["process"]["terminals"] == [True, True, True]
    assert seen[1]["process"]["terminal sizes"] == [[99, 33]] * 3


class Sent:
    """signals.py under the recorder, in a process group of its own."""

    def __init__(self, differential: Differential, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [*differential.recorder(), *command], cwd=differential.work, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, process_group=0, env=environment(),
        )  # fmt: skip
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.startswith(b"ready"), (line, self.process.communicate())
        self.pid = int(line.split()[1])

    def wait_for(self, name: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == f"got {name}\n".encode()

    def end(self) -> tuple[bytes, bytes, int]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return out, err, self.process.returncode


@pytest.fixture
def sent(differential: Differential, program_python: str) -> Iterator[Sent]:
    one = Sent(differential, program(program_python, "signals.py"))
    yield one
    if one.process.poll() is None:
        os.kill(one.pid, signal.SIGKILL)
        one.process.kill()
    one.process.communicate()


def test_signals_that_are_sent_to_us_are_the_programs(sent: Sent) -> None:
    names = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT"]
    for name in names:
        sent.process.send_signal(getattr(signal, name))
        sent.wait_for(name)
    sent.process.send_signal(signal.SIGTERM)
    out, err, status = sent.end()

    assert counts(out) == {**dict.fromkeys(names, 1), "SIGTERM": 1}
    assert (err, status) == (b"", 9)


def test_a_signal_to_the_whole_group_comes_once(sent: Sent) -> None:
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGCONT"):
        os.killpg(sent.process.pid, getattr(signal, name))
        sent.wait_for(name)
    time.sleep(0.3)
    os.killpg(sent.process.pid, signal.SIGTERM)
    out, err, status = sent.end()

    assert set(counts(out).values()) == {1}
    assert (err, status) == (b"", 9)


@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGABRT", "SIGRTMIN", *also(["SIGHUP", "SIGUSR1", "SIGALRM", "SIGIO"])]
)
def test_a_signal_that_ends_the_program_ends_us_the_same_way(
    name: str, differential: Differential, program_python: str
) -> None:
    one = Sent(differential, program(program_python, "signals.py", name))
    one.process.send_signal(getattr(signal, name))

    _, err, status = one.end()
    assert (err, status) == (b"", -getattr(signal, name))
    assert differential.recorded().run.info.exit.signal == getattr(signal, name)


def test_a_program_may_signal_its_group_and_live(
    differential: Differential, program_python: str
) -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.killpg(0, signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\ntime.sleep(0.5)\nprint('alive')"
    )
    done = subprocess.run(
        [*differential.recorder(), program_python, "-c", code], cwd=differential.work, capture_output=True,
        process_group=0, env=environment(), check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"alive\n", b"")


def test_an_alarm_that_was_set_before_is_the_programs(
    differential: Differential, program_python: str
) -> None:
    command = program(program_python, "signals.py", "SIGALRM")
    before = [
        sys.executable,
        "-c",
        "import os, signal, sys; signal.alarm(2); os.execv(sys.argv[1], sys.argv[1:])",
    ]

    assert differential.run([*before, *command]).status == -signal.SIGALRM
    assert differential.run([*before, *differential.recorder(), *command]).status == -signal.SIGALRM


# Sent at that moment to the group and to the session, and how often the program has to hear of it.
STARTING = [
    (signal.SIGTERM, "killpg", -signal.SIGTERM),
    (signal.SIGINT, "killpg", -signal.SIGINT),
    (signal.SIGTERM, "kill", -signal.SIGTERM),
    (signal.SIGWINCH, "killpg", 0),
]


@pytest.mark.parametrize(("number", "sent_by", "status"), STARTING)
def test_a_signal_that_comes_while_the_program_starts(
    number: signal.Signals, sent_by: str, status: int, differential: Differential
) -> None:
    """Between the fork of the witness and that of the program: the group has it, the program does
    not exist yet.
    """
    script = Path(differential.layerscope[-1])
    start, _, end = script.read_text().partition("from layerscope.cli")
    patch = f"""
import os
from layerscope.capture.program import Witness
begins = Witness.start
def start(self):
    begins(self)
    os.{sent_by}({"0" if sent_by == "killpg" else "os.getpid()"}, {int(number)})
Witness.start = start
"""
    script.write_text(f"{start}{patch}from layerscope.cli{end}")

    done = subprocess.run(
        [*differential.recorder(), "sh", "-c", "sleep 1; echo done"], cwd=differential.work, capture_output=True,
        env=environment(), timeout=PATIENCE_S, process_group=0, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (status, b"" if status else b"done\n"), done.stderr
