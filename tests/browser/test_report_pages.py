"""The report's overview, tables, modules and machine: every number is that of the Python tables, and
everything works by mouse and by keys.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.summary import summarise
from layerscope.model.units import duration
from layerscope.show import summary
from layerscope.show.report.pages import pages
from layerscope.show.report.tables import names_in_report
from layerscope.show.summary_idle import idle_row
from tests.browser import chromium
from tests.browser.report_page import (
    click,
    hash_of,
    open_report,
    reader_of,
    table,
    text,
    values_of_hash,
    wait_hash,
    write_report,
)
from tests.browser.trained import STEPS, trained

MENU = "return [...document.querySelectorAll('nav a')].map(a => a.textContent)"
SHOWN = "return document.querySelector('nav a[aria-current]').textContent"
PLACE = "const box = document.querySelector(args[0]).getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(trained(), folder)
    return folder


@pytest.fixture
def opened(page: chromium.Page, report: Path) -> Any:
    """Opens the report at a state."""

    def open_at(state: str = "") -> chromium.Page:
        open_report(page, (report / "moved" / "train.html").as_uri(), state)
        return page

    return open_at


def test_the_menu_has_every_page_by_mouse_and_by_key(opened: Any) -> None:
    page = opened()
    titles = [module.TITLE for module in pages().values()]
    assert page.run(MENU) == titles

    for title in titles:
        click(page, "nav a", title)
        assert page.run(SHOWN) == title
    for number, title in enumerate(titles, 1):
        page.keys(str(number))
        page.wait(f"document.querySelector('nav a[aria-current]').textContent === '{title}'")


def test_the_overview_says_what_the_summary_says(opened: Any, report: Path) -> None:
    page = opened("#overview")

    with reader_of(report) as reader:
        found = summarise(reader)
    assert found.steps
    assert found.operators
    assert text(page, "#verdict").startswith(
        f"A step takes {duration(found.steps.mean_ns)} on average"
    )
    rows = table(page, "table.top")[1:]
    idle = idle_row(found)
    expected = [*found.operators.rows, *([idle] if idle else [])]
    assert [row[0] for row in rows] == [row.name for row in expected]
    assert [row[1] for row in rows] == [duration(row.self_ns) for row in expected]
    (convolution,) = [row for row in rows if row[0] == "aten::conv2d"]
    assert convolution[5] == "Net.conv"
    assert summary.headline(found) in text(page, "section")
    phases = [f"{name} {duration(ns)}" for name, ns in found.steps.phases_ns.items() if ns]
    said = page.run("return [...document.querySelectorAll('.bar li')].map(li => li.textContent)")
    assert all(any(one.startswith(phase) for one in said) for phase in phases)


def test_a_click_on_a_step_shows_it_in_the_timeline(opened: Any, report: Path) -> None:
    page = opened("#overview")
    page.run("document.querySelector('.chart canvas').scrollIntoView()")
    x, y, width, height = page.run(PLACE, ".chart canvas")

    page.mouse(x + width * 3.5 / STEPS, y + height / 2, click=True)

    wait_hash(page, "#timeline")
    with reader_of(report) as reader:
        (step,) = reader.query("SELECT start_ns, dur_ns FROM steps WHERE step = 3").to_pylist()
    begin, end = step["start_ns"] / 1e9, (step["start_ns"] + step["dur_ns"]) / 1e9
    assert values_of_hash(page)["t"] == f"{begin:g}-{end:g}s"
    assert values_of_hash(page)["step"] == "3"
    page.run("history.back()")
    wait_hash(page, "#overview")


def test_keys_go_through_the_steps_and_a_table_has_the_same(opened: Any) -> None:
    page = opened("#overview")
    page.run("document.querySelector('.chart canvas').focus()")

    page.keys("ArrowRight", "ArrowRight")
    assert text(page, ".chart [role=status]") == "step 1: 20.0 ms"
    page.keys("t")
    page.wait("document.querySelector('[aria-label=\"step times\"]')")
    rows = table(page, '[aria-label="step times"] table')[1:]
    assert rows == [[str(step), f"{ {0: 40, 3: 60}.get(step, 20):.1f} ms"] for step in range(STEPS)]


@pytest.mark.parametrize("name", names_in_report())
def test_every_table_is_that_of_the_terminal(opened: Any, report: Path, name: str) -> None:
    page = opened(f"#tables?table={name}")

    with reader_of(report) as reader:
        result = tables.build(reader, name)
        expected = result.data.to_pylist()
    if not expected:
        assert result.empty in text(page, "main")
        return
    page.run(
        "window.copied = null;"
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}})"
    )
    click(page, ".copy button", "Copy as CSV")
    page.wait("window.copied !== null")
    copied = list(csv.DictReader(io.StringIO(page.run("return window.copied"))))
    assert copied == [{key: _as_csv(value) for key, value in row.items()} for row in expected]


def _as_csv(value: Any) -> str:
    """A value as JavaScript writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value)


