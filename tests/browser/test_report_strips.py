"""Steps of two recordings side by side, where the server has the spans of one or of both: the same
pictures as in a file that has all spans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from tests.browser import chromium
from tests.browser.report_flame import of_every_sort
from tests.browser.report_page import click, open_report
from tests.browser.trained import STEPS, trained
from tests.show.report_page import serving

FEW, MANY = "few", "many"
# Between the numbers of spans of the two.
BETWEEN = 50
_STRIPS = """
    return [...document.querySelectorAll('.strip')].map(strip => {
        const canvas = strip.querySelector('canvas'), {width, height} = canvas;
        const {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
        const pixels = new Uint32Array(data.buffer);
        let hash = 2166136261;
        for (const pixel of pixels) hash = Math.imul(hash ^ pixel, 16777619);
        const words = strip.querySelector('figcaption').textContent;
        return [words, canvas.ariaLabel, width, height, new Set(pixels).size, hash];
    });"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strips")
    trained().write(folder / f"{FEW}.layerscope")
    many = of_every_sort()
    chain = None
    for depth in range(15):  # deeper than what is drawn
        chain = many.add_span(f"deep {depth}", 201_000_000 + depth, 90_000_000, chain, step=1)
    many.write(folder / f"{MANY}.layerscope")
    return folder


def strips(page: chromium.Page, address: str) -> list[Any]:
    """What is drawn of some steps of both."""
    open_report(page, address, "#compare")
    found = []
    for step in (1, 3, STEPS - 1):
        page.wait("document.querySelectorAll('.strip canvas').length === 2")
        click(page, "#strips ~ label input")
        page.run("document.querySelector('#strips ~ label input').select()")
        page.keys(str(step), "Enter")
        captions = "[...document.querySelectorAll('.strip figcaption')]"
        page.wait(f"{captions}.every(one => one.textContent.includes('step {step},'))")
        page.wait(
            "[...document.querySelectorAll('.strip canvas')].filter("
            f"one => one.ariaLabel.includes('step {step};')).length === 2"
        )
        found.append(page.run(_STRIPS))
    return found


@pytest.mark.parametrize("most_in_page", [0, BETWEEN], ids=["both", "one"])
@pytest.mark.parametrize(("before", "now"), [(FEW, MANY), (MANY, FEW)])
def test_steps_beside_each_other_are_those_of_a_file(
    page: chromium.Page,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    now: str,
    most_in_page: int,
) -> None:
    paths = [folder / f"{name}.layerscope" for name in (now, before)]
    file = folder / f"{now}.html"
    words = ["report", str(paths[0]), "--compare", str(paths[1]), "-o", str(file), "--force", "-q"]
    assert cli.main(words) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    in_file = strips(page, file.as_uri())
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", most_in_page)
    runs = [Run.open(path) for path in paths]
    with serving(runs[0], other=runs[1]) as server:
        of_server = strips(page, server.address)
        assert server.contents.timeline_of("/other/picture")[1] == "/picture"
        large = [server.contents.timeline_of(path)[0] is not None for path in ("/a", "/other/a")]

    assert of_server == in_file
    assert large == [not most_in_page or name == MANY for name in (now, before)]
    assert all(strip[4] > 3 for shown in in_file for strip in shown)
    assert page.complaints() == []
