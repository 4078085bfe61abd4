"""Findings are looked for once for all pages that show them, in a file and at the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.analyse import findings
from layerscope.analyse.findings import RunFindings
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show.report import block_process, live_timeline
from layerscope.show.report.live_contents import LiveContents
from tests.findings.slow_loader import slow_loader
from tests.show.report_page import ReportPage, unpacked

PAGES = ("page overview", "page findings")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return slow_loader([8, 12] * 8).write(tmp_path / "train.layerscope")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    """Whose findings were looked for, in this process."""
    readers: list[Reader] = []
    find = findings.find

    def counted(reader: Reader, *more: Any, **named: Any) -> RunFindings:
        readers.append(reader)
        return find(reader, *more, **named)

    monkeypatch.setattr(findings, "find", counted)
    return readers


def test_a_file_has_them_looked_for_once(run: Run, asked: list[Reader]) -> None:
    file = run.path.with_suffix(".html")
    assert cli.main(["report", str(run.path), "-o", str(file), "-q"]) == 0

    assert len(asked) == 1
    overview, page = (ReportPage(file).block(name) for name in PAGES)
    assert overview["worth"][0]["title"] == page["found"][0]["title"]


def test_a_comparison_has_them_looked_for_once_a_side(
    run: Run, asked: list[Reader], tmp_path: Path
) -> None:
    before = slow_loader([0] * 16).write(tmp_path / "before.layerscope")
    words = ["report", str(run.path), "--compare", str(before.path), "-q"]
    assert cli.main([*words, "-o", str(run.path.with_suffix(".html"))]) == 0

    assert len(asked) == 2
    assert len({reader.run.path for reader in asked}) == 2


@pytest.mark.parametrize("most_in_page", [live_timeline.MOST_IN_PAGE, 0])
def test_the_server_has_them_looked_for_once(
    run: Run,
    asked: list[Reader],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    most_in_page: int,
) -> None:
    """Of a recording that a page cannot hold another process would look for them again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", most_in_page)
    monkeypatch.delattr(block_process.BlockMaker, "made_with")
    contents = LiveContents(Reader(run))
    overview, page = (unpacked(contents.block(name)) for name in PAGES)
    contents.close()

    assert len(asked) == 1
    assert overview["worth"][0]["title"] == page["found"][0]["title"]