def test_a_table_is_sorted_filtered_and_grouped(opened: Any, report: Path) -> None:
    page = opened("#tables?table=operators")
    with reader_of(report) as reader:
        rows = tables.build(reader, "operators").data.to_pylist()

    click(page, ".table th button", "count")
    wait_hash(page, "sort=-count")
    counts = [row["count"] for row in rows]
    column = table(page, ".table table")[0].index("count ▼")
    shown = [int(row[column]) for row in table(page, ".table table")[1:]]
    assert shown == sorted(counts, reverse=True)

    field = "document.querySelector('input[data-search]')"
    page.run(f"{field}.focus()")
    page.keys(*"self_ns > 30ms, conv")
    page.wait(f"document.querySelectorAll('.table tbody tr:not(.spare)').length < {len(rows)}")
    expected = {
        row["name"] for row in rows if row["self_ns"] > 30e6 and "conv" in row["name"].lower()
    }
    assert {row[0] for row in table(page, ".table table")[1:]} == expected
    page.run(f"{field}.select()")
    page.keys(*"nothing > 3")
    page.wait("document.querySelector('[role=alert]')")

    page = opened("#tables?table=operators-kind&group=kind")
    kinds = {row[0]: int(row[2].replace(",", "")) for row in table(page, ".table table")[1:]}
    with reader_of(report) as reader:
        by_kind = reader.query(
            "SELECT kind, count(*) AS n FROM spans WHERE layer = 'operators' GROUP BY kind"
        )
    assert kinds == {row["kind"]: row["n"] for row in by_kind.to_pylist()}


def test_a_row_leads_to_its_spans_and_escape_takes_the_filter_away(opened: Any) -> None:
    page = opened("#tables?table=operators")

    click(page, ".table td button", "aten::mm")
    wait_hash(page, "#timeline")
    assert values_of_hash(page)["name"] == "aten::mm"
    assert text(page, ".chip").startswith("name aten::mm")
    page.keys("Escape")
    page.wait("!document.querySelector('.chip')")
    assert "name" not in values_of_hash(page)


def test_the_modules_are_a_tree_with_the_times_of_the_table(opened: Any, report: Path) -> None:
    page = opened("#modules")
    with reader_of(report) as reader:
        rows = {row["path"]: row for row in tables.build(reader, "modules").data.to_pylist()}

    *shown, outside = table(page, "table.modules")[1:]
    assert outside[0].startswith("outside")
    assert [row[0].lstrip("▾ ").split()[0] for row in shown] == ["Net", "conv", "fc"]
    for row, path in zip(shown, ("Net", "Net.conv", "Net.fc"), strict=True):
        assert row[1] == duration(rows[path]["total_ns"])
        assert row[3] == duration(rows[path]["backward_ns"])
        assert row[4] == duration(rows[path]["self_ns"])
    click(page, "button.fold")
    assert len(table(page, "table.modules")) == 3
    click(page, "button.fold")
    click(page, "button.cell", "conv")
    wait_hash(page, "where=module+in+%22Net.conv%22")


def test_the_machine_page_says_what_the_run_says(opened: Any) -> None:
    page = opened("#machine")

    said = text(page, "main")
    for words in (
        "python examples/train.py --epochs 1",
        "/somewhere",
        "3.11.7",
        "2.13.0+cpu",
        "cpu granted",
    ):
        assert words in said


def test_keys_are_listed_and_the_list_goes_away(opened: Any) -> None:
    page = opened()

    page.keys("?")
    page.wait("document.querySelector('dialog[open]')")
    page.keys("Escape")
    page.wait("!document.querySelector('dialog[open]')")


def test_a_hash_opens_the_same_state_in_a_fresh_window(opened: Any) -> None:
    state = "#tables?t=0.1-0.2s&name=aten::mm&step=2&table=operators&where=conv&sort=-count"
    page = opened(state)

    assert set(hash_of(page).split("?")[1].split("&")) == set(state.split("?")[1].split("&"))
    assert page.run("return document.querySelector('input[data-search]').value") == "conv"
    assert [
        chip.split(" ")[0]
        for chip in page.run(
            "return [...document.querySelectorAll('.chip')].map(c => c.textContent)"
        )
    ] == ["time", "name", "step"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_somebody_chooses(opened: Any, scheme: str) -> None:
    page = opened()
    page.prefer(scheme)

    back = "return getComputedStyle(document.body).backgroundColor"
    assert page.run(back) == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 25, 28)"}[scheme]
    click(page, "header button", "Colours")
    assert page.run(back) == "rgb(255, 255, 255)"
    click(page, "header button", "Colours")
    assert page.run(back) == "rgb(23, 25, 28)"
