"""Printed by Chromium itself, from any page, in dark colours or light: the overview, the findings and
the tables of what takes most time, in light colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.analyse import findings
from layerscope.analyse.summary import summarise
from layerscope.show import findings_text
from tests.browser import chromium, paper
from tests.browser.paper import OnPaper
from tests.browser.report_page import click, open_report, reader_of, table, text, write_report
from tests.findings.slow_loader import slow_loader
from tests.show.report_page import serving

READY = "document.querySelector('.paper')?.dataset.ready !== undefined"
BACK = "return getComputedStyle(document.body).backgroundColor"
DARK = "rgb(23, 25, 28)"
STEPS = 16
# The line of the median in the chart of the steps, as light colours have it.
MEDIAN = (201, 206, 214)
PICTURES = ("#timeline", "#flame")
PAGES = ("#overview", "#findings", *PICTURES, "#tables?table=modules", "#machine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    write_report(slow_loader([8, 12] * (STEPS // 2)), folder)
    return folder


@pytest.fixture
def address(folder: Path, page: chromium.Page) -> Iterator[str]:
    yield (folder / "moved" / "train.html").as_uri()
    page.prefer("light")
    assert page.complaints() == []


def printed(page: chromium.Page, address: str, state: str, scheme: str) -> OnPaper:
    page.prefer(scheme)
    open_report(page, address, state)
    page.wait(READY)
    return paper.read(page.printed())


@pytest.mark.parametrize("state", PAGES)
def test_paper_has_overview_findings_and_top_tables(
    page: chromium.Page, address: str, folder: Path, state: str
) -> None:
    found = printed(page, address, state, "light")

    with reader_of(folder) as reader:
        summary = summarise(reader)
        (finding,) = findings.find(reader).found
    assert summary.operators
    assert all(found.has(row.name) for row in summary.operators.rows)
    assert found.has("on average")
    assert found.has(f"saves {findings_text.price_words(finding.price)}")
    assert found.has(f"Try: {findings_text.remedy_words(finding.remedies[0])}")
    assert not found.has("Copy link")
    assert not found.has("Colours:")
    if state in PICTURES:
        assert found == printed(page, address, "#overview", "light")


def test_an_open_table_follows(page: chromium.Page, address: str) -> None:
    found = printed(page, address, "#tables?table=steps", "light")
    rows = table(page, ".table table")

    assert len(rows) == 1 + STEPS
    for row in rows:
        assert found.has("".join(row))
    without = printed(page, address, "#overview", "light")
    assert found.letters.startswith(without.letters)
    assert not without.has("".join(rows[1]))


@pytest.mark.parametrize("state", ["#overview", "#timeline"])
def test_paper_is_light_though_the_screen_is_dark(
    page: chromium.Page, address: str, state: str
) -> None:
    light = printed(page, address, state, "light")
    assert light.pictures or MEDIAN in light.colours, "the chart of the steps is on paper"

    dark = printed(page, address, state, "dark")
    assert page.run(BACK) == DARK
    assert dark == light
    assert all(sum(colour) <= 3 * 0x60 for colour in dark.text_colours)

    page.prefer("light")
    for _ in range(2):
        click(page, "header button", "Colours")
    assert page.run(BACK) == DARK
    assert paper.read(page.printed()) == light
    assert page.run(BACK) == DARK, "the screen has its colours again"
    assert text(page, ".paper") == ""


def test_what_a_server_has_is_read_when_somebody_prints(page: chromium.Page, folder: Path) -> None:
    with reader_of(folder) as reader, serving(reader.run) as server:
        open_report(page, server.address, "#machine")
        too_soon = paper.read(page.printed())
        page.wait(READY)
        printed_now = paper.read(page.printed())

        open_report(page, server.address, "#timeline")
        page.run(f"window.print = () => {{ window.wasPrinted = Boolean({READY}); }};")
        page.chord("Control", "p")
        page.wait("window.wasPrinted")
    assert too_soon.has("are being read; print again in a moment")
    assert printed_now.has("saves")
