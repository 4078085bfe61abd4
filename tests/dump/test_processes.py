"""Other processes: at the other end of a pipe or a connection, children, and a program that is
stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dump.dumped import dump, running, settled
from tests.recorded import layerscope

pytestmark = pytest.mark.usefixtures("native_agent")
WAITS = """
import multiprocessing, os, select, socket, subprocess, sys, threading
def begin(name, function):
    threading.Thread(target=function, name=name, daemon=True).start()
child = subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
begin("reads", lambda: child.stdout.read())
begin("child", child.wait)
listener = socket.create_server(("127.0.0.1", 0))
other = subprocess.Popen([sys.executable, "-I", "-c", '''
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
''', str(listener.getsockname()[1])])
connection, _ = listener.accept()
begin("receives", lambda: connection.recv(1))
begin("accepts", listener.accept)
ours, theirs = socket.socketpair()
third = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"],
                         pass_fds=[theirs.fileno()])
theirs.close()
begin("by unix", lambda: ours.recv(1))
begin("polls", lambda: select.select([child.stdout, connection], [], []))
reading, writing = os.pipe()
begin("own pipe", lambda: os.read(reading, 1))
print("ready", flush=True)
print(child.pid, other.pid, third.pid, flush=True)
child.wait()
"""


def test_the_processes_at_the_other_ends_are_named(tmp_path: Path) -> None:
    kinds = {
        "reads": "pipe",
        "child": "child",
        "receives": "socket",
        "accepts": "socket",
        "by unix": "socket",
        "polls": "event",
        "own pipe": "pipe",
        "MainThread": "lock",
    }
    with running([sys.executable], WAITS) as process:
        assert process.stdout is not None
        child, other, third = map(int, process.stdout.readline().split())
        found = settled(process.pid, tmp_path, [*kinds])
    assert {name: found.wait(name) for name in kinds} == kinds

    def on(name: str) -> list[int]:
        return [one["pid"] for one in found.threads[name]["on"]]

    assert on("reads") == on("child") == [child]
    assert on("receives") == [other]
    assert on("by unix") == [third]
    assert sorted(on("polls")) == sorted([child, other])
    assert on("own pipe") == on("accepts") == []
    assert "only this process itself" in found.threads["own pipe"]["waits_for"]
    assert "127.0.0.1:" in found.threads["accepts"]["waits_for"]


def test_a_queue_of_multiprocessing_waits_for_the_other_process(tmp_path: Path) -> None:
    text = (
        "import multiprocessing as m\n"
        "def work(items): items.get()\n"
        "items = m.get_context('fork').Queue()\n"
        "worker = m.get_context('fork').Process(target=work, args=(items,))\n"
        "worker.start()\n"
        "print('ready', flush=True)\n"
        "print(worker.pid, flush=True)\n"
        "worker.join()\n"
    )
    with running([sys.executable], text) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        parent = settled(process.pid, tmp_path, ["MainThread"])
        found = settled(worker, tmp_path, ["MainThread"])
    assert [one["pid"] for one in parent.threads["MainThread"]["on"]] == [worker]
    assert (found.wait("MainThread"), found.threads["MainThread"]["on"][0]["pid"]) == (
        "pipe",
        process.pid,
    )


def test_processes_that_wait_for_each_other_are_a_deadlock(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys\n"
        "fills = 'import sys; sys.stdout.write(chr(0) * 10**6)'\n"
        "child = subprocess.Popen([sys.executable, '-c', fills], stdout=subprocess.PIPE)\n"
        "print('ready', flush=True)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with running([sys.executable], text) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert settled(child, tmp_path, ["MainThread"]).wait("MainThread") == "pipe"
        found = dump(process.pid, tmp_path, "--tree")
        shown = layerscope("dump", str(process.pid), "--tree", cwd=tmp_path)
    (circle,) = found.document["deadlocks"]
    assert circle == [[process.pid, process.pid], [child, child]]
    assert "Deadlock: thread" in shown.stdout
    assert "waits for room in a pipe: process" in shown.stdout.splitlines()[0]


def test_a_loop_of_asyncio_does_not_wait_for_itself(tmp_path: Path) -> None:
    text = (
        "import asyncio\n"
        "async def waits():\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(waits())\n"
    )
    with running([sys.executable], text) as process:
        found = settled(process.pid, tmp_path, ["MainThread"])
    assert (found.wait("MainThread"), found.on("MainThread")) == ("event", [])
    assert "asyncio's event loop" in found.threads["MainThread"]["waits_for"]


def test_a_stopped_program_is_read(tmp_path: Path) -> None:
    text = (
        "def spins():\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        sum(range(100))\n"
        "spins()\n"
    )
    with running([sys.executable], text) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        found = dump(process.pid, tmp_path)
        shown = layerscope("dump", str(process.pid), cwd=tmp_path)
        os.kill(process.pid, signal.SIGCONT)
    assert found.threads["MainThread"]["state"] == "stopped"
    assert found.stack("MainThread") == ["spins", "<module>"]
    assert not found.threads["MainThread"]["torn"]
    assert "is stopped" in shown.stdout


COUNTS = """
import signal, sys, threading, time
seen = []
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, lambda *of: seen.append(of[0]))
total = 0
def adds():
    global total
    for i in range(2000):
        total += sum(range(i))
        time.sleep(0.001)
