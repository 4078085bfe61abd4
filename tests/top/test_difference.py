"""Screens that are drawn over each other: only the lines that changed are written."""

from __future__ import annotations

import random

from layerscope.show.live.output import difference
from tests.top.terminal import Screen


def screens(rows: int) -> list[list[str]]:
    """Screens of a few words, of which neighbours have much in common."""
    chance = random.Random(rows)
    words = ["", "aten::add", "aten::mul  3.1 %", "a line as wide as the window"]
    now = [chance.choice(words) for _ in range(rows)]
    found = []
    for _ in range(20):
        now = [chance.choice(words) if chance.random() < 0.3 else line for line in now]
        found.append(now)
    return found


def test_screens_drawn_by_their_difference_are_shown_whole() -> None:
    screen = Screen(28, 8)
    shown: list[str] = []
    for new in screens(8):
        screen.feed(difference(shown, new))
        assert screen.lines == new
        shown = new


def test_a_line_that_stays_is_not_written_again() -> None:
    told = difference(["stays", "was", ""], ["stays", "is", ""])

    assert "is" in told
    assert "stays" not in told
    assert difference(["stays"], ["stays"]) == ""


def test_what_nothing_is_known_of_is_cleared() -> None:
    screen = Screen(28, 2)
    screen.feed("rubbish")
    screen.feed(difference([], ["new", ""]))

    assert screen.lines == ["new", ""]
