"""Where findings are shown beside `layerscope findings`: in the summary and in `diff`."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope import cli
from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.show.summary import text
from tests.findings.slow_loader import slow_loader


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    slow_loader([10] * 12).write(tmp_path / "slow.layerscope")
    slow_loader([0] * 12).write(tmp_path / "fast.layerscope")
    return tmp_path


def test_the_summary_names_what_is_worth_a_try(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["summary", "slow"])

    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("Worth a try"))
    assert lines[at].endswith("saves at most, of a step")
    assert lines[at + 1].split("  ")[1] == "50 % of a step waits for the data loader"
    assert lines[at + 1].endswith("11.0 ms [10.0 ms, 11.0 ms]")
    assert lines[at + 2].startswith("    data.py:7: load in the background")


def test_the_summary_says_where_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["summary", "fast"])

    assert (
        "Nothing worth changing here. What was looked at: layerscope findings"
        in capsys.readouterr().out
    )


def test_with_few_steps_the_summary_says_nothing_of_findings(folder: Path) -> None:
    with Reader(slow_loader([10] * 4).write(folder / "short.layerscope")) as reader:
        summary = summarise(reader)

    assert summary.findings is None
    assert "Worth a try" not in text(summary)


def test_diff_names_what_came_and_what_went(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["diff", "slow", "fast"])
    assert "Findings that are gone in B: loader_wait." in capsys.readouterr().out

    cli.main(["diff", "fast", "slow"])
    assert "Findings that B has and A has not: loader_wait." in capsys.readouterr().out
