"""What a person sees, in a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.dump.dumped import running, settled
from tests.dump.test_python_locks import DEADLOCK
from tests.recorded import ROOT, layerscope

pytestmark = pytest.mark.usefixtures("native_agent")
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(command: list[str], folder: Path, columns: int, **variables: str) -> str:
    """What a command prints on a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", **variables}
    process = subprocess.Popen(
        command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    printed = b""
    try:
        while part := os.read(master, 65536):
            printed += part
    except OSError:  # nobody has the terminal any more
        pass
    os.close(master)
    assert process.wait(60) == 0, printed
    return printed.decode().replace("\r\n", "\n")


def test_a_deadlock_on_a_screen(tmp_path: Path) -> None:
    with running([sys.executable], DEADLOCK) as process:
        found = settled(process.pid, tmp_path, ["first", "second"])
        command = [sys.executable, "-m", "layerscope", "dump", str(process.pid)]
        screen = on_terminal(command, tmp_path, 80)
        plain = on_terminal(command, tmp_path, 80, NO_COLOR="1")
        piped = layerscope("dump", str(process.pid), cwd=tmp_path)
    first, second = (found.threads[name]["tid"] for name in ("first", "second"))
    assert piped.stdout.startswith(
        f'Deadlock, unless a `with` block has released its Lock: thread {first} "first" waits for '
        f'a Lock, in whose `with` block thread {second} "second" is; thread {second} "second" '
        f'waits for a Lock, in whose `with` block thread {first} "first" is.\n'
    )
    assert (
        f'Thread {first} "first" waits for a Lock: thread {second} "second" is in a `with` block '
        "of it, at <string>:" in piped.stdout
    )
    assert f"Next: layerscope attach {process.pid}" in piped.stderr
    assert "\x1b[1;31mDeadlock" in screen
    seen = _STYLES.sub("", screen)
    assert "\x1b[1;31m" not in plain
    frames = [line for line in seen.splitlines() if line.startswith("    ")]
    assert any(line.startswith("    first (<string>:") for line in frames)
    assert max(map(len, frames)) <= 80
    # The odd one out comes first.
    assert seen.index('"MainThread"') < seen.index("    first (")


def test_equal_stacks_are_one_block(tmp_path: Path) -> None:
    text = (
        "import threading, time\n"
        "def waits(): time.sleep(600)\n"
        "for i in range(9):\n"
        "    threading.Thread(target=waits, name=f'worker {i}', daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with running([sys.executable], text) as process:
        settled(process.pid, tmp_path, [f"worker {i}" for i in range(9)])
        done = layerscope("dump", str(process.pid), "-q", cwd=tmp_path)
    (block,) = [line for line in done.stdout.splitlines() if line.startswith("9 threads")]
    assert block.endswith(", 3 more) wait for time to pass (it sleeps)")
    assert done.stdout.index("MainThread") < done.stdout.index("9 threads")
    assert done.stderr == ""


def test_a_deep_recursion_is_one_line(tmp_path: Path) -> None:
    text = (
        "import time\n"
        "def calls(depth):\n"
        "    if depth: return calls(depth - 1)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
        "calls(500)\n"
    )
    with running([sys.executable], text) as process:
        settled(process.pid, tmp_path, ["MainThread"])
        done = layerscope("dump", str(process.pid), cwd=tmp_path)
    frames = [line for line in done.stdout.splitlines() if line.startswith("    ")]
    assert frames[1:-1] == ["    calls (<string>:3)"] * 2 + ["    ... 498 more times"]
