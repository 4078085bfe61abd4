"""Shapes and dtypes of inputs against an independent witness: torch.profiler, at the same time in
the same process.
"""

from __future__ import annotations

import collections
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import select
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.differential import Differential, program
from tests.recorded import ROOT, Recorded, ask, layerscope
from tests.recorded_shapes import needs_compiler, record_with_shapes

pytestmark = [pytest.mark.slow, needs_compiler]

PROGRAMS = ROOT / "tests" / "programs"
# As C++ calls them.
TYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "bool": "bool",
    "long int": "int64", "int": "int32", "short int": "int16", "signed char": "int8", "unsigned char": "uint8",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::qint8": "qint8",
}  # fmt: skip
ADDED = ("count", "total_ns", "self_ns")
Inputs = list[tuple[Any, Any]]  # (shape, dtype) of each


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the witness writes."""
    return tmp_path_factory.mktemp("trace") / "trace.json"


@pytest.fixture(scope="module")
def recorded(
    program_python: str, native_agent: Path, trace: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    folder = tmp_path_factory.mktemp("shapes")
    found = record_with_shapes(
        program_python, str(PROGRAMS / "shapes_witnessed.py"), folder, str(trace)
    )
    assert found.status == 0, found.stderr
    return found


def witnessed(trace: Path) -> dict[str, list[Inputs]]:
    """By operator, in order: what torch.profiler says of the inputs."""
    events = [
        event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"
    ]
    (around,) = [
        event
        for event in events
        if event["name"] == "witnessed" and event.get("cat") == "user_annotation"
    ]
    found: dict[str, list[Inputs]] = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        inside = around["ts"] <= event["ts"] <= around["ts"] + around["dur"]
        if inside and event.get("cat") == "cpu_op" and event["tid"] == around["tid"]:
            arguments = event["args"]
            pairs = zip(
                arguments.get("Input Dims", []), arguments.get("Input type", []), strict=True
            )
            found[event["name"]].append([as_ours(dims, kind) for dims, kind in pairs])
    return found


def as_ours(dims: list[Any], kind: str) -> tuple[Any, Any]:
    """One input of the witness: of what is no tensor it says no more than we compare."""
    if kind == "TensorList":
        return dims, "list"
    return (dims, TYPES[kind]) if kind in TYPES else (None, None)


def ours(recorded: Recorded) -> dict[str, list[Inputs]]:
    """By operator, in order: what was recorded of the inputs."""
    rows = recorded.rows(
        """SELECT s.name, json FROM spans s LEFT JOIN args USING (args)
           JOIN spans around ON around.name = 'witnessed' AND around.track = s.track
           WHERE s.kind IN ('function', 'backward') AND s.start_ns >= around.start_ns
                 AND s.start_ns <= around.start_ns + around.dur_ns ORDER BY s.start_ns, s.depth"""
    )
    found: dict[str, list[Inputs]] = collections.defaultdict(list)
    for row in rows:
        told = json.loads(row["json"]) if row["json"] else {"shapes": [], "dtypes": []}
        pairs = list(zip(told["shapes"], told["dtypes"], strict=True))
        if told.get("cut"):
            pairs.append(("cut", None))
        found[row["name"]].append([compared(shape, dtype) for shape, dtype in pairs])
    return found


def compared(shape: Any, dtype: Any) -> tuple[Any, Any]:
    """One of our inputs as the witness can tell it: it is silent about nested tensors, and lists
    with None in them.
    """
    if isinstance(dtype, list):
        return shape, "list"
    return (None, None) if shape in (None, "?") else (shape, dtype)


# Operators that take lists in which a tensor may be missing: the witness says nothing of these.
LISTS_WITH_NONE = (
    "aten::index",
    "aten::_unsafe_index",
    "aten::index_put_",
    "aten::_index_put_impl_",
)


def same(name: str, mine: Inputs, other: Inputs) -> bool:
    """Whether two calls had the same inputs, as far as both were told."""
    if mine[-1:] == [("cut", None)]:
        return starts_alike(mine[:-1], other)
    mine = [
        theirs if theirs == ([], "list") and is_long(one) else one
        for one, theirs in zip(mine, other, strict=False)
    ]
    if name in LISTS_WITH_NONE:
        mine = [(None, None) if dtype == "list" else (shape, dtype) for shape, dtype in mine]
    # Without a tensor among the inputs nothing is recorded.
    return mine == other if mine else all(one == (None, None) for one in other)


def is_long(one: tuple[Any, Any]) -> bool:
    """Whether it is a list of tensors that the witness leaves out of its trace for its length."""
    return one[1] == "list" and len(json.dumps(one[0])) > 100


def starts_alike(mine: Inputs, other: Inputs) -> bool:
    """Whether the inputs of a text that was cut are the first ones; its last one may be a list with
    a part left out.
    """
    *whole, (shape, dtype) = mine
    last_shape, last_dtype = other[len(whole)]
    alike = last_shape == [] or shape == last_shape[: len(shape)]
    return whole == other[: len(whole)] and dtype == last_dtype == "list" and alike


def test_shapes_and_dtypes_are_those_of_torch_profiler(recorded: Recorded, trace: Path) -> None:
    theirs, own = witnessed(trace), ours(recorded)

    assert {name: len(calls) for name, calls in own.items()} == {
        name: len(calls) for name, calls in theirs.items()
    }
    wrong = [
        (name, mine, other)
        for name in theirs
        for mine, other in zip(own[name], theirs[name], strict=True)
        if not same(name, mine, other)
    ]
    assert wrong == []
    assert sum(map(len, own.values())) > 1500


def test_the_table_by_shape_adds_up_to_the_one_without(recorded: Recorded) -> None:
    with Reader(recorded.run) as reader:
        parts, whole = (
            select(tables.build(reader, "operators", by)).data.to_pylist() for by in ("shape", None)
        )

    summed: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for row in parts:
        summed[row["name"]] = [a + row[k] for a, k in zip(summed[row["name"]], ADDED, strict=True)]
    assert summed == {row["name"]: [row[key] for key in ADDED] for row in whole}
    shapes = {row["shape"] for row in parts if row["name"] == "aten::conv2d"}
    assert shapes == {"float32[6, 1, 28, 28], float32[4, 1, 3, 3], float32[4]"}


class WithShapes(Differential):
    """Runs a program with and without `layerscope run --shapes`."""

    def recorder(self, quiet: bool = True) -> list[str]:
        """What goes in front of a command to record it."""
        *before, end = super().recorder(quiet)
        return [*before, "--shapes", end]


def test_a_program_cannot_tell_that_its_inputs_are_looked_at(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    differential = WithShapes(tmp_path)
    # Lines of torch.profiler with time and process.

    def kept(text: bytes) -> bytes:
        return b"\n".join(line for line in text.splitlines() if not line.startswith(b"USDT"))

    differential.normalise = lambda outcome: replace(outcome, stderr=kept(outcome.stderr))

    outcome = differential.same(program(program_python, "shapes_unseen.py"))

    assert outcome.status == 0
    recording = differential.recorded()
    assert not recording.problems()
    assert not recording.gaps()
    rows = recording.rows(
        "SELECT json, count(DISTINCT process) AS processes FROM spans JOIN args USING (args) JOIN tracks USING (track) "
        "WHERE spans.name = 'aten::cos' OR spans.name LIKE 'aten::mm' GROUP BY json"
    )
    assert '{"shapes": [[7, 2]], "dtypes": ["float32"]}' in {row["json"] for row in rows}
    assert '{"shapes": [[5, 5], [5, 5]], "dtypes": ["float32", "float32"]}' in {
        row["json"] for row in rows
    }


def test_without_a_compiler_all_but_the_shapes_is_recorded(
    program_python: str, native_agent: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\nprint(torch.ones(2).hypot(torch.ones(2)).sum().item() > 2)\n")
    (tmp_path / "bin").mkdir()
    variables = {
        "PATH": str(tmp_path / "bin"),
        "CXX": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    words = ["run", "--shapes", "-o", "recording", "--", program_python, str(program)]

    done = layerscope(*words, cwd=tmp_path, env=variables)

    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "there is no C++ compiler" in done.stderr
    assert "install g++" in done.stderr
    run = open_run(tmp_path / "recording.layerscope")
    assert ask(
        run, "SELECT count(*) AS n, count(args) AS shaped FROM spans WHERE name = 'aten::hypot'"
    ) == [{"n": 1, "shaped": 0}]
