"""`attach --operators`: CPython 3.14 executes a script of ours in a program that nobody prepared, and
the program is the same afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import RunError
from layerscope.session import remote_script, standby
from layerscope.session.remote_script import RemoteScript
from tests.live.test_standby import complete
from tests.pythons import python_of
from tests.recorded import Recorded, layerscope
from tests.toy.test_toy_framework import extended
from tests.toy.test_toy_framework import layerscope as extended_layerscope

__all__ = ["extended"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]
PATIENCE_S = 30.0
# What a program can see of itself, without the modules that are loaded.
_FACTS = """
import os, sys, threading, warnings
def facts():
    return (dict(os.environ), sys.path[:], threading.active_count(), len(os.listdir("/proc/self/fd")),
            sys.gettrace(), sys.getprofile(), warnings.filters[:])
"""
ALONE = (
    _FACTS
    + """
def busy():
    while not ended:
        sum(range(100))
ended = []
before = facts()
print("ready", flush=True)
thread = threading.Thread(target=sys.stdin.read)
thread.start()
def watch():
    thread.join()
    ended.append(1)
watcher = threading.Thread(target=watch)
watcher.start()
busy()
watcher.join()
now = facts()
print([one for one, other in zip(before, now) if one != other and not isinstance(one, int)])
"""
)
WAITS = (
    _FACTS
    + """
print("ready", flush=True)
sys.stdin.read()
print("done")
"""
)
TOY = """
import sys, time, threading
import toynet
print("ready", flush=True)
ended = threading.Event()
def watch():
    sys.stdin.read()
    ended.set()
threading.Thread(target=watch).start()
weight, bias = toynet.Parameter(0.0), toynet.Parameter(0.0)
while not ended.is_set():
    toynet.affine(weight, bias, [1.0, 2.0])
    time.sleep(0.001)
print("done")
"""


@contextmanager
def running(
    python: str, text: str, *options: str, cwd: Path, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """The program, from its first line until the end of its standard input."""
    (cwd / "program.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [python, *options, "program.py"], cwd=cwd, env={**environment, **variables},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()


def ended(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its status and what it has printed."""
    out, err = program.communicate("", timeout=PATIENCE_S)
    return program.returncode, out, err


def scripts(program: subprocess.Popen[str]) -> list[Path]:
    """Files of ours that it may execute."""
    return list(Path(tempfile.gettempdir()).glob(f"layerscope-{program.pid}-*.py"))


def test_a_program_that_nobody_prepared_has_its_operators_recorded(extended: Path) -> None:
    with running(python_of("3.14"), TOY, cwd=extended) as program:
        words = ("attach", str(program.pid), "--operators", "--for", "0.5", "-o", "attached")
        done = extended_layerscope(extended, *words)
        again = extended_layerscope(extended, "attach", str(program.pid), "--for", "0.2")
        assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
        assert ended(program) == (0, "done\n", "")
    folder = extended / "attached.layerscope"
    complete(folder)
    recorded = Recorded(open_run(folder), 0, "", "")
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'toy::affine'") > 50
    assert not recorded.rows("SELECT * FROM gaps")
    assert not scripts(program)


@pytest.mark.parametrize("options", [(), ("-I",), ("-bb", "-W", "error")])
def test_the_program_is_the_same_afterwards(options: tuple[str, ...], tmp_path: Path) -> None:
    with running(python_of("3.14"), ALONE, *options, cwd=tmp_path) as program:
        done = layerscope(
            "attach", str(program.pid), "--operators", "--for", "0.2", "-q", cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert ended(program) == (0, "[]\n", "")
    assert not scripts(program)


def test_a_program_whose_threads_all_wait_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "_PATIENCE_S", 2.5)
    with running(python_of("3.14"), WAITS, cwd=tmp_path) as program:
        assert remote_script.refusal(program.pid) is None
        with pytest.raises(RunError, match="does not answer: all its threads are in long calls"):
            standby.open_door(program.pid, tmp_path, knock=RemoteScript(program.pid))
        assert not scripts(program)
        assert ended(program) == (0, "done\n", "")
    assert not list(tmp_path.glob("*.layerscope"))


def test_a_killed_recorder_leaves_a_script_that_removes_itself(tmp_path: Path) -> None:
    with running(python_of("3.14"), ALONE, cwd=tmp_path) as program:
        program.send_signal(signal.SIGSTOP)
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "--operators"]
        recorder = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while not scripts(program):
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.2)  # the flag is set behind the file
        recorder.kill()
        recorder.wait()
        program.send_signal(signal.SIGCONT)
        while scripts(program):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert ended(program) == (0, "[]\n", "")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_program_that_forbids_it_is_refused(how: str, tmp_path: Path) -> None:
    options = ("-X", "disable-remote-debug") if how == "option" else ()
    variables = {"PYTHON_DISABLE_REMOTE_DEBUG": "1"} if how == "variable" else {}
    with running(python_of("3.14"), WAITS, *options, cwd=tmp_path, **variables) as program:
        done = layerscope("attach", str(program.pid), "--operators", cwd=tmp_path)
        assert ended(program) == (0, "done\n", "")
    assert done.returncode == 125
    assert (
        "it was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug" in done.stderr
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("version", "why"),
    [("3.11", "it is no CPython 3.14"), ("3.13", "it is CPython 3.13, and not 3.14")],
)
def test_older_pythons_are_refused_with_the_remedy(version: str, why: str, tmp_path: Path) -> None:
    with running(python_of(version), WAITS, cwd=tmp_path) as program:
        done = layerscope("attach", str(program.pid), "--operators", cwd=tmp_path)
        assert ended(program) == (0, "done\n", "")
    assert done.returncode == 125
    assert f"cannot be recorded: {why}. Or start it under layerscope run" in done.stderr
    assert not list(tmp_path.glob("*.layerscope"))


def test_memory_that_may_not_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refused)
    said = remote_script.refusal(os.getppid())
    assert said is not None
    assert "kernel.yama.ptrace_scope" in said
    assert said.endswith("run this as root")
