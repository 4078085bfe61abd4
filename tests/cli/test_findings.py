"""`layerscope findings`: its words, outputs and exit statuses, and what it proves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from layerscope import cli
from tests.findings.slow_loader import slow_loader

# A program that takes as long as a variable says, and prints the same.
PROGRAM = "import os, time\ntime.sleep(float(os.environ.get('NAP', '0.1')))\nprint('done')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a recording whose steps of 20 ms wait half their time for the loader."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    slow_loader([10] * 12).write(tmp_path / "slow.layerscope")
    slow_loader([0] * 12).write(tmp_path / "fast.layerscope")
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert cli.main(["findings", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_finding_says_what_where_how_much_and_what_to_try(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["findings", "slow"]) == 0

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:3] == [
        "1  50 % of a step waits for the data loader",
        "   loader_wait at data.py:7",
        "   saves at most 11.0 ms of a step [10.0 ms, 11.0 ms], 55 %",
    ]
    assert lines[3].startswith("   try: ")
    assert printed.err == "Next: layerscope findings --explain loader_wait\n"


def test_nothing_worth_changing_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["findings", "fast"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith("Nothing worth changing here.\n\nLooked at")
    assert printed.err == ""


def test_json_has_documented_columns(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "slow", "--rule", "loader_wait")

    names = [column["name"] for column in made["columns"]]
    (row,) = (dict(zip(names, values, strict=True)) for values in made["rows"])
    assert {name: row[name] for name in ("number", "rule", "where", "price_ns", "low_ns", "high_ns", "share", "per")} == {
        "number": 1, "rule": "loader_wait", "where": "data.py:7", "price_ns": 11_000_000, "low_ns": 10_000_000,
        "high_ns": 11_000_000, "share": 0.55, "per": "step",
    }  # fmt: skip
    assert (row["certainty"], row["proven"]) == ("certain", "")


def test_rules_that_cannot_judge_are_problems(capsys: pytest.CaptureFixture[str]) -> None:
    problems = document(capsys, "slow")["problems"]

    said = {problem["lost"]: problem["what"] for problem in problems}
    assert "no primitives were recorded" in said["onednn_reorders"]


def test_the_evidence_is_a_question_and_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["findings", "slow", "--evidence", "--rule", "loader_wait"])

    printed = capsys.readouterr().out
    assert "SELECT" in printed
    assert "sleep  data.py:7  120000000  12" in printed
    rows = document(capsys, "slow", "--evidence", "--rule", "loader_wait")["rows"]
    assert [1, "loader_wait", 1, "total_ns", "120000000"] in rows


def test_a_rule_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["findings", "--explain", "loader_wait"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("loader_wait\n\nThe thread that makes the steps waits")
    assert "share = 0.05 of a step" in printed
    assert "**" not in printed


def test_a_threshold_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "slow", "--set", "loader_wait.share=0.6")["rows"] == []


@pytest.mark.parametrize(
    ("limit", "status"), [("40%", 1), ("60%", 0), ("9ms", 1), ("11 ms", 0), ("9000us", 1)]
)
def test_the_status_says_whether_one_costs_more(limit: str, status: int) -> None:
    assert cli.main(["findings", "slow", "-q", "--fail-on", limit]) == status


def test_on_a_busy_machine_nothing_fails(folder: Path) -> None:
    slow_loader([10] * 12, busy=True).write(folder / "busy.layerscope")

    assert cli.main(["findings", "busy", "-q", "--fail-on", "1%"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-on", "much"], "give a share of a step (5%) or a time (2ms)"),
        (["--set", "loader_wait.shore=1"], "Did you mean 'loader_wait.share'?"),
        (["--set", "loader_wait.share=x"], "'x' is not a number"),
        (["--rule", "loader_weight"], "Did you mean 'loader_wait'?"),
        (["--explain", "nothing"], "there is no rule 'nothing'"),
        (["--prove", "7"], "the findings are numbered from 1 to 1"),
        (["--prove", "loader_wait"], "needs an edit"),
        (["--prove", "1", "--with-env", "A"], "give NAME=VALUE"),
        (["--prove", "1", "--with-env", "A=1", "--with", "x"], "prove one at a time"),
        (["--prove", "1", "--with-env", "A=1", "--budget", "0"], "a number of minutes above 0"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["findings", "slow", *words]) == 125

    printed = capsys.readouterr()
    assert said in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nap", "verdict"),
    [("0.01", "proven"), ("0.4", "refuted"), ("0.1", "no difference measurable")],
)
def test_a_change_is_proven_refuted_or_makes_no_difference(
    nap: str, verdict: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    words = ["--prove", "loader_wait", "--with-env", f"NAP={nap}", "--budget", "0.2", "-q"]

    assert cli.main(["findings", "slow", *words, "--", sys.executable, "program.py"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith(verdict)
    (kept,) = json.loads((folder / "slow.layerscope" / "proofs.json").read_text())
    assert (kept["rule"], kept["verdict"], kept["change"]) == ("loader_wait", verdict, f"NAP={nap}")
    cli.main(["findings", "slow", "-q"])
    assert verdict in capsys.readouterr().out


@pytest.mark.slow
def test_another_command_may_be_the_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "faster.py").write_text(PROGRAM.replace("0.1", "0.01"))
    change = f"{sys.executable} faster.py"
    words = ["--prove", "1", "--with", change, "--budget", "0.2", "-q"]

    cli.main(["findings", "slow", *words, "--", sys.executable, "program.py"])

    assert capsys.readouterr().out.startswith("proven")


@pytest.mark.slow
def test_a_change_that_prints_something_else_proves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "other.py").write_text("print('another')\n")
    change = f"{sys.executable} other.py"
    words = ["--prove", "1", "--with", change, "--budget", "0.2", "-q"]

    assert cli.main(["findings", "slow", *words, "--", sys.executable, "program.py"]) == 125

    assert "cannot be compared" in capsys.readouterr().err
    assert not (folder / "slow.layerscope" / "proofs.json").exists()
