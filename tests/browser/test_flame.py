"""Flame graphs driven with mouse and keys in a Chromium without a window: what they say must be
what the tables say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.browser import chromium
from tests.browser.flame_page import (
    CONV,
    FILES,
    FOCUSED,
    FOUND,
    MAIN,
    OUTSIDE,
    SHOWN,
    TEXTS,
    TIP,
    point,
    search,
    shown,
)
from tests.recordings import MS, Recording

pytestmark = pytest.mark.slow


@FILES
def test_totals_are_those_of_the_table(
    page: chromium.Page, picture: Any, suffix: str, tmp_path: Path
) -> None:
    page.open(picture(suffix))

    frames = page.run(SHOWN)
    with Reader(Run.open(tmp_path / "train.layerscope")) as reader:
        total = reader.query("SELECT sum(weight_ns)::BIGINT AS total FROM samples").to_pylist()[0][
            "total"
        ]
    assert frames[0]["label"] == "all"
    assert frames[0]["total"] == total == 400 * MS
    widths = {frame["label"]: frame["width"] / frames[0]["width"] for frame in frames}
    assert widths["aten::conv2d"] == pytest.approx(250 / 400, abs=0.002)
    assert widths["load (data.py)"] == pytest.approx(100 / 400, abs=0.002)
    below = {frame["label"]: frame["y"] for frame in frames}
    assert below["all"] < below["<module> (train.py)"] < below["Net"] < below["convolution"]


@FILES
def test_a_click_zooms_and_reset_goes_back(page: chromium.Page, picture: Any, suffix: str) -> None:
    page.open(picture(suffix))
    before = shown(page)

    point(page, "aten::conv2d", click=True)

    zoomed = shown(page)
    assert set(zoomed) == set(before) - {"load (data.py)", "conv_name (<b>&amp;.py)"}
    full = before["all"]["width"]
    assert zoomed["aten::conv2d"]["width"] == pytest.approx(full, abs=1)
    assert zoomed["Net"]["width"] == pytest.approx(full, abs=1)
    assert zoomed["reorder (libdnnl.so)"]["width"] == pytest.approx(full / 5, abs=1)
    button = page.run(
        "const b = document.querySelector('.flame-tools button').getBoundingClientRect(); return [b.x, b.y]"
    )
    page.mouse(button[0] + 5, button[1] + 5, click=True)
    assert {label: frame["width"] for label, frame in shown(page).items()} == {
        label: frame["width"] for label, frame in before.items()
    }


@FILES
def test_search_says_what_share_was_found(page: chromium.Page, picture: Any, suffix: str) -> None:
    page.open(picture(suffix))

    search(page, "conv")

    # aten::conv2d holds convolution: together 250 ms; the helper has 50.
    assert page.run(FOUND) == "75.0 % · 300 ms · 3 frames"
    hits = {label for label, frame in shown(page).items() if frame["hit"]}
    assert hits == {"aten::conv2d", "convolution", "conv_name (<b>&amp;.py)"}
    page.keys("Escape")
    assert page.run(FOUND) == ""
    assert not any(frame["hit"] for frame in shown(page).values())
    search(page, "/^(load|reo)/")
    assert page.run(FOUND) == "37.5 % · 150 ms · 2 frames"
    page.keys("Escape")
    search(page, "/(/")
    assert page.run(FOUND) == "no regular expression"


@FILES
def test_a_tooltip_says_what_a_frame_is(page: chromium.Page, picture: Any, suffix: str) -> None:
    page.open(picture(suffix))
    assert page.run(TIP) is None

    point(page, "convolution")

    assert page.run(TIP).splitlines()[:3] == [
        "convolution",
        "primitives",
        "250 ms, 62.5 % of all; its own 200 ms",
    ]
    point(page, "conv_name (<b>&amp;.py)")
    said = page.run(TIP).splitlines()
    assert said[:2] == ["conv_name (<b>&amp;.py)", "python · <b>&amp;.py"]
    assert said[3].startswith("1 sample: ")
    assert said[4] == "lines 1 (100.0 %)"
    page.mouse(640, 60)
    assert page.run(TIP) is None


@FILES
def test_keys_alone_are_enough(page: chromium.Page, picture: Any, suffix: str) -> None:
    page.open(picture(suffix))
    page.run("document.querySelector('#frames rect').focus()")

    page.keys("ArrowDown", "ArrowDown", "ArrowDown")
    assert page.run(FOCUSED).startswith("Net; modules; 250 ms, 62.5 % of all")
    page.keys("ArrowRight")
    assert page.run(FOCUSED).startswith("load (data.py); python")
    page.keys("Enter")
    assert set(shown(page)) == {"all", "<module> (train.py)", "main (train.py)", "load (data.py)"}
    page.keys("ArrowUp")
    assert page.run(FOCUSED).startswith("main (train.py)")
    page.keys("Escape")
    assert len(shown(page)) == len(page.run(SHOWN))


@FILES
def test_every_control_can_be_reached_by_tab(
    page: chromium.Page, picture: Any, suffix: str
) -> None:
    page.open(picture(suffix))
    point(page, "all")
    reached = []
    for _ in range(4):
        page.keys("Tab")
        reached.append(page.run("return document.activeElement?.tagName.toLowerCase()"))

    assert {"input", "rect"} <= set(reached)
    names = page.run(
        "return [...document.querySelectorAll('button, input')].filter(b => !(b.textContent || b.ariaLabel))"
    )
    assert names == []
    assert page.run("return document.querySelector('title').textContent") == "CPU time: train"


def test_names_and_the_table_of_the_page(page: chromium.Page, picture: Any) -> None:
    page.open(picture(".html"))

    rows = page.run(
        "return [...document.querySelectorAll('#heaviest tbody tr')].map(row => row.innerText.split('\\t'))"
    )
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells[:4] == [
        ["convolution", "200 ms", "250 ms"], ["load (data.py)", "100 ms", "100 ms"],
        ["reorder (libdnnl.so)", "50.0 ms", "50.0 ms"], ["conv_name (<b>&amp;.py)", "50.0 ms", "50.0 ms"],
    ]  # fmt: skip
    box = page.run(
        "const b = document.querySelector('#heaviest td button').getBoundingClientRect(); return [b.x, b.y]"
    )
    page.mouse(box[0] + 5, box[1] + 5, click=True)
    assert page.run(FOUND) == "62.5 % · 250 ms · 1 frame"
    point(page, "load (data.py)", click=True)
    assert page.run("return document.querySelector('#frame-name').textContent") == "load (data.py)"


@FILES
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes(page: chromium.Page, picture: Any, suffix: str, scheme: str) -> None:
    page.prefer(scheme)
    try:
        page.open(picture(suffix))
        background = page.run("return getComputedStyle(document.querySelector('.page')).fill")
        colours = {frame["fill"] for frame in page.run(SHOWN)}
    finally:
        page.prefer("light")

    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}[scheme]
    assert len(colours) == 6  # all, python, modules, operators, primitives, native


def test_the_picture_fills_the_window_and_texts_fit(page: chromium.Page, picture: Any) -> None:
    address = picture(".svg")
    for width in (1300, 700):
        page.resize(width, 800)
        page.open(address)
        inner = page.run("return window.innerWidth")
        assert shown(page)["all"]["width"] == pytest.approx(inner, abs=1)
        assert page.run(OUTSIDE) == []
        assert len(page.run(TEXTS)) >= 6
    page.resize(1300, 800)


def test_a_comparison_is_red_where_it_grew(
    page: chromium.Page, picture: Any, tmp_path: Path
) -> None:
    before, after = Recording(), Recording()
    for recording, loading in ((before, 10), (after, 40)):
        stacks = [recording.add_stack(*CONV), recording.add_stack(*MAIN, "python load data.py:3")]
        for number in range(100):
            recording.add_sample(stacks[0], 10 * MS, step=number)
            recording.add_step(number, number * 100 * MS, (10 * MS, 0, 0, 0, 0))
        for number in range(loading):
            recording.add_sample(stacks[1], 10 * MS, step=number)
    before.write(tmp_path / "before.layerscope")
    page.open(picture(".svg", "--diff", "before", recording=after))

    frames = shown(page)
    red, green, blue = (
        int(part) for part in frames["load (data.py)"]["fill"].strip("rgb()").split(",")
    )
    assert red > max(green, blue) + 60
    grey = [int(part) for part in frames["convolution"]["fill"].strip("rgb()").split(",")]
    assert max(grey) - min(grey) < 12
    point(page, "load (data.py)")
    assert "per step: 4.00 ms, before 1.00 ms, +3.00 ms (+300.0 %)" in page.run(TIP)


@FILES
def test_ten_thousand_frames_are_drawn_and_found(
    page: chromium.Page, picture: Any, suffix: str
) -> None:
    recording = Recording()
    for number in range(1500):
        recording.rows.setdefault("frames", []).append(
            {"frame": number, "layer": "python", "name": f"f{number}", "file": "a.py", "line": 1}
        )
    for outer in range(50):
        up = recording._add("stacks", "stack", parent=None, frame=outer, depth=0)
        for inner in range(300):
            stack = recording._add("stacks", "stack", parent=up, frame=50 + inner, depth=1)
            recording.add_sample(stack, 10 * MS + inner)
    page.open(picture(suffix, recording=recording))

    frames = page.run("return document.querySelectorAll('#frames rect').length")
    drawn = json.loads(page.run("return document.querySelector('#flame-data').textContent"))
    texts = page.run(
        "return [...document.querySelectorAll('.about')].map(text => text.textContent)"
    )
    cut = [text for text in texts if "thinner than" in text]
    assert frames == len(drawn["nodes"]["total"]) <= 10_001
    assert cut
    assert int(cut[0].split()[0].replace(",", "")) == 15_050 + 1 - frames
    search(page, "f50 (")
    assert page.run(FOUND).endswith(" frames")
