"""Flame graphs that are turned over, and what is called from many places, seen in a Chromium
without a window.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import chromium
from tests.browser.flame_page import FILES, FOCUSED, OUTSIDE, point, shown

pytestmark = pytest.mark.slow


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
