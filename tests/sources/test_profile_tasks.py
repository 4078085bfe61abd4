"""In what the arguments of compilations of a function differ."""

from __future__ import annotations

import pytest

from layerscope.sources.raw.profile_tasks import Arguments, difference

WIDE = [("x['a']", "float32[3]"), ("", "int32[]")]


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([("x['a']", "float32[4]"), ("", "int32[]")], "x['a']: float32[3] → float32[4]"),
        ([("x['a']", "float32[3]"), ("", "int8[]")], "argument 2: int32[] → int8[]"),
        (WIDE[:1], "1 arguments instead of 2"),
        (WIDE, "the same arguments: something static, a device or an option differs"),
    ],
)
def test_the_arguments_that_differ_are_named(now: Arguments, reason: str) -> None:
    assert difference([WIDE], now) == reason


def test_what_is_most_alike_is_compared() -> None:
    first = [("x", "float32[3]"), ("y", "float32[3]")]
    second = [("x", "float32[4]"), ("y", "float32[3]")]
    assert difference([first, second], [("x", "float32[4]"), ("y", "float32[9]")]) == (
        "y: float32[3] → float32[9]"
    )


def test_of_many_only_some_are_named() -> None:
    was = [(f"x{n}", "float32[3]") for n in range(5)]
    now = [(name, "float32[4]") for name, _ in was]
    assert difference([was], now).endswith("x2: float32[3] → float32[4], 2 more")
