"""Memory in the report: what the overview says, its flame graphs and its counter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import chromium
from tests.browser.report_flame import READY
from tests.browser.report_page import click, open_report, table, text, write_report
from tests.browser.timeline_page import labels
from tests.replayed import replay

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("memory")
    return write_report(replay("memory", folder).run.path, folder)


@pytest.fixture
def address(report: str, page: chromium.Page) -> Iterator[str]:
    yield report
    assert page.complaints() == []


def test_the_overview_has_the_peak_and_leads_to_its_picture(
    page: chromium.Page, address: str
) -> None:
    open_report(page, address)

    shown = text(page, "section[aria-labelledby=memory]")
    assert "Tensors: 12.7 MB at the peak" in shown
    assert "not released when the last step ended" in shown
    assert "optimizer state 76.9 kB" in shown
    click(page, "section button", "By module and line")
    page.wait(READY)
    assert text(page, ".flame-says").startswith("12.7 MB live at the peak in 34 blocks")


@pytest.mark.parametrize(
    ("kind", "says"),
    [("alloc", "14.7 MB allocated in 658 blocks"), ("leak", "7.34 MB left over in 7 blocks")],
)
def test_frames_have_sizes(page: chromium.Page, address: str, kind: str, says: str) -> None:
    open_report(page, address, f"#flame?kind={kind}")
    page.wait(READY)

    assert text(page, ".flame-says").startswith(says)
    assert f"--kind {kind}" in text(page, ".command")
    click(page, ".flame-says button", "As a table")
    (_, *rows) = table(page, "main table")
    assert (rows[0][0], rows[0][3]) == ("all", " ".join(says.split()[:2]))


def test_a_part_of_the_memory_is_left_to_the_terminal(page: chromium.Page, address: str) -> None:
    open_report(page, address, "#flame?kind=live&step=3&by=thread")

    assert text(page, ".flame-nothing").startswith("This page shows the memory of the whole")
    assert "--kind live --step 3:4 --by none" in text(page, ".command")


def test_the_timeline_has_the_counter(page: chromium.Page, address: str) -> None:
    open_report(page, address, "#timeline?rows=live_bytes")
    page.wait("document.querySelector('.tl-counters')")
    click(page, ".tl-counters .tl-head-button")

    assert "process live_bytes of cpu" in labels(page)
