"""The timeline of a report in a browser, driven by a real mouse and keys."""

from __future__ import annotations

import re

import pytest

from tests.browser import chromium
from tests.browser.report_page import (
    click,
    hash_of,
    text,
    values_of_hash,
)
from tests.browser.timeline_page import (
    BOTH,
    FIRST_NS,
    STEP_NS,
    canvas,
    colour_at,
    double_click,
    facts,
    label_place,
    labels,
    open_timeline,
    place,
    row_of,
    settle,
    tip,
    view,
    x_of,
)
from tests.recordings import MS

pytestmark = [pytest.mark.slow, BOTH]

RANK_0 = ["rank 0 100", "python 100", "waits", "autograd 101", "waits", "2 counters"]


def test_rows_are_processes_threads_lanes_waits_and_counters(
    page: chromium.Page, address: str
) -> None:
    open_timeline(page, address)

    assert labels(page) == [*RANK_0, "rank 1 200", "python 200"]
    assert place(page, "Net")[1] == row_of(page, "python 100")
    assert place(page, "aten::conv2d")[1] == row_of(page, "python 100") + 18
    assert place(page, "convolution")[1] == row_of(page, "python 100") + 36
    assert "10 steps" not in text(page, ".tl-said")
    assert text(page, "#tl-selection") == "Statistics of the whole run"


def test_the_wheel_zooms_and_pans(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)
    whole = view(page)
    left, top, width, _ = canvas(page)
    at = left + width / 4

    for held in ("", "Control"):
        before = view(page)
        page.wheel(at, top + 40, down=-300, held=held)
        settle(page)
        after = view(page)
        assert after[1] - after[0] < 0.7 * (before[1] - before[0])
        # The moment under the mouse stays there.
        assert after[0] + (after[1] - after[0]) / 4 == pytest.approx(
            before[0] + (before[1] - before[0]) / 4, abs=(whole[1] - whole[0]) / 500
        )
    for turn in ({"down": 200, "held": "Shift"}, {"right": 200}):
        before = view(page)
        page.wheel(at, top + 40, **turn)
        settle(page)
        assert view(page)[0] > before[0]
        assert view(page)[1] - view(page)[0] == pytest.approx(before[1] - before[0], abs=2)
    assert re.search(r"view=[\d.]+-[\d.]+s", hash_of(page))


