"""SIGURG of a program whose threads are sampled by it: what it sets through Python is its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.door import Door
from tests.native.sampled import Ticker
from tests.native.test_sampling_doors import environment
from tests.native.test_sampling_python import VERSIONS
from tests.pythons import python_of

HZ = 1000
TIMEOUT_S = 120

SETS = """
import ctypes, faulthandler, os, signal, time
seen = []
def handle(number, frame): seen.append(number)
def burn():
    ends = time.process_time() + 0.15
    while time.process_time() < ends: pass
def marked_after():
    burn()
print(signal.getsignal(23), signal.signal(23, handle), signal.signal(23, handle) is handle)
os.kill(os.getpid(), 23)
burn()
marked_after()
print(len(seen), signal.signal(23, signal.SIG_IGN) is handle)
os.kill(os.getpid(), 23)
burn()
faulthandler.register(23, file=open(os.devnull, "w"), chain=True)
os.kill(os.getpid(), 23)
burn()
print(faulthandler.unregister(23), len(seen), signal.getsignal(23))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_python_sets_sees_its_own_signals_alone(
    version: str, native_agent: Path, perf_events: None, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    command = [python_of(version), "-W", "ignore", "-c", SETS]
    bare = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(door, tmp_path),
    )
    ticker = Ticker(door, lambda: [process.pid], HZ)
    out, err = process.communicate(timeout=TIMEOUT_S)
    ticker.close()
    door.close()

    assert (process.returncode, out, err) == (0, bare.stdout, bare.stderr)
    assert "1 True" in out
    (area,) = ticker.found[process.pid]
    assert (
        area.number("has_handler") == 1
    )  # so that no more are sent: what waits for one thread may become one
    assert any("marked_after" in sample.names() for sample in ticker.samples(process.pid))


STOPS = """
import ctypes, os, signal, sys
agent = ctypes.CDLL(sys.argv[1])
libc = ctypes.CDLL(None)
def now():
    action = ctypes.create_string_buffer(152)
    libc.sigaction(23, None, action)
    return action.raw[:8]
seen = []
first = now()
signal.signal(23, lambda *_: seen.append(1))
print(now() == first)
agent.ls_sampling_stop()
print(now() == first)
os.kill(os.getpid(), 23)
own = now()
signal.signal(23, signal.SIG_DFL)
print(len(seen), now() == bytes(8))
agent.ls_sampling_start(99, 0)
print(now() == first, signal.signal(23, lambda *_: seen.append(2)), now() == first)
os.kill(os.getpid(), 23)
print(seen)
libc.sigaction(23, b"\\1" + bytes(151), None)  # somebody else, who is not asked
signal.signal(23, lambda *_: seen.append(3))
os.kill(os.getpid(), 23)
print(now() == first, now() == own, seen)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_python_has_set_stays_when_sampling_ends(
    version: str, native_agent: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    command = [python_of(version), "-c", STOPS, str(native_agent)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(door, tmp_path),
    )
    door.close()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "True",
        "False",
        "1 True",
        "True 0 True",
        "[1, 2]",
        "False True [1, 2, 3]",
    ]
