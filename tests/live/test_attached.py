"""A recording that `layerscope attach` makes: marks, questions and refusals while it is made, and
what is in it of stopped processes, FIFOs and short threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.session.living import living_of
from tests.recorded import ROOT, Recorded, layerscope

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent", "perf_events")]
PATIENCE_S = 60.0
# It does what a line says, and answers with a line.
PROGRAM = """
import mmap, os, sys, threading, time

def works():
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass

def threads():
    for number in range(200):
        thread = threading.Thread(target=works)
        thread.start()
        thread.join()

def faults():
    memory = mmap.mmap(-1, 32 << 20)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    memory.close()

def in_thread():
    thread = threading.Thread(target=faults)
    thread.start()
    thread.join()

def reads():
    fifo = os.open("talk", os.O_RDWR)
    threading.Timer(0.3, os.write, (fifo, b"x")).start()
    os.read(fifo, 1)

def forks():
    child = os.fork()
    if not child:
        time.sleep(600)
        os._exit(0)
    print(child, flush=True)

def waits():
    time.sleep(0.01)

print("ready", flush=True)
for line in sys.stdin:
    globals()[line.strip()]()
    print("done", flush=True)
"""


class Attached:
    """A program, and `layerscope attach` beside it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self.program.pid
        self.line()
        words = ["attach", str(self.pid), "-q", "-o", "attached", *options]
        self.attach = subprocess.Popen(
            [sys.executable, "-m", "layerscope", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        until = time.monotonic() + PATIENCE_S
        while living_of(self.pid) is None:
            assert time.monotonic() < until
            assert self.attach.poll() is None
            time.sleep(0.02)
        time.sleep(0.5)

    def line(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def tell(self, what: str) -> str:
        """Have it do something, to its end; what it printed first."""
        assert self.program.stdin is not None
        self.program.stdin.write(f"{what}\n")
        self.program.stdin.flush()
        return self.line()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return layerscope(*words, cwd=self.folder)

    def end(self) -> Recorded:
        """Let the program end; the recording."""
        self.program.communicate("", timeout=PATIENCE_S)
        assert self.program.returncode == 0
        assert self.attach.wait(PATIENCE_S) == 0
        return Recorded(open_run(self.folder / "attached.layerscope"), 0, "", "")


@contextmanager
def attached(folder: Path, *options: str) -> Iterator[Attached]:
    found = Attached(folder, *options)
    try:
        yield found
    finally:
        for process in (found.program, found.attach):
            if process.poll() is None:
                process.kill()
                process.wait()
        for stream in (found.program.stdin, found.program.stdout):
            assert stream is not None
            stream.close()


def test_marks_are_taken_and_what_cannot_be_done_is_a_sentence(tmp_path: Path) -> None:
    with attached(tmp_path) as found:
        pid = str(found.pid)
        by_pid = found.ask("mark", pid, "one")
        by_name = found.ask("mark", "attached", "two")
        stops = [
            found.ask(verb, target) for verb in ("stop", "start") for target in (pid, "attached")
        ]
        again = found.ask("attach", pid)
        child = int(found.tell("forks"))
        found.line()
        of_child = living_of(child)
        os.kill(child, signal.SIGKILL)
        watched = found.ask("top", pid, "--once", "-q")
        recorded = found.end()
        late = found.ask("mark", "attached", "three")

    assert (by_pid.returncode, by_pid.stderr) == (by_name.returncode, by_name.stderr) == (0, "")
    assert "after the recording's start" in by_pid.stdout
    assert "attached.layerscope is complete: it has ended." in late.stderr
    for stop in stops:
        assert stop.returncode == 125
        assert "is made by `layerscope attach` from outside and has no window" in stop.stderr
        assert f"`kill -INT {found.attach.pid}`" in stop.stderr
    assert f"process {pid} is being recorded already, into attached.layerscope" in again.stderr
    assert of_child is None  # children were not asked for
    assert watched.returncode == 0
    assert "since start" in watched.stdout
    marks = recorded.rows("SELECT name, kind FROM marks ORDER BY at_ns")
    assert marks == [{"name": "one", "kind": "outside"}, {"name": "two", "kind": "outside"}]
    codes = {row["code"] for row in recorded.rows("SELECT code FROM problems")}
    assert "no_framework" not in codes


def test_a_stopped_process_and_a_fifo_are_what_threads_wait_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "talk")
    with attached(tmp_path) as found:
        assert found.tell("reads") == "done"
        os.kill(found.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(found.pid, signal.SIGCONT)
        assert found.tell("waits") == "done"
        recorded = found.end()
    waits = {
        row["state"]: row["ns"]
        for row in recorded.rows(
            "SELECT state, sum(weight_ns)::BIGINT AS ns FROM samples WHERE kind = 'offcpu' "
            "GROUP BY state"
        )
    }
    assert 0.3e9 < waits["stopped"] < 2e9, waits
    assert waits["pipe"] > 0.2e9, waits
    assert "file" not in waits, waits


def test_page_faults_of_a_thread_that_ended_are_no_fewer_than_its_samples_stand_for(
    tmp_path: Path,
) -> None:
    with attached(tmp_path) as found:
        assert found.tell("in_thread") == "done"
        recorded = found.end()
    rows = recorded.rows(
        "SELECT tid, faults_minor AS faults, (SELECT sum(count)::BIGINT FROM samples s "
        "WHERE s.track = t.track AND s.kind = 'fault') AS sampled FROM tracks t "
        "WHERE kind = 'thread' AND faults_minor IS NOT NULL"
    )
    assert sum(row["faults"] for row in rows) > 7000
    assert all(row["faults"] >= (row["sampled"] or 0) for row in rows), rows
    assert recorded.run.info.program.faults_minor >= sum(row["faults"] for row in rows)


def test_short_threads_have_a_row_each(tmp_path: Path) -> None:
    with attached(tmp_path) as found:
        assert found.tell("threads") == "done"
        recorded = found.end()
    (row,) = recorded.rows(
        "SELECT count(*) AS n, count(*) FILTER (WHERE cpu_ns > 0) AS worked FROM tracks "
        "WHERE kind = 'thread'"
    )
    assert row["n"] == 201
    assert row["worked"] == 201
