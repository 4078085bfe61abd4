"""`layerscope.profiler` over MXNet: the tutorial's steps give the tutorial's results, by MXNet's own
count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "mxnet_tutorial.py"
CUSTOM = "Custom Operator"
# What MXNet's profiler leaves out: the engine's part of an operator in Python, and what has no name.
# The step is ours.
NOT_THEIRS = {"Custom", "_backward_Custom", "CustomOperatorWait", "(no name)"}
STEP = "Optimizer.update#Trainer.SGD"
# What MXNet counts among the calls, and is none.
NO_CALLS = {"MXNet C API Calls", "MXNet C API Concurrency"}
# The calls that start and stop one profiler while the other one runs.
STEERING = {"MXSetProcessProfilerState", "MXNDArrayWaitAll"}

Counts = dict[str, dict[str, int]]


@dataclass
class Tutorial:
    """What the program printed and left behind."""

    folder: Path
    stderr: str
    lines: list[Any]

    def events(self, file: str) -> list[dict[str, Any]]:
        """The events of a trace that it wrote."""
        events: list[dict[str, Any]] = json.loads(library.written(self.folder / file))[
            "traceEvents"
        ]
        return events

    def names(self, file: str) -> list[str]:
        """Of the events of a trace."""
        return [event["name"] for event in self.events(file)]


def run(python: str, when: str, folder: Path) -> Tutorial:
    done = library.run(python, PROGRAM.read_text(), folder, "-W", "ignore", arguments=(when,))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '{"']
    return Tutorial(folder, done.stderr, lines)


@pytest.fixture(scope="module")
def tutorial(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Tutorial:
    """Once with each version of MXNet."""
    return run(mxnet_python, "before", tmp_path_factory.mktemp("tutorial"))


def without(counts: dict[str, int], names: set[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name not in names}


def test_one_iteration_has_the_counts_of_mxnet(tutorial: Tutorial) -> None:
    ours, theirs = tutorial.lines[0]["ours"], tutorial.lines[0]["theirs"]

    assert ours["operator"].pop(STEP) == 1
    assert without(ours["operator"], NOT_THEIRS) == theirs["operator"]
    left_out = NO_CALLS | STEERING
    assert without(ours["MXNET_C_API"], left_out) == without(theirs["MXNET_C_API"], left_out)
    assert ours["Device Storage"] == theirs["Device Storage"]
    assert ours["module"]["HybridSequential.0"] == 1
    assert "event" not in ours


def test_the_trace_is_valid_and_has_every_operator(tutorial: Tutorial) -> None:
    names = tutorial.names("profile_output.json")

    assert {"Convolution", "_backward_Convolution", "MXAutogradBackwardEx", STEP} <= set(names)


def test_what_ran_between_pause_and_resume_is_not_there(tutorial: Tutorial) -> None:
    operators = tutorial.lines[1]["ours"]["operator"]

    assert (operators["Convolution"], operators["_backward_Convolution"], operators[STEP]) == (
        2,
        2,
        2,
    )


def test_the_table_has_the_sections_of_mxnet(tutorial: Tutorial) -> None:
    table = tutorial.lines[2]

    head, *sections = table.split("\n=================\n")
    assert "Profile Statistics" in head
    names = [part.rstrip().splitlines()[-1] for part in (head, *sections[:-1])]
    assert {"operator", "MXNET_C_API", "Device Storage"} <= set(names)
    assert "Memory: cpu/0" in table


def test_operators_in_python_that_were_there_before_have_both_categories(
    tutorial: Tutorial,
) -> None:
    ours, theirs = tutorial.lines[3]["ours"], tutorial.lines[3]["theirs"]

    assert ours[CUSTOM] == theirs[CUSTOM]
    assert ours[CUSTOM]["MyAddOne::pure_python"] == 1
    assert ours[CUSTOM]["_backward_MyAddOne::pure_python"] == 1
    assert without(ours["operator"], NOT_THEIRS) == theirs["operator"]


def is_whole(custom: dict[str, int]) -> bool:
    """The code of one forward pass, and the addition in it."""
    added = custom.get("MyAddOne::_plus_scalar", 0) + custom.get("MyAddOne::_npi_add_scalar", 0)
    return custom["MyAddOne::pure_python"] == added == custom["MyAddOne::CopyCPU2CPU"] == 1


def test_the_same_in_a_symbol_bound_before_and_without_mxnets_profiler(tutorial: Tutorial) -> None:
    assert is_whole(tutorial.lines[4]["ours"][CUSTOM])


def test_dumps_that_are_not_finished_and_twice_are_whole(tutorial: Tutorial) -> None:
    first, last = tutorial.names("first_dump.json"), tutorial.names("my_add_one.json")

    assert first.count("MyAddOne::pure_python") == last.count("MyAddOne::pure_python") == 2
    assert not {"task", "frame", "an event", "marker"} & set(first)
    assert {"task", "frame", "an event", "marker"} <= set(last)


def test_nothing_is_said_but_that_primitives_come_late(tutorial: Tutorial) -> None:
    assert "layerscope" not in tutorial.stderr

    found = library.recorded(tutorial.folder / "profile_output.layerscope")
    codes = [row["code"] for row in found.rows("SELECT code FROM problems")]
    assert codes == ["primitives_late"]
    assert found.rows("SELECT * FROM gaps") == []


def test_an_operator_registered_while_the_profiler_stands_by(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    found = run(mxnet_python, "after", tmp_path)

    assert found.lines[3]["ours"][CUSTOM] == found.lines[3]["theirs"][CUSTOM]
    assert is_whole(found.lines[4]["ours"][CUSTOM])
