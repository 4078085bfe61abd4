"""Waits that were sampled, not measured from end to end, are moments that stand for so much time: they
are not drawn as long as that, and are called what they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.report_page import table, text, write_report
from tests.browser.timeline_page import (
    colour_at,
    open_timeline,
    row_of,
    settle,
    tip,
    x_of,
)
from tests.recordings import MS, Recording

WAITS = "[aria-label='waits in the selection']"
LEGEND = ".tl-legend"
SAMPLED = "a sample of waits, whose length is not known"
EXACT_NS, SAMPLED_NS = 300 * MS, 600 * MS
LONG_NS, WEIGHT_NS = 100 * MS, 250 * MS


def waiting(is_exact: bool) -> Recording:
    recording = Recording()
    recording.add_span("aten::mm", 0, 1000 * MS)
    stack = recording.add_stack("python train train.py:12")
    wait = {"kind": "offcpu", "state": "lock", "track": recording.thread}
    recording.add_sample(stack, LONG_NS, EXACT_NS, **wait)
    recording.add_sample(stack, WEIGHT_NS, SAMPLED_NS, exact=is_exact, **wait)
    return recording


@pytest.fixture
def opened(page: chromium.Page, tmp_path: Path) -> chromium.Page:
    open_timeline(page, write_report(waiting(is_exact=False), tmp_path), "#timeline?view=0-1s")
    return page


def test_a_sampled_wait_is_drawn_as_a_moment(opened: chromium.Page) -> None:
    y = row_of(opened, "waits") + 1

    def at(ns: float) -> list[int]:
        return colour_at(opened, (x_of(opened, ns), y))

    wait, background = at(EXACT_NS + LONG_NS / 2), at(EXACT_NS - LONG_NS)
    assert wait != background
    assert [at(SAMPLED_NS + part * WEIGHT_NS) for part in (0.1, 0.5, 0.9)] == [background] * 3
    near = [x_of(opened, SAMPLED_NS) + px for px in (-1, 0, 1)]
    assert wait in [colour_at(opened, (x, y)) for x in near]
    # Its head tells it apart without colour.
    heads = [colour_at(opened, (x, y - 6)) for x in near]
    assert [head for head in heads if head not in (wait, background)]


def test_it_says_what_it_stands_for(opened: chromium.Page) -> None:
    y = row_of(opened, "waits")

    opened.mouse(x_of(opened, SAMPLED_NS), y)
    settle(opened)
    stands = "it stands for 250 ms; how long this one took is not known"
    assert tip(opened) == ["a sample of waits: lock", stands, "in train (train.py:12)"]
    opened.mouse(x_of(opened, EXACT_NS + LONG_NS / 2), y)
    settle(opened)
    assert tip(opened)[0] == "waited 100 ms: lock"
    assert SAMPLED in text(opened, LEGEND)


def test_its_time_counts_where_it_was_sampled(opened: chromium.Page) -> None:
    def sums(stretch: str) -> list[list[str]]:
        opened.run("location.hash = args[0]", f"#timeline?t={stretch}")
        settle(opened)
        return [row[:3] for row in table(opened, WAITS, exact=True)]

    assert sums("0.35-0.65s") == [["lock", "2", f"{LONG_NS // 2 + WEIGHT_NS:,}"]]
    assert sums("0.55-0.65s") == [["lock", "1", f"{WEIGHT_NS:,}"]]
    assert sums("0.65-0.8s") == []


def test_where_all_were_measured_nothing_is_said_of_samples(
    page: chromium.Page, tmp_path: Path
) -> None:
    open_timeline(page, write_report(waiting(is_exact=True), tmp_path), "#timeline?view=0-1s")

    page.mouse(x_of(page, SAMPLED_NS + WEIGHT_NS / 2), row_of(page, "waits"))
    settle(page)
    assert tip(page)[0] == "waited 250 ms: lock"
    assert SAMPLED not in text(page, LEGEND)
