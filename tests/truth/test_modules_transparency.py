"""A program cannot tell that the calls of its modules are recorded: what it sees, prints and
compiles is the same.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.differential import Differential, Recorded, program
from tests.recorded import NO_STACKS
from tests.repeated import also


@pytest.fixture
def differential(native_agent: Path, program_python: str, tmp_path: Path) -> Differential:
    return Differential(tmp_path, NO_STACKS)


def calls(recorded: Recorded) -> dict[str, int]:
    """{class: calls} of the modules that were recorded, whole or cut short."""
    assert not recorded.problems()
    rows = recorded.rows("SELECT class, count(*) AS n FROM spans JOIN modules USING (module) "
                         "WHERE layer = 'modules' GROUP BY ALL")  # fmt: skip
    return {row["class"]: row["n"] for row in rows}


def outside(recorded: Recorded) -> list[dict[str, Any]]:
    """Calls of aten::hypot, by what they lie in."""
    return recorded.rows(
        "SELECT module, depth, count(*) AS n FROM spans WHERE name = 'aten::hypot' GROUP BY ALL"
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["function", "errors", "tracers", "depth", "odd"])
def test_a_program_sees_the_same_of_its_modules(
    differential: Differential, program_python: str, what: str
) -> None:
    if what == "function":
        differential.options = ()  # all layers
    outcome = differential.same(program(program_python, "modules_seen.py", what))

    assert outcome.status == 0
    recorded = differential.recorded()
    if what == "errors":
        assert outside(recorded) == [{"module": None, "depth": 0, "n": 8}]
        # In most a call ends by an exception, in a module or in a hook of one.
        assert calls(recorded) == {
            "Outer": 10,
            "Inner": 16,
            "Sequential": 7,
            "ReLU": 2,
            "Identity": 1,
        }
    elif what == "odd":
        found = calls(recorded)
        assert {kind: found.get(kind) for kind in ("Slotted", "Equal", "Liar", "Outer")} == {
            "Slotted": 2, "Equal": 2, "Liar": 2, "Outer": 4
        }  # fmt: skip
    else:
        assert calls(recorded)["Identity"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words", "called"),
    [
        (("-W", "error", "-O"), "modules_seen.py errors", "Outer"),
        *also(
            [
                (("-W", "error", "-O"), "modules_end.py shutdown", "Last"),
                (("-X", "dev"), "modules_seen.py errors", "Outer"),
                (("-X", "dev"), "modules_end.py shutdown", "Last"),
            ]
        ),
    ],
)
def test_a_program_under_checks_of_python_sees_the_same(
    differential: Differential,
    program_python: str,
    options: tuple[str, ...],
    words: str,
    called: str,
) -> None:
    command = program(program_python, *words.split(), options=options)

    differential.same(["env", "PYTHONMALLOC=debug", *command])

    count = calls(differential.recorded())[called]
    assert count == 10 if called == "Outer" else count >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status", "expected"),
    [
        # The child of the fork leaves a call that its parent began: it has what it began itself.
        ("fork", 0, {"Ends": 1, "ReLU": 3, "Sequential": 1, "Tanh": 1}),
        ("exit", 7, {"Ends": 1}),
        ("os._exit", 8, {"Ends": 1}),
        ("threads", 0, {"Sequential": 8 * 50 * 3, "Tanh": 800, "ReLU": 800, "Sigmoid": 400}),
    ],
)
def test_calls_that_end_in_any_way_are_counted(
    differential: Differential, program_python: str, how: str, status: int, expected: dict[str, int]
) -> None:
    outcome = differential.same(program(program_python, "modules_end.py", how))

    assert outcome.status == status
    recorded = differential.recorded()
    assert calls(recorded) == expected
    if how == "os._exit":
        assert recorded.unfinished() == [["Ends"]]


@pytest.mark.slow
def test_modules_are_called_while_the_interpreter_ends(
    differential: Differential, program_python: str
) -> None:
    differential.same(program(program_python, "modules_end.py", "shutdown"))

    assert calls(differential.recorded())["Last"] >= 4


@pytest.mark.slow
def test_a_program_that_replaces_the_function_gets_its_own(
    differential: Differential, program_python: str
) -> None:
    differential.same(program(program_python, "modules_end.py", "replaced"))

    assert calls(differential.recorded()) == {"Sequential": 2, "Tanh": 2, "ReLU": 2}


@pytest.mark.slow
def test_no_interrupt_is_lost_while_modules_are_learned(
    differential: Differential, program_python: str
) -> None:
    outcome = differential.same(program(program_python, "modules_end.py", "interrupted"))

    assert outcome.stdout == b"300\n"
    assert set(calls(differential.recorded())) == {"Identity"}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["graphs", *also(["eager", "aot_eager", "inductor"])])
def test_compilers_make_the_same_of_modules(
    differential: Differential, program_python: str, what: str, tmp_path: Path
) -> None:
    if what == "inductor" and not compiles(program_python):
        pytest.skip(
            "torch.compile needs a C++ compiler and the headers of Python, which are not both here"
        )
    command = program(program_python, "modules_compiled.py", what)
    # Kernels of one run must not serve the other.
    without = differential.run(["env", f"TORCHINDUCTOR_CACHE_DIR={tmp_path / 'a'}", *command])
    with_us = differential.record(["env", f"TORCHINDUCTOR_CACHE_DIR={tmp_path / 'b'}", *command])

    assert without.status == 0, without.stderr.decode()
    assert with_us.stdout.decode().splitlines() == without.stdout.decode().splitlines()
    assert with_us == without
    found = calls(differential.recorded())
    assert found["Tanh"] >= 1
    if what == "graphs":
        assert found["GraphModule"] >= 1
    else:
        assert found["Identity"] == 2 * 4  # made between graphs, where Dynamo does not look


def compiles(python: str) -> bool:
    """Whether TorchInductor can compile here: with C++ and the headers of that Python."""
    text = "import sysconfig; print(sysconfig.get_path('include'))"
    done = subprocess.run(
        [python, "-c", text], capture_output=True, text=True, timeout=60, check=True
    )
    return bool(shutil.which("g++")) and (Path(done.stdout.strip()) / "Python.h").exists()