threads = [threading.Thread(target=adds) for _ in range(3)]
for thread in threads: thread.start()
print("ready", flush=True)
sys.stdin.readline()
for thread in threads: thread.join()
print(total > 0, seen, threading.active_count(), flush=True)
sys.exit(7)
"""


def test_two_hundred_dumps_change_nothing(tmp_path: Path) -> None:
    sampler = Path(__file__).parents[2] / "src/layerscope/native/layerscope-sampler"
    with running([sys.executable], COUNTS, stdin=subprocess.PIPE) as process:
        descriptors = os.listdir(f"/proc/{process.pid}/fd")
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        for _ in range(200):
            subprocess.run([sampler, "--dump", str(process.pid)], check=True, capture_output=True)
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "TracerPid:\t0" in status
        assert os.listdir(f"/proc/{process.pid}/fd") == descriptors
        assert len(Path(f"/proc/{process.pid}/maps").read_text()) >= len(maps) // 2
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout is not None
        assert process.stdout.read() == "True [] 1\n"
        assert process.wait() == 7


def test_who_has_locked_a_file_is_named(tmp_path: Path) -> None:
    text = (
        "import fcntl, os, sys, threading\n"
        "files = [open(name, 'w') for name in sys.argv[1:]]\n"
        "ready, told = os.pipe()\n"
        "other = os.fork()\n"
        "if not other:\n"
        "    files = [open(name, 'w') for name in sys.argv[1:]]\n"
        "    fcntl.lockf(files[0], fcntl.LOCK_EX)\n"
        "    fcntl.flock(files[1], fcntl.LOCK_EX)\n"
        "    os.write(told, b'.')\n"
        "    threading.Event().wait()\n"
        "os.read(ready, 1)\n"
        "def begin(*asked):\n"
        "    threading.Thread(target=asked[0], args=asked[1:], name=asked[0].__name__).start()\n"
        "begin(fcntl.lockf, files[0], fcntl.LOCK_EX)\n"
        "begin(fcntl.flock, files[1], fcntl.LOCK_EX)\n"
        "print('ready', flush=True)\n"
        "print(other, flush=True)\n"
    )
    names = [str(tmp_path / "first"), str(tmp_path / "second")]
    with running([sys.executable, "-I", "-c", text, *names]) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        found = settled(process.pid, tmp_path, ["lockf", "flock"])
    for name, path in zip(("lockf", "flock"), names, strict=True):
        thread = found.threads[name]
        assert (thread["wait"], [one["pid"] for one in thread["on"]]) == ("file", [other])
        assert f"a lock of the file {path}" in thread["waits_for"]


def test_two_processes_that_lock_two_files_crosswise_are_a_deadlock(tmp_path: Path) -> None:
    text = (
        "import fcntl, os, sys\n"
        "first, second = [os.pipe() for _ in range(2)]\n"
        "other = os.fork()\n"
        "mine, theirs = sys.argv[1:] if other else sys.argv[:0:-1]\n"
        "with open(mine, 'w') as held, open(theirs, 'w') as wanted:\n"
        "    fcntl.flock(held, fcntl.LOCK_EX)\n"
        "    os.write((first if other else second)[1], b'.')\n"
        "    os.read((second if other else first)[0], 1)\n"
        "    if other: print('ready', other, sep='\\n', flush=True)\n"
        "    fcntl.flock(wanted, fcntl.LOCK_EX)\n"
    )
    names = [str(tmp_path / "first"), str(tmp_path / "second")]
    with running([sys.executable, "-I", "-c", text, *names]) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        settled(process.pid, tmp_path, ["MainThread"])
        settled(other, tmp_path, ["MainThread"])
        found = dump(process.pid, tmp_path, "--tree")
    assert found.document["deadlocks"] == [[[process.pid] * 2, [other] * 2]]
