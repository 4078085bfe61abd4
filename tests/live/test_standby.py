"""LAYERSCOPE_AUTOSTART=standby: nothing is recorded until somebody opens the door from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.session.living import living_of
from layerscope.session.standby import is_prepared
from tests.live.steered import PLAIN, TRAINS, standing_by
from tests.live.test_run_paused import ranges
from tests.recorded import ROOT, layerscope

PATIENCE_S = 60
LINE = f"exec({(ROOT / 'src' / 'layerscope_autostart.pth').read_text()!r})"


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


TAKES = """
import signal
came = []

def takes(_):
    before = signal.signal(signal.SIGURG, lambda number, frame: came.append(number))
    assert before != signal.SIG_DFL
    return 0

def count(_):
    return len(came)

listen()
"""


def test_a_program_that_handles_the_signal_itself_gets_none(
    program_python: str, tmp_path: Path
) -> None:
    with standing_by(program_python, PLAIN.replace("listen()\n", TAKES, 1), tmp_path) as program:
        assert is_prepared(program.pid)
        program.tell("takes")
        assert not is_prepared(program.pid)
        done = layerscope("start", str(program.pid), cwd=tmp_path)
        assert done.returncode == 125
        assert "but has no door" in done.stderr
        assert program.tell("count") == program.tell("count")
    assert list(tmp_path.iterdir()) == [tmp_path / "recording.py"]


OTHERS = "trap 'echo came' URG; echo ready; read line"


def test_a_program_that_is_no_python_gets_no_signal(tmp_path: Path) -> None:
    environment = {**os.environ, "LAYERSCOPE_AUTOSTART": "standby"}
    with subprocess.Popen(
        ["bash", "-c", OTHERS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        done = layerscope("start", str(program.pid), cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (125, 1)
        assert program.communicate("line\n", timeout=PATIENCE_S)[0] == ""


def test_an_interpreter_that_became_another_program_has_no_door(tmp_path: Path) -> None:
    become = (
        "import os; print(os.getpid(), flush=True); os.read(0, 3); os.execv('/bin/cat', ['cat'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{LINE}; {become}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "LAYERSCOPE_AUTOSTART": "standby"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        assert is_prepared(program.pid)
        program.stdin.write("go\n")
        program.stdin.write("on\n")
        assert program.stdout.readline() == "on\n"
        assert not is_prepared(program.pid)
        program.stdin.close()


def test_a_program_that_ends_meanwhile_is_said_to_have_ended(
    program_python: str, tmp_path: Path
) -> None:
    with standing_by(program_python, PLAIN, tmp_path) as program:
        os.kill(program.pid, signal.SIGSTOP)
        with subprocess.Popen(
            [sys.executable, "-m", "layerscope", "start", str(program.pid)],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        ) as opening:
            give_up = time.monotonic() + PATIENCE_S
            while f"@layerscope-standby-{program.pid}\n" not in sockets():
                assert time.monotonic() < give_up
                time.sleep(0.05)
            other = layerscope("start", str(program.pid), cwd=tmp_path)
            os.kill(program.pid, signal.SIGKILL)
            _, told = opening.communicate(timeout=PATIENCE_S)
    assert "somebody else is opening the door" in other.stderr
    assert told == f"layerscope: process {program.pid} has ended\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "recording.py"]


def test_top_watches_a_program_that_stands_by(program_python: str, tmp_path: Path) -> None:
    with standing_by(program_python, TRAINS, tmp_path) as program:
        program.tell("steps", 2)
        before = layerscope("top", str(program.pid), "--once", "-q", cwd=tmp_path)
        program.command("start", str(program.pid))
        program.tell("steps", 30)
        words = ("top", str(program.pid), "--once", "-q", "--show", "operators", "--top", "0")
        opened = layerscope(*words, cwd=tmp_path)
        program.command("stop", str(program.pid))
        closed = layerscope("top", str(program.pid), "--once", "-q", cwd=tmp_path)
        program.end()
        complete(program.path)
    assert (before.returncode, before.stderr) == (0, "")
    told = " ".join(before.stdout.split())
    assert "while watched" in told
    assert f"operators are recorded after layerscope start {program.pid}" in told
    assert "aten::" in opened.stdout
    assert "by the optimizer" in opened.stdout
    assert f"To record: layerscope start {program.pid}" in " ".join(closed.stdout.split())


FORKS = """
def forks(_):
    child = os.fork()
    if not child:
        import signal
        signal.pause()
        os._exit(0)
    return child

def ends(child):
    os.kill(child, 9)
    os.waitpid(child, 0)

listen()
"""


def test_a_child_of_before_is_no_part_of_the_recording(program_python: str, tmp_path: Path) -> None:
    with standing_by(program_python, PLAIN.replace("listen()\n", FORKS, 1), tmp_path) as program:
        before = program.tell("forks")
        time.sleep(0.05)
        program.command("start", str(program.pid))
        after = program.tell("forks")
        mine, none, same = living_of(program.pid), living_of(before), living_of(after)
        program.tell("ends", before)
        program.tell("ends", after)
        program.command("stop", str(program.pid))
        program.end()
        complete(program.path)
        recorded = program.end()
    assert mine is not None
    assert (none, same) == (None, mine)
    gaps = recorded.rows("SELECT what FROM problems WHERE code = 'window_never_opened'")
    samples = recorded.value("SELECT count(*) FROM samples")
    assert not samples or "no operator" in gaps[0]["what"]


def sockets() -> str:
    """What the kernel knows of them."""
    return Path("/proc/net/unix").read_text(errors="replace")
