"""`run --granularity operator`: each operator is executed alone, and the recording says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.capture.frameworks import named_adapters
from layerscope.capture.granularity import SplitOperators
from tests.recorded import NO_STACKS, Recorded, record

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "mxnet_bulks.py"
SPLIT = (*NO_STACKS, "--granularity", "operator")
VARIABLES = named_adapters()["mxnet"].per_operator


def codes(split: SplitOperators, *used: str) -> list[str]:
    return [problem.code for problem in split.problems(dict.fromkeys(used, "1.0"))]


def test_the_variables_are_those_of_all_frameworks() -> None:
    split = SplitOperators({"HOME": "/root"})
    assert split.variables == VARIABLES
    assert codes(split, "mxnet", "python") == ["operators_split"]


def test_what_the_user_has_set_stays_and_is_said() -> None:
    name = next(iter(VARIABLES))
    split = SplitOperators({name: "1"})
    assert name not in split.variables
    (problem,) = split.problems({"mxnet": "2.0.0b1"})
    assert problem.code == "split_refused"
    assert f"{name}=1" in problem.what
    assert codes(SplitOperators(dict(VARIABLES)), "mxnet") == ["operators_split"]


def test_without_a_framework_that_has_bulks_it_says_that_nothing_changed() -> None:
    assert codes(SplitOperators({}), "torch") == ["nothing_to_split"]
    assert codes(SplitOperators({})) == ["nothing_to_split"]


@pytest.fixture(scope="module")
def split(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """A network as it is, hybridized, and with static memory, with each version of MXNet."""
    folder = tmp_path_factory.mktemp("split")
    recorded = record(mxnet_python, str(PROGRAM), folder, options=SPLIT)
    assert recorded.status == 0, recorded.stderr
    return recorded


@pytest.mark.slow
def test_every_operator_has_its_name(split: Recorded) -> None:
    rows = split.rows(
        "SELECT name FROM spans WHERE layer = 'operators' AND kind = 'function' AND "
        "(name = 'ImperativeBulk' OR contains(regexp_replace(name, '\\{.*', ''), ','))"
    )
    assert rows == []
    # In three networks, of one with static memory with attributes behind the name.
    for name, count in (("Pooling", 18), ("_backward_Pooling", 9), ("_backward_Convolution", 9)):
        sql = f"SELECT count(*) FROM spans WHERE kind = 'function' AND regexp_full_match(name, '{name}(\\{{.*)?')"
        assert split.value(sql) == count


@pytest.mark.slow
def test_operators_of_the_backward_pass_have_modules(split: Recorded) -> None:
    rows = split.rows(
        "SELECT DISTINCT name, path FROM spans LEFT JOIN modules USING (module) "
        "WHERE kind = 'function' AND name IN "
        "('_backward_Convolution', '_backward_FullyConnected', '_backward_Pooling')"
    )
    # Of the hybridized networks only the outermost block is called.
    whole = {(row["name"], "HybridSequential") for row in rows}
    assert {(row["name"], row["path"]) for row in rows} == whole | {
        ("_backward_Convolution", "HybridSequential.0"),
        ("_backward_Pooling", "HybridSequential.1"),
        ("_backward_FullyConnected", "HybridSequential.3"),
    }


@pytest.mark.slow
def test_the_summary_says_that_the_program_ran_in_another_way(split: Recorded) -> None:
    (problem,) = split.rows("SELECT code FROM problems")
    assert problem["code"] == "operators_split"
    summary = " ".join((split.run.path / "summary.txt").read_text().split())
    assert "MXNet executed each operator alone" in summary
    assert "stands for several operators" not in summary


@pytest.mark.slow
def test_without_the_option_bulks_are_recorded_and_explained(
    mxnet2_python: str, native_agent: Path, tmp_path: Path
) -> None:
    recorded = record(mxnet2_python, str(PROGRAM), tmp_path)

    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'ImperativeBulk'") > 0
    assert "--granularity operator" in (recorded.run.path / "summary.txt").read_text()
