"""LAYERSCOPE_AUTOSTART=standby: nothing is recorded until somebody opens the door from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.steered import PLAIN, TRAINS, standing_by
from tests.live.test_run_paused import ranges
from tests.recorded import layerscope

PATIENCE_S = 60


def complete(folder: Path) -> None:
    """Wait for the recorder, which is beside the program and no child of it."""
    give_up = time.monotonic() + PATIENCE_S
    while '"state": "running"' in (folder / "run.json").read_text():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_a_door_that_was_prepared_is_opened_and_closed_from_outside(
    program_python: str, tmp_path: Path
) -> None:
    with standing_by(program_python, TRAINS, tmp_path) as program:
        program.tell("steps", 2)
        assert list(tmp_path.iterdir()) == [tmp_path / "recording.py"]
        opened = program.command("start", str(program.pid))
        program.tell("steps", 3)
        program.tell("in_thread", 1)
        program.tell("in_child", 1)
        program.command("mark", str(program.pid), "seen")
        program.command("stop", str(program.pid))
        program.tell("steps", 2)
        program.command("start", "recording")
        program.tell("steps", 2)
        program.command("stop")
        program.tell("steps", 2)
        recorded = program.end()
        complete(program.path)
        recorded = program.end()

    assert recorded.status == 0
    assert (opened["open"], opened["was_open"]) == (True, False)
    assert ranges(recorded, "step") == [f"step {number}" for number in (2, 3, 4, 7, 8)]
    assert ranges(recorded, "thread") == ["thread 1"]
    assert ranges(recorded, "child") == ["child 1"]
    assert recorded.rows("SELECT name FROM marks WHERE kind = 'outside'") == [{"name": "seen"}]
    assert recorded.rows("SELECT * FROM gaps") == []


def test_a_program_that_imports_its_framework_later_is_recorded(
    program_python: str, tmp_path: Path
) -> None:
    late = PLAIN.replace(
        "listen()\n",
        """
def train(_):
    import torch
    with torch.profiler.record_function("step 0"):
        torch.ones(8).mul(2)

listen()
""",
    )
    with standing_by(program_python, late, tmp_path) as program:
        program.command("start", str(program.pid))
        program.tell("train")
        program.command("stop")
        program.end()
        complete(program.path)
        recorded = program.end()

    assert ranges(recorded, "step") == ["step 0"]
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'aten::mul'") == 1


INSIDE = """
import signal, threading

def looks(_):
    assert threading.enumerate() == [threading.main_thread()]
    assert len(os.listdir("/proc/self/task")) == 1
    assert signal.getsignal(signal.SIGURG) != signal.SIG_DFL
    return len(os.listdir("/proc/self/fd"))

listen()
"""


def test_at_rest_there_is_neither_a_thread_nor_a_descriptor(
    program_python: str, tmp_path: Path
) -> None:
    with standing_by(program_python, PLAIN.replace("listen()\n", INSIDE, 1), tmp_path) as program:
        descriptors = program.tell("looks")
        os.kill(program.pid, signal.SIGURG)  # of somebody who is nobody of ours
        program.tell("clock")
        time.sleep(0.5)
        assert program.tell("looks") == descriptors
        stdout = program.session.stdout
        assert stdout is not None
        assert program.session.stdin is not None
        program.session.stdin.close()
        assert (program.session.wait(PATIENCE_S), stdout.read()) == (0, "")
    assert list(tmp_path.iterdir()) == [tmp_path / "recording.py"]


def test_a_stopped_program_is_said_not_to_answer(program_python: str, tmp_path: Path) -> None:
    with standing_by(program_python, PLAIN, tmp_path) as program:
        os.kill(program.pid, signal.SIGSTOP)
        done = layerscope("start", str(program.pid), cwd=tmp_path)
        os.kill(program.pid, signal.SIGCONT)
        assert done.returncode == 125
        assert done.stderr.startswith(f"layerscope: process {program.pid} does not answer: ")
        assert program.tell("clock")


LISTENER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0layerscope-standby-" + sys.argv[1])
listener.listen(1)
print("listens", flush=True)
connection, _ = listener.accept()
print(connection.recv(1000), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_opens_no_door(program_python: str, tmp_path: Path) -> None:
    with (
        standing_by(program_python, PLAIN, tmp_path) as program,
        subprocess.Popen(
            ["/usr/bin/env", "python3", "-I", "-c", LISTENER, str(program.pid)],
            user=65534,
            cwd="/",
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "listens\n"
        os.kill(program.pid, signal.SIGURG)
        assert other.stdout.readline() == "b''\n"
        assert program.tell("clock")
