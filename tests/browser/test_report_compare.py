"""The page that compares two recordings says what `layerscope diff` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope import cli
from layerscope.analyse import diff
from layerscope.analyse.diff import OVERVIEW
from layerscope.analyse.stacks import graphs
from layerscope.analyse.stacks.flame_layout import THINNEST, draw
from layerscope.analyse.stacks.graphs import Look
from layerscope.model.units import duration
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.browser import chromium
from tests.browser.report_page import click, open_report, table, text, wait_hash
from tests.browser.trained import trained
from tests.recordings import MS, Recording


def slower() -> Recording:
    """The same training, whose optimizer takes 3 ms longer in each step."""
    recording = trained()
    for row in recording.rows["steps"]:
        row["dur_ns"] += 3 * MS
        row["optimizer_ns"] += 3 * MS
    for span in recording.rows["spans"]:
        if span["kind"] == "optimizer":
            span["dur_ns"] += 3 * MS
            span["self_ns"] += 3 * MS
    return recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    trained().write(folder / "before.layerscope")
    slower().write(folder / "after.layerscope")
    after, before = str(folder / "after.layerscope"), str(folder / "before.layerscope")
    file = str(folder / "after.html")
    assert cli.main(["report", after, "--compare", before, "-o", file, "-q"]) == 0
    return folder


@pytest.fixture
def compared(page: chromium.Page, folder: Path) -> chromium.Page:
    open_report(page, (folder / "after.html").as_uri(), "#compare")
    return page


def test_it_says_what_diff_says(compared: chromium.Page, folder: Path) -> None:
    with (
        Reader(Run.open(folder / "before.layerscope")) as before,
        Reader(Run.open(folder / "after.layerscope")) as after,
    ):
        made = diff.build(before, after, ("before", "after"), [OVERVIEW])
        rows = made.result(OVERVIEW, after.connection()).data.to_pylist()

    shown = table(compared, ".table table")[1:]
    expected = sorted((row["what"], row["name"], row["verdict"]) for row in rows)
    assert sorted((row[0], row[1], row[8]) for row in shown) == expected
    (step,) = [row for row in rows if row["what"] == "step"]
    said = text(compared, "#compared")
    assert duration(step["a_ns"]) in said
    assert duration(step["b_ns"]) in said
    assert said.endswith(step["verdict"])


def test_what_is_sure_comes_first(compared: chromium.Page) -> None:
    verdicts = [row[8] for row in table(compared, ".table table")[1:]]

    sure = [verdict in ("slower", "faster", "added", "gone") for verdict in verdicts]
    assert sure == sorted(sure, reverse=True)


def test_step_times_lie_over_each_other(compared: chromium.Page) -> None:
    rows = table(compared, "section[aria-labelledby=distributions] table")

    heads = ["step times", "p5", "p25", "p50", "p75", "p95", "p99"]
    assert rows[0] == heads
    assert rows[1] == ["before: before", *["20.0 ms"] * 4, *["60.0 ms"] * 2]
    assert rows[2] == ["now: after", *["23.0 ms"] * 4, *["63.0 ms"] * 2]


def test_a_step_of_each_on_one_scale(compared: chromium.Page) -> None:
    compared.wait("document.querySelectorAll('.strip canvas').length === 2")
    captions = (
        "return [...document.querySelectorAll('.strip figcaption')].map(one => one.textContent)"
    )
    assert compared.run(captions)[0].endswith("20.0 ms")

    click(compared, "#strips ~ label input")
    compared.run("document.querySelector('#strips ~ label input').select()")
    compared.keys("3", "Enter")
    compared.wait("document.querySelector('.strip figcaption').textContent.includes('step 3')")
    assert [one.split(", ")[1] for one in compared.run(captions)] == ["60.0 ms", "63.0 ms"]


def test_the_flame_graph_against_the_one_before(page: chromium.Page, folder: Path) -> None:
    open_report(page, (folder / "after.html").as_uri(), "#flame?kind=operators")
    click(page, ".kinds input")
    wait_hash(page, "compared=yes")
    page.wait("document.querySelector('#layerscope-flame')?.flame.compared")

    with (
        Reader(Run.open(folder / "before.layerscope")) as before,
        Reader(Run.open(folder / "after.layerscope")) as after,
    ):
        drawn = draw(graphs.compare(after, before, Look("operators", least=THINNEST)))
    shown = page.run("return document.querySelector('#layerscope-flame').flame.nodes")
    assert shown["total"][1:] == drawn.total.tolist()
    assert shown["change"][1:] == drawn.change.tolist()
    assert max(shown["change"][1:]) == 3 * MS
    assert page.run("return document.querySelectorAll('#frames [class*=grew]').length") > 0
