"""Flame graphs that are turned over, and what is called from many places, seen in a Chromium
without a window.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from layerscope import cli
from layerscope.analyse.stacks import callers
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.browser import chromium
from tests.browser.flame_page import (
    BOXES,
    FILES,
    FOCUSED,
    FOUND,
    OUTSIDE,
    TEXTS,
    TIP,
    point,
    said_of_all,
    search,
    shown,
)
from tests.recordings import MS, Recording

pytestmark = pytest.mark.slow
ROW_PX = 18
# Label and place of the visible frames.
FRAMES = """
    return [...document.querySelectorAll('#frames rect')].filter(
        rect => getComputedStyle(rect).display !== 'none').map(rect => {
            rect.dispatchEvent(new MouseEvent('mousemove', {bubbles: true}));
            return [document.querySelector('#flame-tip b').textContent, rect.getBoundingClientRect().y];
        });"""
# By function the sums of what is next to it on each side, and its own.
SANDWICHES = """
    const data = JSON.parse(document.querySelector('#flame-data').textContent), found = {};
    for (let frame = 1; frame < data.frames.length; frame++) {
        const tree = sandwich(data.nodes, frame), sides = {total: tree.total[0], '1': {}, '-1': {}};
        tree.frame.forEach((other, i) => {
            if (tree.depth[i] === 1) sides[tree.side[i]][data.frames[other].label.split(' ')[0]] = tree.total[i];
        });
        found[data.frames[frame].label.split(' ')[0]] = sides;
    }
    return found;"""
BUTTON = """
    const button = [...document.querySelectorAll('.flame-tools button')].find(
        button => button.textContent === 'callers and callees').getBoundingClientRect();
    return [button.x + 5, button.y + 5];"""


@FILES
def test_a_flipped_picture_grows_from_the_bottom(
    page: chromium.Page, picture: Any, suffix: str
) -> None:
    page.open(picture(suffix, "--flip"))

    above = {label: -frame["y"] for label, frame in shown(page).items()}
    assert above["all"] < above["<module> (train.py)"] < above["Net"] < above["convolution"]
    assert page.run(OUTSIDE) == []
    assert shown(page)["all"]["y"] < page.run("return window.innerHeight")
    point(page, "aten::conv2d", click=True)
    assert "load (data.py)" not in shown(page)
    assert page.run(OUTSIDE) == []
    page.keys("ArrowUp")
    assert page.run(FOCUSED).startswith("convolution; ")
    page.keys("ArrowDown", "ArrowDown")
    assert page.run(FOCUSED).startswith("Net; ")
    page.keys("s")
    assert page.run(FOUND) == "Net: 250 ms in 1 place, callees above, callers below"
    assert shown(page)["convolution"]["y"] < shown(page)["Net"]["y"]
    assert shown(page)["Net"]["y"] < shown(page)["main (train.py)"]["y"]


def called_from_many_places() -> Recording:
    """`work` is called by two functions and by itself; it calls `helper` and native code."""
    recording = Recording()
    a = ("python main m.py:1", "python a m.py:2")
    b = ("python main m.py:1", "python b m.py:3")
    work = "python work m.py:4"
    for stack, weight in (
        ((*a, work), 10),
        ((*a, work, "native gemm libmkl.so"), 20),
        ((*a, work, "python helper m.py:5", "native read libc.so"), 30),
        ((*b, work, "python again m.py:6", work, "python helper m.py:5"), 100),
        ((work,), 5),
        ((*b, "python helper m.py:5"), 900),
    ):
        recording.add_sample(recording.add_stack(*stack), weight * MS)
    return recording


def sums(page: chromium.Page, called: str) -> tuple[dict[str, int], dict[str, int]]:
    """What the view says of its callers and its callees: ms of the function by frame, of those
    beside it.
    """
    frames = page.run(FRAMES)
    (middle,) = [y for label, y in frames if label == called]
    said = said_of_all(page)
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for (label, y), lines in zip(frames, said, strict=True):
        if abs(y - middle) == ROW_PX:
            time = re.match(rf"([\d.]+) ms of {re.escape(called)}: ", lines[2])
            assert time
            found[y > middle][label.partition(" ")[0]] = round(float(time[1]))
    return found


def table(capsys: pytest.CaptureFixture[str], name: str, direction: str) -> dict[str, int]:
    """ms by function, of those that `layerscope table functions` gives."""
    assert cli.main(["table", "functions", "train", f"--{direction}", name, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    columns = [column["name"] for column in answer["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in answer["rows"]]
    nobody = ("itself", "where its thread began")
    return {row["name"]: row["total_ns"] // MS for row in rows if row["name"] not in nobody}


@FILES
@pytest.mark.parametrize("inverted", [(), ("--invert",)], ids=["upright", "inverted"])
@pytest.mark.parametrize("name", ["work", "helper", "a", "again"])
def test_callers_and_callees_are_those_of_the_tables(
    page: chromium.Page,
    picture: Any,
    suffix: str,
    inverted: tuple[str, ...],
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recording = called_from_many_places()
    page.open(picture(suffix, "--layers", "python", *inverted, recording=recording))

    point_at_first(page, f"{name} (m.py)")
    page.keys("s")

    above, below = sums(page, f"{name} (m.py)")
    assert above == table(capsys, name, "callers")
    assert below == table(capsys, name, "callees")


@pytest.mark.parametrize("inverted", [(), ("--invert",)], ids=["upright", "inverted"])
def test_every_function_of_random_stacks_has_the_sums_of_the_tables(
    page: chromium.Page, picture: Any, inverted: tuple[str, ...], tmp_path: Any
) -> None:
    chance = random.Random(7)
    recording = Recording()
    for _ in range(60):
        stack = [f"python f{chance.randrange(6)} m.py:1" for _ in range(chance.randrange(1, 9))]
        recording.add_sample(recording.add_stack(*stack), chance.randrange(1, 1000) * MS)
    page.open(picture(".svg", "--layers", "python", *inverted, recording=recording))

    found = page.run(SANDWICHES)

    with Reader(Run.open(tmp_path / "train.layerscope")) as reader:
        for name, sides in found.items():
            around, inside = ("callees", "callers") if inverted else ("callers", "callees")
            for direction, side in ((around, sides["-1"]), (inside, sides["1"])):
                rows = callers.build(reader, "functions", name, direction).data.to_pylist()
                wanted = {row["name"]: row["total_ns"] for row in rows}
                rest = wanted.pop("itself", 0) + wanted.pop("where its thread began", 0)
                assert side == wanted
                assert sides["total"] == sum(wanted.values()) + rest
    assert len(found) == 6


def point_at_first(page: chromium.Page, label: str) -> None:
    """Click the first frame that is called so."""
    x, y = next(
        box
        for box, lines in zip(page.run(BOXES), said_of_all(page), strict=True)
        if lines[0] == label
    )
    page.mouse(x, y, click=True)


@FILES
def test_escape_leads_back_to_what_was_shown(
    page: chromium.Page, picture: Any, suffix: str
) -> None:
    page.open(picture(suffix, recording=called_from_many_places()))
    point(page, "b (m.py)", click=True)
    before = shown(page)
    button = page.run(BUTTON)
    page.mouse(*button, click=True)

    assert page.run(FOUND) == "b (m.py): 1.00 s in 1 place, callers above, callees below"
    assert page.run(OUTSIDE) == []
    labels = sorted(label for label, _ in page.run(FRAMES))
    callees = ["again (m.py)", "helper (m.py)", "helper (m.py)", "work (m.py)", "work (m.py)"]
    assert labels == sorted(["b (m.py)", "main (m.py)", *callees])
    page.keys("ArrowUp")
    assert page.run(FOCUSED).startswith("main (m.py); python · m.py; 1.00 s of b (m.py): 100.0 %")
    page.keys("ArrowDown", "ArrowDown", "s")
    assert page.run(FOUND).startswith("helper (m.py): 1.03 s in 3 places")
    page.keys("Escape")
    assert shown(page) == before
    assert page.run(FOCUSED).startswith("b (m.py); ")
    page.keys("Escape")
    assert len(shown(page)) > len(before)


def test_the_table_of_the_page_chooses_a_function(page: chromium.Page, picture: Any) -> None:
    page.open(picture(".html", recording=called_from_many_places()))
    row = page.run(
        "const b = document.querySelector('#heaviest td button').getBoundingClientRect(); return [b.x, b.y]"
    )
    page.mouse(row[0] + 5, row[1] + 5, click=True)
    page.keys("s")

    assert page.run(FOUND).startswith("helper (m.py): 1.03 s in 3 places")
    search(page, "main")
    assert page.run(FOUND) == "3 frames"  # main > a > work, main > b > work, main > b
    assert "helper (m.py)" in page.run(TEXTS)


def test_the_callers_of_a_comparison_say_what_changed(
    page: chromium.Page, picture: Any, tmp_path: Any
) -> None:
    before, after = Recording(), Recording()
    for recording, loading in ((before, 10), (after, 40)):
        for caller, count in (("a", loading), ("b", 100)):
            stack = recording.add_stack(f"python {caller} m.py:1", "python load data.py:3")
            for _ in range(count):
                recording.add_sample(stack, 10 * MS)
    before.write(tmp_path / "before.layerscope")
    page.open(picture(".svg", "--diff", "before", recording=after))

    point_at_first(page, "load (data.py)")
    page.keys("s")

    red, green, blue = (
        int(part) for part in shown(page)["a (m.py)"]["fill"].strip("rgb()").split(",")
    )
    assert red > max(green, blue) + 60
    said = {lines[0]: lines for lines in said_of_all(page)}
    assert "per run: 400 ms, before 100 ms, +300 ms (+300.0 %)" in said["a (m.py)"]
    assert "per run: 1.40 s, before 1.10 s, +300 ms (+27.3 %)" in said["load (data.py)"]
    assert said["b (m.py)"][-1] == "no more than chance or nothing"


@pytest.fixture
def with_gone(picture: Any, tmp_path: Any) -> Any:
    """Makes a comparison in which `old` and what it called are gone from below `main`: 60 and 40 ms
    in two functions.
    """

    def make(suffix: str, *options: str) -> str:
        before, after = Recording(), Recording()
        main = "python main m.py:1"
        for recording in (before, after):
            for _ in range(50):
                recording.add_sample(recording.add_stack(main, "python work m.py:2"), 2 * MS)
        for name, weight in (("parse", 60), ("read", 40)):
            stack = before.add_stack(main, "python old m.py:3", f"python {name} m.py:4")
            before.add_sample(stack, weight * MS)
        before.write(tmp_path / "before.layerscope")
        return str(picture(suffix, "--diff", "before", *options, recording=after))

    return make


@FILES
@pytest.mark.parametrize("options", [(), ("--flip",)], ids=["plain", "flipped"])
def test_what_is_gone_stands_where_it_was_and_says_what_it_took(
    page: chromium.Page, with_gone: Any, suffix: str, options: tuple[str, ...]
) -> None:
    page.open(with_gone(suffix, *options))

    frames = shown(page)
    assert set(frames) == {"all", "main (m.py)", "work (m.py)", "old (m.py)"}
    main, old = frames["main (m.py)"], frames["old (m.py)"]
    assert frames["work (m.py)"]["width"] == main["width"]
    assert old["width"] == pytest.approx(6, abs=0.1)
    assert old["x"] + old["width"] == pytest.approx(main["x"] + main["width"], abs=0.1)
    assert old["y"] == frames["work (m.py)"]["y"]
    assert "hatch-gone" in old["fill"]
    point(page, "old (m.py)")
    assert page.run(TIP).splitlines()[:3] == [
        "old (m.py)",
        "python · m.py",
        "gone: 100 ms per run before, nothing now",
    ]


@FILES
def test_a_click_on_what_is_gone_shows_what_was_in_it(
    page: chromium.Page, with_gone: Any, suffix: str
) -> None:
    page.open(with_gone(suffix))
    before = shown(page)

    point(page, "old (m.py)", click=True)

    frames = shown(page)
    assert set(frames) == {"all", "main (m.py)", "old (m.py)", "parse (m.py)", "read (m.py)"}
    full = frames["all"]["width"]
    assert frames["old (m.py)"]["width"] == pytest.approx(full, abs=1)
    assert frames["parse (m.py)"]["width"] == pytest.approx(0.6 * full, abs=1)
    assert frames["read (m.py)"]["x"] == pytest.approx(
        frames["parse (m.py)"]["x"] + 0.6 * full, abs=1
    )
    assert page.run(OUTSIDE) == []
    page.keys("Escape")
    assert shown(page) == before


@FILES
def test_what_is_gone_is_found(page: chromium.Page, with_gone: Any, suffix: str) -> None:
    page.open(with_gone(suffix))

    search(page, "parse")

    assert page.run(FOUND) == "0.0 % · 0 ns · 1 frame · gone: 60.0 ms per run"
    assert [label for label, frame in shown(page).items() if frame["hit"]] == ["old (m.py)"]
    page.keys("Escape")
    search(page, "/old|work/")
    assert page.run(FOUND) == "100.0 % · 100 ms · 2 frames · gone: 100 ms per run"
