"""Suites of pytest end as they do alone while they are recorded from outside for their whole
length: output but for times, status, files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.differential import environment
from tests.recorded import ROOT, Recorded

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent", "perf_events")]
PATIENCE_S = 120.0
# It begins when a line comes, so that it is attached before its first test.
RUNNER = """
import sys
sys.stdin.readline()
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:randomly", "-ra", "--junitxml=junit.xml", "suite"]))
"""
SUITE = """
import multiprocessing, os, signal, subprocess, sys, threading, time, warnings
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(30))
def test_numbers(number):
    assert sum(i * number for i in range(100000)) == number * 4999950000

def test_that_fails():
    assert fib(12) == 1

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@pytest.mark.xfail(reason="known")
def test_that_is_known_to_fail():
    raise ValueError("known")

@pytest.mark.skip(reason="not here")
def test_that_is_skipped():
    pass

def test_nobody_traces_and_nothing_is_open():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert status["TracerPid"].strip() == "0"
    links = [os.readlink(f"/proc/self/fd/{fd.name}") for fd in Path("/proc/self/fd").iterdir()
             if os.path.islink(fd)]
    assert not [link for link in links if "perf_event" in link or "layerscope" in link]
    assert "layerscope" not in Path("/proc/self/maps").read_text()

def test_waits_are_not_interrupted():
    begun = time.monotonic()
    time.sleep(0.2)
    assert time.monotonic() - begun >= 0.2
    assert signal.sigtimedwait([signal.SIGUSR1], 0.1) is None

def test_an_alarm_comes():
    came = []
    signal.signal(signal.SIGALRM, lambda number, frame: came.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(0.2)
    assert came == [signal.SIGALRM]

def test_urgent_signals_are_ours():
    came = []
    signal.signal(signal.SIGURG, lambda number, frame: came.append(number))
    sum(i * i for i in range(1_000_000))
    assert came == []
    os.kill(os.getpid(), signal.SIGURG)
    assert came == [signal.SIGURG]

def test_threads_and_children(tmp_path):
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(fib(15))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [610] * 8
    child = os.fork()
    if not child:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    done = subprocess.run([sys.executable, "-c", "print(sum(range(100000)))"], capture_output=True)
    assert done.stdout == b"4999950000\\n"
    with multiprocessing.Pool(2) as pool:
        assert pool.map(fib, range(10)) == [fib(i) for i in range(10)]
    (tmp_path / "file").write_text("written")

def test_output_and_warnings(capfd):
    print("to stdout")
    os.write(2, b"to stderr\\n")
    assert capfd.readouterr() == ("to stdout\\n", "to stderr\\n")
    warnings.warn("a warning")

def test_files():
    Path("written.txt").write_text("by a test")
"""
_TIMES = re.compile(r"in \d+\.\d+s|time(?:stamp)?=\"[^\"]*\"|hostname=\"[^\"]*\"")


def run(folder: Path, attached: bool) -> tuple[int, str, str, dict[str, str]]:
    """Its status, what it printed, and the files that it left, without times."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "suite").mkdir(parents=True)
    (work / "suite" / "test_all.py").write_text(SUITE)
    suite = subprocess.Popen(
        [sys.executable, "-c", RUNNER], cwd=work, text=True, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        attaching = attach(suite.pid, folder) if attached else None
        out, err = suite.communicate("\n", timeout=PATIENCE_S)
        if attaching is not None:
            assert attaching.wait(PATIENCE_S) == 0
    finally:
        if suite.poll() is None:
            suite.kill()
            suite.communicate()
    files = {
        str(path.relative_to(work)): _TIMES.sub("", path.read_text())
        for path in sorted(work.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    return suite.returncode, _TIMES.sub("", out), err, files


def attach(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    """Record it from outside; it has begun."""
    words = ["attach", str(pid), "--tree", "--rate", "999", "-q", "-o", str(folder / "attached")]
    process = subprocess.Popen(
        [sys.executable, "-m", "layerscope", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    stacks = folder / "attached.layerscope" / "raw" / "stacks"
    until = time.monotonic() + PATIENCE_S
    while not stacks.exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    return process


def test_a_suite_of_pytest_ends_as_it_does_alone(tmp_path: Path) -> None:
    bare = run(tmp_path, attached=False)
    with_us = run(tmp_path, attached=True)

    assert with_us == bare
    assert bare[0] == 1
    assert "1 failed, 37 passed, 1 skipped, 1 xfailed" in re.sub(r", \d+ warnings?", "", bare[1])
    assert sorted(bare[3]) == ["junit.xml", "suite/test_all.py", "written.txt"]
    found = Recorded(open_run(tmp_path / "attached.layerscope"), 0, "", "")
    names = {row["name"] for row in found.rows("SELECT DISTINCT name FROM frames")}
    assert {"test_numbers", "pytest_runtest_call"} <= names
