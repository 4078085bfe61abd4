"""Recordings that are hard to draw: next to nothing, very much, very deep, and hostile names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.browser.report_page import click, reader_of, table, text, write_report
from tests.browser.timeline_page import (
    canvas,
    choose,
    colour_at,
    facts,
    labels,
    open_timeline,
    place,
    row_of,
    settle,
    tip,
    view,
    x_of,
)
from tests.recordings import MS, Recording, S

pytestmark = pytest.mark.slow

TRACKS, LEVELS = 10_000, 512
STATISTICS = ".tl-selection [aria-label='statistics of the selection']"
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "quotes \"'` and <b>&amp;",
    "right \u202e to left",
    "\U0001f600 emoji",
    "x" * 1_000_000,
]


@pytest.fixture
def opened(page: chromium.Page, tmp_path: Path) -> Any:
    """Opens the timeline of a recording."""

    def open_(recording: Recording, state: str = "#timeline") -> None:
        open_timeline(page, write_report(recording, tmp_path), state)
        assert page.complaints() == []

    return open_


def test_one_span_without_length_can_be_seen_and_chosen(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    recording.add_span("aten::nothing", 5 * MS, 0)
    opened(recording)

    start_ns, end_ns = view(page)
    assert start_ns < 5 * MS < end_ns
    choose(page, "aten::nothing")
    assert facts(page)["duration"] == "0 ns"
    assert facts(page)["self time"] == "0 ns"
    assert table(page, STATISTICS, exact=True)[0][2:4] == ["1", "0"]
    assert labels(page) == ["process 100", "python 100"]
    for key in ("w", "s", "a", "d", "f", "m", "0", "t", "t"):
        page.keys(key)
        settle(page)
    assert page.complaints() == []


def test_spans_of_a_nanosecond_lie_beside_each_other(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    for at in range(40):
        recording.add_span(f"op{at % 4}", S + 2 * at, at % 2)
    opened(recording, "#timeline?view=1-1.00000002s")

    choose(page, "op1", 1)
    assert facts(page)["starts"] == "1.00000001 s"
    assert facts(page)["duration"] == "1 ns"


def test_ten_thousand_tracks_have_a_few_labels_at_a_time(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    for tid in range(1, TRACKS):
        thread = recording.add_thread(0, 1000 + tid, "worker")
        recording.add_span("aten::mm", tid * MS, 3 * MS, track=thread)
    opened(recording)

    assert page.run("return document.querySelectorAll('.tl-label').length") < 100
    page.run("document.querySelector('.tl-scroller').scrollTop = 1e9")
    settle(page)
    assert labels(page)[-1] == f"worker {1000 + TRACKS - 1}"
    x, y, width, height = canvas(page)
    assert place(page, "aten::mm", TRACKS - 2)[1] == pytest.approx(y + height - 9, abs=2)
    # The wheel over the labels scrolls.
    assert (
        page.run("return document.querySelector('.tl-ruler').getBoundingClientRect().width")
        == width
    )
    before = labels(page)
    page.wheel(x - 60, y + 60, down=-300)
    settle(page)
    assert labels(page) != before
    click(page, ".tl-rows")
    page.keys(*"4242")
    settle(page)
    assert labels(page) == ["process 100", "worker 4242"]
    assert x + width > place(page, "aten::mm", 3241)[0] > x


def test_512_levels_are_512_rows(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    parent = None
    for level in range(LEVELS):
        parent = recording.add_span(f"level{level}", level, 10_000 - 2 * level, parent)
    opened(recording)

    page.run("document.querySelector('.tl-scroller').scrollTop = 1e9")
    settle(page)
    choose(page, f"level{LEVELS - 1}")
    assert "471 more" in text(page, ".tl-chain")
    click(page, ".tl-chain button", f"level{LEVELS - 2}")
    settle(page)
    assert facts(page)["duration"].startswith("8.98")
    page.keys("Escape", "/", *"level0")
    page.keys("Enter")
    settle(page)
    # The row of the hit is scrolled to.
    assert page.run("return document.querySelector('.tl-scroller').scrollTop") < 100


def test_hostile_names_are_text(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    for at, name in enumerate(HOSTILE):
        recording.add_span(name, at * 10 * MS, 9 * MS)
    opened(recording)

    for name in HOSTILE:
        choose(page, name)
        shown = text(page, ".tl-span-name")
        assert shown == name if len(name) < 2000 else shown.startswith("x" * 1000)
        page.mouse(*place(page, name))
        assert tip(page)[0].startswith(name[:300])
    assert page.run("return document.querySelector('img')") is None


def test_weights_of_a_thinned_recording_are_said(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 10 * MS, 5 * MS, weight=8)
    recording.add_span("aten::relu", 20 * MS, 5 * MS)
    opened(recording)

    assert "Steps were left out" in text(page, ".tl-selection")
    choose(page, "aten::mm")
    assert facts(page)["weight"] == "8: it stands for that many, because steps were left out"


def test_waits_are_shown_without_spans(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    recording.add_sample(None, 300 * MS, at_ns=S, kind="offcpu", state="file")
    opened(recording)

    assert labels(page) == ["process 100", "python 100: waits"]
    page.keys("s", "s", "s")
    settle(page)
    page.mouse(x_of(page, S + 10 * MS), row_of(page, "python 100"))
    assert tip(page) == ["waited 300 ms: file"]
    waits = table(page, "[aria-label='waits in the selection']", exact=True)
    assert waits == [["file", "1", "300,000,000", "300,000,000"]]


@pytest.mark.parametrize("ends", [(1.5, 2.5), (1, 1.0005), (3.9, 5.25), (0.5, 1), (0, 9)])
def test_waits_count_with_the_part_that_is_selected(
    page: chromium.Page, opened: Any, tmp_path: Path, ends: tuple[float, float]
) -> None:
    recording = Recording()
    recording.add_sample(None, 3 * S, at_ns=S, kind="offcpu", state="sleep")
    recording.add_sample(None, 1001, at_ns=S + 10, kind="offcpu", state="lock")
    recording.add_sample(None, 300 * MS, at_ns=5 * S, kind="offcpu", state="lock")
    recording.add_sample(None, 0, at_ns=S, kind="offcpu", state="file")
    opened(recording, f"#timeline?t={ends[0]}-{ends[1]}s")

    with reader_of(tmp_path) as reader:
        start_ns = reader.run.info.start_ns
        rows = reader.query(
            """
            SELECT state, count(*) AS count, sum(part_ns) AS total_ns FROM (
                SELECT state, at_ns, weight_ns, at_ns + weight_ns AS end_ns, $1 AS first, $2 AS last,
                    greatest(0, least(end_ns, last) - greatest(at_ns, first)) AS part_ns
                FROM samples WHERE kind = 'offcpu')
            WHERE part_ns > 0 OR at_ns >= first AND at_ns < last
            GROUP BY state ORDER BY total_ns DESC""",
            [start_ns + round(at * S) for at in ends],
        ).to_pylist()
    if not rows:
        assert text(page, ".tl-selection .quiet") == "Nothing waited in it."
        return
    waits = table(page, "[aria-label='waits in the selection']", exact=True)
    wanted = [[row["state"], f"{row['count']:,}", f"{row['total_ns']:,}"] for row in rows]
    assert [row[:3] for row in waits] == wanted


def test_calls_that_overlap_do_not_cover_each_other(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    recording.add_span("first", 10 * MS, 30 * MS, layer="api", kind="call")
    recording.add_span("second", 20 * MS, 30 * MS, layer="api", kind="call")
    opened(recording)

    first, second = place(page, "first"), place(page, "second")
    assert second[1] == first[1] + 18
    for at in (first, second):
        # Beside the text.
        assert colour_at(page, (at[0], at[1] - 4)) != [255, 255, 255]


def test_an_unfinished_span_says_so(page: chromium.Page, opened: Any) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 10 * MS, 5 * MS, unfinished=True)
    opened(recording)

    choose(page, "aten::mm")
    assert facts(page)["unfinished"] == "it had not ended when the recording did"
