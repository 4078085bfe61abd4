"""Compilations of torch.compile, as torch tells of them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from layerscope.capture import agent
from tests.recorded import ROOT, record

PROGRAM = ROOT / "tests" / "programs" / "recompiles.py"
INSIDE = agent.FRAMEWORKS / "torch" / "inside" / "compilations.py"
COMPILED = """
    SELECT name, json FROM spans JOIN args USING (args)
    WHERE layer = 'ranges' AND kind = 'task' ORDER BY start_ns"""


@pytest.mark.slow
def test_each_compilation_is_a_task_with_its_reason_and_stopping_undoes_all(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    recorded = record(program_python, str(PROGRAM), tmp_path)

    rows = recorded.rows(COMPILED)
    told = [json.loads(row["json"]) for row in rows]
    line = PROGRAM.read_text().splitlines().index('@torch.compile(backend="eager", dynamic=False)')
    assert {row["name"] for row in rows} == {"scaled"}
    assert {one["domain"] for one in told} == {"torch.compile"}
    assert {one["line"] for one in told} == {f"{PROGRAM}:{line + 1}"}
    # The one that was compiled while the profiler was stopped is 0/1.
    assert [one["number"] for one in told] == ["0/0", "0/1", "0/2", "0/0", "0/2"]
    reasons = [one.get("reason", "") for one in told]
    assert reasons[0] == reasons[3] == ""
    assert "expected 2, actual 3" in reasons[1]
    assert reasons[2].endswith("factor == 1")
    running, stopped, seen = recorded.stdout.splitlines()[:3]
    assert "'run_end_callbacks', 'run_start_callbacks'" in running
    assert "run_" not in stopped
    assert seen == "['begins', 'ends']"


def compile_as(text: str) -> dict[str, object]:
    """A function of a file called like torch's, as a version of torch has it."""
    names: dict[str, object] = {}
    exec(compile(text, "/packages/torch/_dynamo/convert_frame.py", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "recompile_reason = '0/0: tensor \\'x\\' dtype mismatch\\nmore'",
            "0/0: tensor 'x' dtype mismatch",
        ),
        ("recompile_reason = '0/0: k == 2      # return x * k  # a.py:6 in f'", "0/0: k == 2"),
        ("recompile_reasons = ['L[\\'n\\'] == 3', 'another']", "L['n'] == 3"),
        ("recompile_reasons = []", None),
        ("pass", None),
    ],
)
def test_reasons_are_found_in_every_version_of_torch(statement: str, reason: str | None) -> None:
    inside = runpy.run_path(str(INSIDE))
    names = compile_as(f"def _compile(code, told):\n    {statement}\n    return told()\n")

    def told() -> str:
        frame = inside["compiling"]()
        return str(inside["arguments_of"](frame, lambda: "0/1", "/packages/torch/"))

    found = json.loads(names["_compile"](compile_as.__code__, told))  # type: ignore[operator]

    assert found.get("reason") == reason
    assert found["number"] == "0/1"
    assert found["line"] == f"{__file__}:{compile_as.__code__.co_firstlineno}"


def test_what_is_torchs_own_has_the_line_that_calls_it() -> None:
    inside = runpy.run_path(str(INSIDE))
    names = compile_as("def _compile(code, told):\n    return told()\n")

    def told() -> str:
        frame = inside["compiling"]()
        return str(inside["arguments_of"](frame, lambda: "1/0", "/packages/torch/"))

    code = names["_compile"].__code__  # type: ignore[attr-defined]
    found = json.loads(names["_compile"](code, told))  # type: ignore[operator]

    assert found["line"].startswith(f"{__file__}:")


def test_a_compilation_that_was_put_off_has_the_number_of_its_forward_pass() -> None:
    inside = runpy.run_path(str(INSIDE))

    assert inside["compiling"]() is None
    assert inside["name_of"](None, lambda: "0/3") == "backward pass of 0/3"
    found = json.loads(inside["arguments_of"](None, lambda: "0/3", "/packages/torch/"))
    assert found == {"domain": "torch.compile", "number": "0/3"}
