"""`layerscope run` as PID 1 of a container, and as whoever else is given orphans: it reaps, and
hands signals on.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.capture.init import gets_orphans
from tests.differential import Differential, environment, program

PATIENCE_S = 60
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
PR_SET_CHILD_SUBREAPER = 36
pytestmark = pytest.mark.slow


@pytest.fixture
def differential(tmp_path: Path, native_agent: Path) -> Differential:
    return Differential(tmp_path)


@pytest.fixture
def container(differential: Differential) -> list[str]:
    """What makes the following command PID 1 of a process namespace of its own."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare(1) to make a process namespace with")
    tried = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no process namespace can be made here: {tried.stderr.strip()}")
    return CONTAINER


def test_as_pid_1_orphans_are_reaped_and_the_program_is_recorded(
    container: list[str], differential: Differential, program_python: str
) -> None:
    command = [*container, *differential.recorder(), *program(program_python, "orphans.py", "30")]
    done = differential.run(command)

    assert (done.status, done.stderr) == (0, b"")
    assert done.stdout == b"0 zombies parent is 1: False\n"
    recorded = differential.recorded()
    assert recorded.count("aten::hypot") == 10
    assert recorded.problems() == {}
    assert recorded.run.info.exit.code == 0


def test_as_a_reaper_of_orphans_it_reaps_them(
    differential: Differential, program_python: str
) -> None:
    def become_reaper() -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    command = [*differential.recorder(), *program(program_python, "orphans.py", "30")]
    done = differential.run(command, preexec_fn=become_reaper)

    assert (done.status, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"0 zombies")
    assert differential.recorded().count("aten::hypot") == 10


def test_we_are_not_given_orphans_here() -> None:
    assert not gets_orphans()


@pytest.mark.parametrize("status", [0, 7])
def test_as_pid_1_the_status_is_the_programs(
    status: int, container: list[str], differential: Differential, program_python: str
) -> None:
    code = f"import sys; sys.exit({status})"
    assert (
        differential.run([*container, *differential.recorder(), program_python, "-c", code]).status
        == status
    )


def test_as_pid_1_a_program_that_a_signal_ended_is_128_and_the_signal(
    container: list[str], differential: Differential, program_python: str
) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"
    done = differential.run([*container, *differential.recorder(), program_python, "-c", code])

    assert done.status == 128 + signal.SIGUSR1
    assert differential.recorded().run.info.exit.signal == signal.SIGUSR1


@pytest.fixture
def contained(
    container: list[str], differential: Differential, program_python: str
) -> Iterator[subprocess.Popen[bytes]]:
    """signals.py under layerscope in a container, ready for signals."""
    words = [*container, *differential.recorder(), *program(program_python, "signals.py")]
    with subprocess.Popen(
        words, cwd=differential.work, env=environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith(b"ready")
        yield process
        process.kill()  # --kill-child ends the container with it


def test_as_pid_1_signals_reach_the_program_once(contained: subprocess.Popen[bytes]) -> None:
    """What an engine does to stop a container: SIGTERM to the PID 1 of it, from outside."""
    first = int(Path(f"/proc/{contained.pid}/task/{contained.pid}/children").read_text().split()[0])
    assert contained.stdout
    for name in ("SIGUSR1", "SIGHUP", "SIGINT"):
        os.kill(first, getattr(signal, name))
        assert contained.stdout.readline() == f"got {name}\n".encode()
    time.sleep(0.3)  # a second one of any would come now
    os.kill(first, signal.SIGTERM)
    rest = contained.stdout.read().decode()
    counts = dict(eval(next(line for line in rest.splitlines() if line.startswith("["))))

    assert counts == {"SIGUSR1": 1, "SIGHUP": 1, "SIGINT": 1, "SIGTERM": 1}
    assert contained.wait(PATIENCE_S) == 9
