"""`layerscope diff`: its words, outputs and exit statuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from layerscope import cli
from tests.analyse.test_diff import looped
from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import layerscope, record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with two recordings: mm takes 1000 ns of a step, then 1300 ns."""
    monkeypatch.chdir(tmp_path)
    looped([{"aten::mm": 1000, "aten::add": 50, "old|<b>$x$": 3}] * 6).write(
        tmp_path / "before.layerscope"
    )
    looped([{"aten::mm": 1300, "aten::add": 50, "new_": 4}] * 6).write(
        tmp_path / "after.layerscope"
    )
    return tmp_path


def test_the_overview_is_printed_and_the_next_command_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["diff", "before", "after"]) == 0

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split()[:4] == ["what", "name", "a_ns", "b_ns"]
    assert [line.split()[1] for line in lines[1:11]] == [
        "step", "phase.loading", "phase.forward", "phase.backward", "phase.optimizer", "phase.other",
        "aten::mm", "new_", "old|<b>$x$", "aten::add",
    ]  # fmt: skip
    assert lines[7].split()[2:9] == ["1.00", "µs", "1.30", "µs", "+300", "ns", "+30.0"]
    assert "A is before: 6 steps." in lines
    assert "low_ns" not in lines[0]
    assert printed.err == "Next: layerscope diff before after operators\n"


def test_a_view_shows_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["diff", "before", "after", "operators", "--top", "2"])

    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines()[1:3]] == ["aten::mm", "new_"]
    assert "2 more rows; --top 0 shows all." in printed.out
    assert printed.err == "Next: layerscope table after operators\n"


def test_rows_are_chosen_as_in_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(
        [
            "diff",
            "before",
            "after",
            "--where",
            "what = 'operator' and b_ns > 0",
            "--sort=+name",
            "--csv",
            "-q",
        ]
    )

    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in table] == ["aten::add", "aten::mm", "new_"]
    assert table[1] == {
        "what": "operator", "name": "aten::mm", "a_ns": "1000", "b_ns": "1300", "change_ns": "300", "change": "0.3",
        "change_low": "0.3", "change_high": "0.3", "verdict": "slower", "a_calls": "1.0", "b_calls": "1.0",
        "change_low_ns": "300", "change_high_ns": "300",
    }  # fmt: skip


def test_json_has_every_column_and_what_became_of_the_conditions(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert (
        cli.main(
            ["diff", "before", "after", "steps", "--json", "--fail-if", "operator:aten::mm>10%"]
        )
        == 1
    )

    answer = json.loads(capsysbinary.readouterr().out)
    assert (answer["command"], answer["table"]) == ("diff", "diff_steps")
    assert answer["run"] == "before.layerscope after.layerscope"
    assert [row[1] for row in answer["rows"]] == [
        "step", "phase.loading", "phase.forward", "phase.backward", "phase.optimizer", "phase.other",
    ]  # fmt: skip
    assert (
        answer["notes"][-1]
        == "operator:aten::mm>10%: failed; it changed by +30.0 % [+30.0, +30.0]."
    )


def test_markdown_is_a_comment_that_no_name_can_break(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", "before", "after", "operators", "--markdown"]
    assert cli.main([*words, "--fail-if", "step>5%", "--fail-if", "operator:aten::add>1%"]) == 1

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "### layerscope diff before after operators"
    assert lines[2].startswith("- step\\>5%: failed; it changed by +")
    assert lines[3].startswith("- operator:aten::add\\>1%: not failed; it changed by +0.0 %")
    assert lines[5].startswith("| what | name | a_ns | b_ns | change_ns |")
    assert lines[6].startswith("| --- | --- | ---: | ---: |")
    assert "| operator | aten::mm | 1.00 µs | 1.30 µs | +300 ns | +30.0 % |" in lines[7]
    assert any("old\\|\\<b\\>\\$x\\$" in line for line in lines)
    cells = {line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}
    assert len(cells) == 1
    assert printed.err == ""


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], 0),
        (["step>90%"], 0),
        (["step>5%"], 1),
        (["step>90%", "operator:aten::mm>29%"], 1),
        (["operator:aten::mm>31%"], 0),
        (["phase.forward>10%"], 1),
        (["operator:new_>1000%"], 1),
    ],
)
def test_the_exit_status_is_1_when_a_condition_failed(
    conditions: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for condition in conditions for word in ("--fail-if", condition)]

    assert cli.main(["diff", "before", "after", "-q", *options]) == status

    assert sum(": failed" in line for line in capsys.readouterr().out.splitlines()) == status


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            [],
            "name two recordings: layerscope diff before after [operators]. The views are overview, operators",
        ),
        (["before"], "name two recordings"),
        (
            ["before", "after", "threads"],
            "there is no view 'threads'. The views are overview, operators, modules, kernels, steps",
        ),
        (["before", "other"], "there is no recording 'other'"),
        (["before", "after", "--fail-if", "step"], "--fail-if 'step' cannot be understood"),
        (["before", "after", "--fail-if", "operator:mm>1%"], "Some that there are: aten::mm"),
        (["before", "after", "--where", "nothing"], "--where 'nothing' cannot be used"),
        (["before", "after", "--sort", "nothing"], "Its columns are what, name, a_ns"),
        (["before", "after", "--csv", "--markdown"], "not allowed with"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence_and_status_125(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", *arguments]) == 125

    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1


PROGRAM = (
    WITHOUT_COMPILER
    + """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 64)).square().mean()
    for extra in range(int(sys.argv[1])):
        torch.linalg.inv(torch.eye(200))
    loss.backward()
    optimizer.step()
"""
)


@pytest.mark.slow
@pytest.mark.usefixtures("native_agent")
def test_work_that_was_added_to_a_real_program_is_found(
    program_python: str, tmp_path: Path
) -> None:
    for name, extra in (("plain", 0), ("more", 5)):
        (tmp_path / name).mkdir()
        assert record(program_python, PROGRAM, tmp_path / name, str(extra)).status == 0

    done = layerscope(
        "diff", "plain/recording", "more/recording", "--json", "--top", "0", cwd=tmp_path
    )
    condition = "operator:aten::linalg_inv_ex>50%"
    checked = layerscope(
        "diff", "plain/recording", "more/recording", "-q", "--fail-if", condition, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    names = [column["name"] for column in answer["columns"]]
    rows = {row[1]: dict(zip(names, row, strict=True)) for row in answer["rows"]}
    assert rows["aten::linalg_inv_ex"]["verdict"] == "added"
    assert rows["aten::linalg_inv_ex"]["b_calls"] == 5
    assert rows["aten::addmm"]["a_calls"] == rows["aten::addmm"]["b_calls"] == 2
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert f"{condition}: failed; it is not in A." in checked.stdout
