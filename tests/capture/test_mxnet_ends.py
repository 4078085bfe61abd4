"""Operators in Python of MXNet and waits for batches that others make, with both of its engines."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.recorded import NO_STACKS, Recorded, record

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "mxnet_ends.py"
BATCHES = 4


@pytest.fixture(scope="module", params=["ThreadedEnginePerDevice", "NaiveEngine"])
def ends(
    request: pytest.FixtureRequest,
    mxnet_python: str,
    native_agent: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Recorded:
    """A program that makes each of them in every step."""
    folder, options = tmp_path_factory.mktemp("ends"), (*NO_STACKS, "--granularity", "operator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_ENGINE_TYPE", request.param)
        return record(mxnet_python, str(PROGRAM), folder, options=options)


def test_the_code_that_runs_when_the_program_is_killed_has_its_module_and_its_line(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    recorded = record(mxnet_python, str(PROGRAM), tmp_path, "--killed")

    assert recorded.status == -signal.SIGKILL
    rows = recorded.rows(
        "SELECT s.name, path, s.line FROM spans s LEFT JOIN modules USING (module) "
        "WHERE unfinished AND s.name LIKE '%::pure_python'"
    )
    ((name, path, line),) = [row.values() for row in rows]
    assert (name, path) == ("shared::pure_python", "Sequential.3")
    assert "mx.nd.Custom(" in PROGRAM.read_text().splitlines()[int(line.rpartition(":")[2]) - 1]


def test_a_wait_for_a_batch_that_others_make_is_one_wait(ends: Recorded) -> None:
    assert (ends.status, ends.stdout.strip()) == (0, str(BATCHES)), ends.stderr
    rows = ends.rows(
        "SELECT name, count(*)::INT AS count FROM spans WHERE kind = 'loader' GROUP BY ALL"
    )
    # The last one says that there are no more.
    assert rows == [{"name": "DataLoader.__next__", "count": BATCHES + 1}]


def test_code_of_operators_belongs_to_the_pass_and_the_block_that_called_it(ends: Recorded) -> None:
    rows = ends.rows(
        "SELECT step, name, phase, path FROM spans LEFT JOIN modules USING (module) "
        "WHERE name IN ('own::pure_python', 'shared::pure_python') AND step IS NOT NULL "
        "ORDER BY step, path"
    )
    assert [tuple(row.values()) for row in rows] == [
        (step, name, "forward", path)
        for step in range(BATCHES)
        for name, path in (
            ("own::pure_python", "Sequential.0"),
            ("shared::pure_python", "Sequential.1"),
            ("shared::pure_python", "Sequential.3"),
            ("own::pure_python", "Sequential.4"),
        )
    ]


def test_operators_of_the_backward_pass_have_the_module_of_theirs(ends: Recorded) -> None:
    rows = ends.rows(
        "SELECT DISTINCT name, path FROM spans LEFT JOIN modules USING (module) WHERE name IN ('_backward_Custom', "
        "'_backward_FullyConnected', '_backward_own::pure_python', '_backward_shared::pure_python') "
        "AND spans.kind = 'function' ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("_backward_Custom", "Sequential.3"),
        ("_backward_Custom", "Sequential.4"),
        ("_backward_FullyConnected", "Sequential.2"),
        ("_backward_own::pure_python", "Sequential.4"),
        # Several blocks have the object, and nothing says which of them it works for.
        ("_backward_shared::pure_python", None),
    ]
