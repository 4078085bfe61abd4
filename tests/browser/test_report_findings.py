"""The findings on the report's pages: those of the command, with their evidence."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse import findings
from layerscope.show import findings_text
from tests.browser import chromium
from tests.browser.report_page import click, open_report, reader_of, table, text, write_report
from tests.findings.slow_loader import slow_loader


def test_the_overview_names_the_findings_and_leads_to_them(
    page: chromium.Page, tmp_path: Path
) -> None:
    address = write_report(slow_loader([8, 12] * 8), tmp_path)
    with reader_of(tmp_path) as reader:
        (found,) = findings.find(reader).found

    open_report(page, address)
    assert f"{found.title}: saves {findings_text.price_words(found.price)}" in text(page, "main")
    click(page, "main button", found.title)
    page.wait("location.hash.startsWith('#findings')")

    shown = text(page, "main")
    assert found.remedies[0].what in shown
    assert "at data.py:7" in shown
    click(page, "details summary", "Evidence")
    rows = table(page, "details table")
    assert rows[0] == found.evidence[0].rows.schema.names
    assert rows[1:] == [
        [findings_text.cell(value) for value in row.values()]
        for row in found.evidence[0].rows.to_pylist()
    ]


def test_nothing_worth_changing_is_said(page: chromium.Page, tmp_path: Path) -> None:
    address = write_report(slow_loader([0] * 16), tmp_path)

    open_report(page, address, "#findings")

    assert findings_text.NOTHING in text(page, "main")
