"""Programs that are no Python, and programs that cannot be recorded, under `attach`, `top` and
`dump`: functions of native code, or a sentence.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_run_places import as_nobody
from tests.native.building import build
from tests.recorded import ROOT, layerscope

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent", "perf_events")]
SPINS = """
#include <stdio.h>
volatile long count;
__attribute__((noinline)) void inner(void) { for (long i = 0; i < 1000000; i++) count++; }
int main(void) { puts("ready"); fflush(stdout); for (;;) inner(); }
"""
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that says that it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("options", [("-O1", "-g"), ("-O1", "-static")], ids=["dynamic", "static"])
def test_top_of_a_native_program_begins_with_its_symbols(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    source = tmp_path / "spins.c"
    source.write_text(SPINS)
    program = build(tmp_path / "spins", [source], *options)
    with running(str(program)) as process:
        done = layerscope("top", str(process.pid), "--once", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "function (object)" in done.stdout
    assert "inner (spins)" in done.stdout


def write_32_bit(path: Path) -> None:
    """A program of 32 bits: write(1, "ready\\n", 6), then nanosleep for ever."""
    base, head = 0x08048000, 52 + 32
    text = base + head + 64
    code = b"".join(
        [
            b"\xb8" + struct.pack("<I", 4),
            b"\xbb" + struct.pack("<I", 1),
            b"\xb9" + struct.pack("<I", text),
            b"\xba" + struct.pack("<I", 6) + b"\xcd\x80",
        ]
    )
    sleeps = b"\xb8" + struct.pack("<I", 162) + b"\xbb" + struct.pack("<I", text + 8)
    sleeps += b"\x31\xc9\xcd\x80"
    code += sleeps + b"\xeb" + bytes([256 - len(sleeps) - 2])
    body = code.ljust(64, b"\x90") + b"ready\n\0\0" + struct.pack("<II", 600, 0)
    size = head + len(body)
    fields = (2, 3, 1, base + head, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    elf = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", *fields)
    elf += struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000)
    path.write_bytes(elf + body)
    path.chmod(0o700)


def test_a_32_bit_program_is_refused_in_a_sentence(tmp_path: Path) -> None:
    program = tmp_path / "small"
    write_32_bit(program)
    with contextlib.ExitStack() as closing:
        try:
            process = closing.enter_context(running(str(program)))
        except OSError:
            pytest.skip("this kernel runs no programs of 32 bits")
        pid = str(process.pid)
        commands = [("attach", pid, "--for", "1"), ("top", pid, "--once"), ("dump", pid)]
        done = [layerscope(*words, cwd=tmp_path) for words in commands]
    for one in done:
        assert one.returncode == 125
        assert "is a 32-bit program, and only 64-bit ones are re" in one.stderr
    assert list(tmp_path.iterdir()) == [program]


def test_a_program_of_another_user_is_refused_with_the_remedy(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    with running(sys.executable, "-c", WAITS) as process:
        pid = str(process.pid)
        for words in (("attach", pid, "--for", "1"), ("top", pid, "--once"), ("stop", pid)):
            done = subprocess.run(
                [*as_nobody(), sys.executable, "-m", "layerscope", *words],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            (sentence,) = done.stderr.splitlines()
            assert done.returncode == 125
            assert "user" in sentence
            assert "root" in sentence


def test_a_program_that_becomes_another_one_goes_on_being_recorded(tmp_path: Path) -> None:
    code = (
        "import os, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        f"os.execv({sys.executable!r}, ['python', '-c', 'def later():\\n for i in range(8):\\n"
        "  sum(range(2000000))\\nlater()'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = ["attach", str(process.pid), "-q", "-o", "becomes"]
    attach = subprocess.Popen(
        [sys.executable, "-m", "layerscope", *words], cwd=tmp_path, env=environment
    )
    stacks = tmp_path / "becomes.layerscope" / "raw" / "stacks"
    until = time.monotonic() + 60
    while not stacks.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert attach.wait(60) == 0
    done = layerscope("table", "becomes", "functions", "--csv", cwd=tmp_path)
    assert "later," in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("whom", ["layerscope-sampler", "drainer", "session"])
def test_whoever_of_us_is_killed_the_program_goes_on(whom: str, tmp_path: Path) -> None:
    code = "print('ready', flush=True)\nwhile input(): print('here', flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = ["attach", str(process.pid), "-q", "-o", "killed", "--for", "3"]
    attach = subprocess.Popen(
        [sys.executable, "-m", "layerscope", *words], cwd=tmp_path, env=environment
    )
    stacks = tmp_path / "killed.layerscope" / "raw" / "stacks"
    until = time.monotonic() + 60
    while not stacks.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.3)
    victims = {"session": attach.pid, **children_of(attach.pid)}
    os.kill(victims[whom], signal.SIGKILL)
    status = attach.wait(60)

    process.stdin.write("yes\n")
    process.stdin.flush()
    assert process.stdout.readline() == "here\n"
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert status == (-signal.SIGKILL if whom == "session" else 0)
    done = layerscope("summary", "killed", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def children_of(pid: int) -> dict[str, int]:
    """The sampler and the drainer of a session."""
    found = {}
    for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        name = Path(f"/proc/{word}/comm").read_text()
        is_sampler = name.startswith("layerscope-samp")
        found["layerscope-sampler" if is_sampler else "drainer"] = int(word)
    return found
