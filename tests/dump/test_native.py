"""Programs in C: owners of mutexes, and stacks of functions that are not Python's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dump.dumped import dump, running, settled
from tests.native.building import build, compiler

pytestmark = pytest.mark.usefixtures("native_agent")
SOURCE = Path(__file__).parent / "mutexes.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mutexes") / "mutexes", [SOURCE], "-O1", "-g")


ATTEMPTS = 5


def test_the_owner_of_a_mutex_is_named(program: Path, tmp_path: Path) -> None:
    with running([str(program)]) as process:
        found = settled(process.pid, tmp_path, ["wants", "left", "right", "mutexes"])
    assert (found.wait("wants"), found.on("wants")) == ("mutex", ["owner"])
    assert (found.wait("left"), found.on("left")) == ("mutex", ["right"])
    assert (found.wait("mutexes"), found.on("mutexes")) == ("join", ["owner"])
    assert found.wait("owner") == "sleep"
    (circle,) = found.document["deadlocks"]
    assert {tid for _, tid in circle} == {found.threads[name]["tid"] for name in ("left", "right")}
    assert "left" in found.stack("left")
    assert ("main", 56) in found.lines("mutexes")


def test_a_static_program_has_its_own_functions(tmp_path: Path) -> None:
    program = tmp_path / "static"
    command = [compiler(), "-static", "-O1", "-g", "-o", str(program), str(SOURCE), "-lpthread"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("there are no static libraries here")
    with running([str(program)]) as process:
        found = settled(process.pid, tmp_path, ["wants", "left", "right"])
    assert found.on("wants") == ["owner"]
    assert "wants" in found.stack("wants")


SPINS = """
#include <stdio.h>
volatile long count;
__attribute__((noinline)) void inner(void) { for (;;) count++; }
__attribute__((noinline)) void outer(void) { inner(); puts(""); }
int main(void) { puts("ready"); fflush(stdout); outer(); }
"""


def test_functions_of_a_thread_that_runs(perf_events: None, tmp_path: Path) -> None:
    source = tmp_path / "spins.c"
    source.write_text(SPINS)
    program = build(tmp_path / "spins", [source], "-O1", "-g")
    with running([str(program)]) as process:
        found = dump(process.pid, tmp_path)
    assert found.stack("spins")[:3] == ["inner", "outer", "main"]
    assert found.threads["spins"]["state"] == "running"


def test_python_and_native_functions_of_a_thread_that_runs(
    perf_events: None, tmp_path: Path
) -> None:
    text = (
        "def spins():\n"
        "    numbers = list(range(5000000))\n"
        "    print('ready', flush=True)\n"
        "    while True: numbers.count(-1)\n"
        "spins()\n"
    )
    with running([sys.executable], text) as process:
        for _ in range(ATTEMPTS):  # on a busy machine it may not run while it is looked at
            stack = dump(process.pid, tmp_path, "--native").stack("MainThread")
            if "spins" in stack:
                break
    place = stack.index("spins")
    assert place > 0, stack
    assert stack[place + 1] == "<module>"
    assert "main" in stack[-1] or stack[-1] == "_start"


def test_native_functions_are_between_those_of_python(tmp_path: Path) -> None:
    text = "import time\ndef waits():\n    print('ready', flush=True)\n    time.sleep(600)\nwaits()"
    with running([sys.executable], text) as process:
        plain = settled(process.pid, tmp_path, ["MainThread"])
        found = dump(process.pid, tmp_path, "--native")
    assert plain.stack("MainThread") == ["waits", "<module>"]
    stack = found.stack("MainThread")
    assert "clock_nanosleep" in stack[0]
    assert stack.index("waits") > 1
    assert stack.index("<module>") == stack.index("waits") + 1
    assert not any("_PyEval_EvalFrameDefault" in name for name in stack)
