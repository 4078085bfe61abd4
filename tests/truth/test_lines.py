"""The Python lines that open ranges, against programs that know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded import layerscope, record

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, threading, torch
from torch.profiler import record_function

def here():
    return sys._getframe(1).f_lineno

enter = record_function.__enter__
lines = {}
def work(name):
    with record_function(name):
        lines[name] = here() - 1
        torch.ones(2)
        with record_function(name + ".inner"): lines[name + ".inner"] = here()

for i in range(3):
    with record_function(f"batch {i}"): lines[f"batch {i}"] = here()
work("main")
thread = threading.Thread(target=work, args=["thread"]); thread.start(); thread.join()

@record_function("decorated")
def decorated():
    torch.ones(1)
decorated()

one = record_function("late"); one.__enter__(); lines["late"] = here(); one.__exit__(None, None, None)
for source in ("a", "b"):
    exec(compile(f"with record_function('made {source}'): pass", f"<made {source}>", "exec"))
try:
    with record_function("fails"):
        lines["fails"] = here() - 1
        raise ValueError
except ValueError:
    pass
assert record_function.__enter__ is enter
for name, line in lines.items():
    print(f"{name}\t{__file__}:{line}")
print("made a\t<made a>:1")
print("made b\t<made b>:1")
"""


def test_ranges_have_the_line_of_the_program_that_opened_them(
    program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, PROGRAM, tmp_path)

    assert recorded.status == 0, recorded.stderr
    truth = dict(line.split("\t") for line in recorded.stdout.splitlines())
    rows = recorded.rows("SELECT name, line FROM spans WHERE kind = 'range'")
    told = {row["name"]: row["line"] for row in rows}
    assert told.pop("decorated") is None  # the line in contextlib is that of every decorator
    if (
        told.get("late") is None
    ):  # a plain call of a Python function does not go through the field before 3.12
        truth.pop("late")
        told.pop("late")
    assert told == truth
    assert (
        recorded.value("SELECT count(*) FROM spans WHERE line IS NOT NULL AND kind <> 'range'") == 0
    )


@pytest.mark.parametrize("mark", ["batch", "program.py:5"])
def test_the_user_says_which_range_is_a_step(
    program_python: str, tmp_path: Path, mark: str
) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nfrom torch.profiler import record_function\n\nfor i in range(12):\n"
        "    with record_function('batch'):\n        torch.ones(10) + 1\n"
    )
    done = layerscope(
        "run", "-o", "x", "--step-mark", mark, "--", program_python, "program.py", cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert "12 steps" in done.stderr
    assert "a step is what was marked as one" in done.stderr


THREADS = """
import sys, threading
from torch.profiler import record_function

sys.setswitchinterval(1e-6)
together = threading.Barrier(24)
def work(call):
    together.wait()
    for _ in range(3):
        call()
threads = []
for i in range(24):
    made = {"record_function": record_function}
    text = "\\n" * i + f"def call():\\n    with record_function('range {i + 2}'): pass\\n"
    exec(compile(text, "<" + "\u00e9" * (i % 2 * 130) + f" {i}>", "exec"), made)
    threads.append(threading.Thread(target=work, args=(made["call"],)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_open_their_first_ranges_at_once_keep_their_own_lines(
    program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, THREADS, tmp_path)

    assert recorded.status == 0, recorded.stderr
    rows = recorded.rows("SELECT DISTINCT name, line FROM spans WHERE kind = 'range'")
    numbers = {row["name"]: row["line"] and row["line"].partition(" ")[2] for row in rows}
    assert numbers == {f"range {i + 2}": f"{i}>:{i + 2}" for i in range(24)}
