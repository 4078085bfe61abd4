"""Which recording that is being made a process or a folder belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerscope.session.living import ask, every_living, living_at, living_of

PATIENCE_S = 60.0
# Says which process it is, and ends when it is told to.
PROGRAM = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline()"
# Has a child that has given up its environment, and a grandchild of it.
FAMILY = """
import os, subprocess, sys
code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline()"
child = subprocess.Popen([sys.executable, "-c", code], env={}, stdout=subprocess.PIPE)
print(os.getpid(), child.stdout.readline().decode().strip(), flush=True)
child.wait()
"""
COMMAND = [sys.executable, "-m", "layerscope", "run", "-q", "--without", "stacks"]


@contextmanager
def recorded(folder: Path, code: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A program under `layerscope run`, and the pids that it prints."""
    session = subprocess.Popen(
        [*COMMAND, "-o", str(folder / "mine"), sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert session.stdout is not None
    assert session.stdin is not None
    try:
        yield session, [int(word) for word in session.stdout.readline().split()]
    finally:
        session.stdin.close()
        session.stdout.close()
        session.wait(PATIENCE_S)


def test_a_process_and_a_folder_lead_to_the_same_recording(tmp_path: Path) -> None:
    folder = tmp_path / "mine.layerscope"
    with recorded(tmp_path, PROGRAM) as (session, (pid,)):
        found = living_of(pid)
        assert found is not None
        assert (found.path, found.raw) == (folder, (folder / "raw").resolve())
        assert (found.session_pid, found.program_pid) == (session.pid, pid)
        assert living_at(folder) == found
        assert found in list(every_living())
        assert ask(found, {"what": "where"})["path"] == str(folder)
        assert living_of(os.getpid()) is None
        folder.rename(tmp_path / "other.layerscope")
        assert living_at(tmp_path / "other.layerscope") == found
        (tmp_path / "other.layerscope").rename(folder)
    assert living_at(folder) is None
    assert living_of(pid) is None


def test_a_child_without_our_variables_belongs_to_its_parent(tmp_path: Path) -> None:
    with recorded(tmp_path, FAMILY) as (_, (pid, child)):
        found = living_of(child)
        assert found is not None
        assert found.program_pid == pid


def test_a_recording_whose_session_was_killed_is_not_one(tmp_path: Path) -> None:
    with recorded(tmp_path, PROGRAM) as (session, (pid,)):
        session.send_signal(signal.SIGKILL)
        session.wait(PATIENCE_S)
        assert living_of(pid) is None
        assert living_at(tmp_path / "mine.layerscope") is None


def test_what_is_no_recording_is_none(tmp_path: Path) -> None:
    assert living_at(tmp_path) is None
    assert living_of(2**22 + 1) is None


def test_a_program_that_records_itself_is_found(tmp_path: Path) -> None:
    code = "from layerscope import profiler; profiler.set_state('run'); " + PROGRAM
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert int(program.stdout.readline()) == program.pid
        found = living_of(program.pid)
        assert found is not None
        assert (found.path.parent, found.program_pid) == (tmp_path, program.pid)
        assert living_at(found.path) == found
