"""The page of `layerscope tune` in a Chromium without a window: reached by keys, read aloud,
without a network.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.show import tune_page
from layerscope.show.tune_page import Row, TunePage
from tests.browser import chromium

pytestmark = pytest.mark.slow
_ROWS = """
    return [...document.querySelectorAll('#plot .row')].map(row => ({
        label: row.getAttribute('aria-label'), dots: [...row.querySelectorAll('circle')].map(dot => {
            const box = dot.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }), box: row.querySelector('.band').getBoundingClientRect().toJSON()}));"""


def test_the_page_is_seen_and_reached_by_keys(tmp_path: Path) -> None:
    rows = (
        Row("default", (0.02, 0.03), ("default", "default", "25 ms")),
        Row("threads=1", (0.01, 0.012), ("threads=1", "winner", "11 ms"), "best"),
        Row("x" * 200, (), ("x" * 200, "disqualified", ""), "gone"),
    )
    ticks = tune_page.ticks([value for row in rows for value in row.values])
    made = TunePage(
        "layerscope tune: python train.py", "threads=1 is better", "env OMP_NUM_THREADS=1 python train.py", "seconds",
        tuple(f"{value:g} s" for value in ticks), ticks, ("setting", "state", "median"), rows, ("Why not.",),
    )  # fmt: skip
    path = tmp_path / "page.html"
    with path.open("wb") as stream:
        tune_page.write(made, stream)

    with chromium.page(tmp_path) as page:
        page.resize(1300, 900)
        page.open(path.as_uri())
        assert page.run("return document.title") == made.title
        found = page.run(_ROWS)
        assert [len(row["dots"]) for row in found] == [2, 2, 0]
        for row in found:
            for x, y in row["dots"]:
                assert row["box"]["left"] < x < row["box"]["right"]
                assert row["box"]["top"] < y < row["box"]["bottom"]
        slow, fast = found[0]["dots"], found[1]["dots"]
        assert max(x for x, _ in fast) < min(x for x, _ in slow)

        focused = []
        for _ in rows:
            page.keys("Tab")
            focused.append(page.run("return document.activeElement.getAttribute('aria-label')"))
        assert focused == [row["label"] for row in found]
        assert focused[1] == "setting: threads=1; state: winner; median: 11 ms"
        # Nothing is wider than the window, however long a name is.
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            colours = page.run(
                "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
            )
            assert contrast(*colours) >= 4.5
        page.screenshot(tmp_path / "page.png")
        assert page.answered_from_outside() == []


def contrast(one: str, other: str) -> float:
    """Of two colours as a browser tells them (WCAG 2.1)."""
    lights = sorted(map(luminance, (one, other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