def test_drags_on_the_ruler_and_with_space_move(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.3-0.5s")
    left, top, width, _ = canvas(page)

    page.drag((left + 300, top - 30), (left + 300 - width / 2, top - 30))
    settle(page)
    assert view(page) == (pytest.approx(400 * MS, abs=MS), pytest.approx(600 * MS, abs=MS))
    page.mouse(left + 5, top + 5, click=True)
    page.drag((left + 200, top + 40), (left + 200 + width / 2, top + 40), held="Space")
    settle(page)
    assert view(page) == (pytest.approx(300 * MS, abs=MS), pytest.approx(500 * MS, abs=MS))
    assert "t" not in values_of_hash(page)


def test_a_double_click_zooms_to_a_span(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)

    double_click(page, "Optimizer.step", 2)

    assert view(page) == (pytest.approx(380.6 * MS, abs=10), pytest.approx(397.4 * MS, abs=10))


def test_letters_and_arrows_zoom_and_pan(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.3-0.5s")

    page.keys("w")
    settle(page)
    assert view(page) == (340 * MS, 460 * MS)
    page.keys("s")
    settle(page)
    assert view(page) == (300 * MS, 500 * MS)
    page.keys("d")
    settle(page)
    assert view(page) == (340 * MS, 540 * MS)
    page.keys("a", "ArrowLeft")
    settle(page)
    assert view(page) == (260 * MS, 460 * MS)
    page.keys("ArrowRight")
    settle(page)
    assert view(page) == (300 * MS, 500 * MS)
    page.keys("0")
    settle(page)
    assert view(page)[0] < FIRST_NS
    assert view(page)[1] > FIRST_NS + 10 * STEP_NS
    assert "view" not in values_of_hash(page)


def test_filters_dim_what_they_leave_out(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.3s")
    names = ("aten::conv2d", "aten::relu", "Optimizer.step", "Net")
    # Beside the text of the spans.
    points = {name: (place(page, name, 1)[0], place(page, name, 1)[1] - 5) for name in names}
    plain = {name: colour_at(page, point) for name, point in points.items()}

    def changed(state: str) -> set[str]:
        page.run("location.hash = args[0]", f"#timeline?view=0.2-0.3s&{state}")
        settle(page)
        page.run("await new Promise(done => setTimeout(done, 100))")
        return {name for name, point in points.items() if colour_at(page, point) != plain[name]}

    # A row of chips moves the picture down, so the points are asked for where it is now.
    page.run("location.hash = '#timeline?view=0.2-0.3s&name=nothing'")
    settle(page)
    points = {name: (place(page, name, 1)[0], place(page, name, 1)[1] - 5) for name in names}
    assert changed("name=aten::relu") == {"aten::conv2d", "Optimizer.step", "Net"}
    assert changed("module=Net") == {"aten::relu", "Optimizer.step"}
    assert changed("step=1") == set()
    assert changed("step=2") == set(names)


def test_a_step_from_elsewhere_is_shown(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?step=4")

    start_ns = FIRST_NS + 4 * STEP_NS
    assert view(page) == (start_ns - 15 * MS, start_ns + STEP_NS + 15 * MS)
    assert text(page, "#tl-selection") == "Statistics of step 4"
    page.keys("Escape")
    settle(page)
    # A click on the ruler selects a step, another one lets it go.
    x, y = x_of(page, start_ns + STEP_NS / 2), canvas(page)[1] - 28
    page.mouse(x, y, click=True)
    settle(page)
    assert values_of_hash(page)["step"] == "4"
    page.mouse(x, canvas(page)[1] - 28, click=True)
    settle(page)
    assert "step" not in values_of_hash(page)


def test_the_search_finds_counts_and_goes_on(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.1-0.6s")

    page.keys("/", *"aten CONV")
    settle(page)
    assert text(page, "#tl-hits") == "10 hits in 1 name"
    page.keys("Enter")
    settle(page)
    assert facts(page)["starts"] == "0.112 s"
    page.mouse(canvas(page)[0] + 3, canvas(page)[1] + 3)
    page.run("document.activeElement.blur()")
    for key, start in (
        ("n", "0.212 s"),
        ("n", "0.312 s"),
        ("N", "0.212 s"),
        ("N", "0.112 s"),
        ("N", "1.012 s"),
    ):
        page.keys(key)
        settle(page)
        assert facts(page)["starts"] == start
        assert view(page)[0] < float(start[:-2]) * 1e9 < view(page)[1]
    yellow = colour_at(
        page, (place(page, "aten::conv2d", 9)[0], place(page, "aten::conv2d", 9)[1] - 5)
    )
    assert yellow == [255, 230, 0]
    page.keys("Escape", "Escape")
    settle(page)
    assert "find" not in values_of_hash(page)
    page.keys("/", *r"/^aten::(relu|other)$/")
    settle(page)
    assert text(page, "#tl-hits") == "11 hits in 2 names"
    click(page, ".tl-hits summary")
    click(page, ".tl-hits button", "aten::other")
    assert values_of_hash(page)["name"] == "aten::other"
    click(page, "[data-search]")
    page.keys("Escape", "/", *"/(/")
    settle(page)
    assert text(page, "#tl-hits").startswith("this cannot be searched for: ")


def test_keys_go_through_rows_and_spans(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.4s")
    page.run("document.querySelector('.tl-over').focus()")

    page.keys("ArrowDown", "ArrowDown", "Tab")
    settle(page)
    assert text(page, ".tl-said").startswith("aten::conv2d, 20.0 ms, operators, function")
    page.keys("Tab")
    settle(page)
    assert text(page, ".tl-said").startswith("aten::relu, 6.00 ms")
    page.chord("Shift", "Tab")
    page.keys("Enter")
    settle(page)
    assert facts(page)["starts"] == "0.212 s"
    page.keys("ArrowUp", "Tab")
    settle(page)
    assert text(page, ".tl-said").startswith("Net, 40.0 ms")
    # Waits are rows too.
    page.keys("ArrowDown", "ArrowDown", "ArrowDown", "Tab")
    settle(page)
    said = text(page, ".tl-said")
    assert said.startswith(
        "waited 16.0 ms: lock, in wait_for (libgomp.so), from train (train.py:12)"
    )
    assert "woken by rank 0 100, autograd 101" in said
    # Behind the last span, Tab goes on in the page; without a row it does at once.
    page.run("location.hash = '#timeline?view=1.0-1.1s'")
    settle(page)
    page.keys("Tab", *["Tab"] * 12)
    assert page.run("return document.activeElement.className") != "tl-over"
    page.run("document.querySelector('.tl-over').focus()")
    page.keys("Escape", "Tab")
    assert page.run("return document.activeElement.className") != "tl-over"


def test_tracks_are_closed_pinned_and_filtered(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)

    click(page, ".tl-thread .tl-head-button", "python 100")
    settle(page)
    assert labels(page)[:3] == ["rank 0 100", "python 100", "autograd 101"]
    page.keys("Enter")
    settle(page)
    assert labels(page)[:4] == RANK_0[:4]
    click(page, ".tl-process .tl-head-button", "rank 0 100")
    settle(page)
    assert labels(page) == ["rank 0 100", "rank 1 200", "python 200"]
    # What is chosen opens what it is in.
    page.keys("/", *"relu")
    page.keys("Enter")
    settle(page)
    assert labels(page)[:2] == RANK_0[:2]
    page.keys("Escape")
    click(page, ".tl-pin[aria-label='pin autograd 101']")
    settle(page)
    assert labels(page)[:3] == ["rank 0 100 autograd 101", "waits", "rank 0 100"]
    assert place(page, "ConvBackward0")[1] == row_of(page, "autograd 101")
    click(page, ".tl-pin[aria-pressed='true']")
    click(page, ".tl-rows")
    page.keys(*"autograd")
    settle(page)
    assert labels(page) == ["rank 0 100", "autograd 101", "waits"]
    assert "2 threads left out" in text(page, ".tl-controls")


def test_tracks_are_moved_by_keys_and_by_the_mouse(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)

    page.run(
        "[...document.querySelectorAll('.tl-head-button')].find("
        "one => one.textContent.includes('autograd')).focus()"
    )
    page.chord("Alt", "ArrowUp")
    settle(page)
    assert labels(page)[:3] == ["rank 0 100", "autograd 101", "waits"]
    page.chord("Alt", "ArrowDown")
    settle(page)
    assert labels(page) == [*RANK_0, "rank 1 200", "python 200"]
    page.drag(label_place(page, "autograd 101"), label_place(page, "python 100"))
    settle(page)
    assert labels(page)[:3] == ["rank 0 100", "autograd 101", "waits"]
    page.drag(label_place(page, "rank 1"), label_place(page, "rank 0"))
    settle(page)
    assert labels(page)[0] == "rank 1 200"


def test_layers_stand_apart(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.4s")

    click(page, ".tl-controls input[type=checkbox]")
    settle(page)

    assert labels(page)[1:6] == ["python 100", "operators", "modules", "primitives", "waits"]
    for name, layer in (
        ("Net", "modules"),
        ("aten::conv2d", "operators"),
        ("convolution", "primitives"),
    ):
        assert place(page, name, 1)[1] == row_of(page, layer)


def test_waits_and_counters_say_what_they_are(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.4s")

    page.mouse(x_of(page, 265 * MS), row_of(page, "waits"))
    assert tip(page) == [
        "waited 16.0 ms: lock",
        "in wait_for (libgomp.so), from train (train.py:12)",
        "woken by rank 0 100, autograd 101",
    ]
    page.mouse(*place(page, "aten::relu", 1))
    assert tip(page) == ["aten::relu", "6.00 ms", "operators, function", "module Network, step 1"]
    click(page, ".tl-counters .tl-head-button")
    settle(page)
    assert labels(page)[5:8] == ["2 counters", "process cpu", "process rss_bytes"]
    page.mouse(x_of(page, 260 * MS), row_of(page, "process rss_bytes"))
    assert tip(page) == ["process rss_bytes", "25.0 MB"]
    page.mouse(x_of(page, 260 * MS), row_of(page, "process cpu"))
    assert tip(page) == ["process cpu", "0.50 CPUs"]
