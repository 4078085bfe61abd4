"""The page of `layerscope tune`: what it holds, whatever the names are."""

from __future__ import annotations

import re
from io import BytesIO
from xml.etree import ElementTree

import pytest

from layerscope.show import tune_page
from layerscope.show.tune_page import Row, TunePage

HEADINGS = ("setting", "state", "median")


def page(*rows: Row) -> str:
    ticks = tune_page.ticks([value for row in rows for value in row.values])
    made = TunePage(
        "tune: <b>", "better & faster", "env A=1 './a b.py'", "seconds", tuple(map(str, ticks)), ticks, HEADINGS, rows,
        ("because </script>",), numbers=(2,),
    )  # fmt: skip
    stream = BytesIO()
    tune_page.write(made, stream)
    return stream.getvalue().decode()


def test_every_run_is_a_dot_and_every_setting_a_row() -> None:
    text = page(Row("default", (2.0, 4.0), ("default", "default", "3")), Row("x", (1.0,), ("x", "winner", "1"), "best"),
                Row("bad", (), ("bad", "disqualified", ""), "gone"))  # fmt: skip
    picture = ElementTree.fromstring(re.search(r"<svg.*</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    name = "{http://www.w3.org/2000/svg}"
    rows = [one for one in picture.iter(f"{name}g") if one.get("role") == "listitem"]
    assert [one.get("aria-label") for one in rows] == [
        "setting: default; state: default; median: 3", "setting: x; state: winner; median: 1",
        "setting: bad; state: disqualified",
    ]  # fmt: skip
    assert all(one.get("tabindex") == "0" for one in rows)
    dots = [[float(dot.get("cx", 0)) for dot in one.iter(f"{name}circle")] for one in rows]
    assert [len(places) for places in dots] == [2, 1, 0]
    # Places are in proportion to the values.
    assert dots[0][1] - dots[0][0] == pytest.approx(2 * (dots[0][0] - dots[1][0]), abs=0.3)
    assert text.count("<tr>") == 4


def test_nothing_in_a_name_is_markup() -> None:
    text = page(Row("<script>alert(1)</script>\x1b\udcff", (1.0,), ("<script>", '"', "'")))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "better &amp; faster" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)), ([3.0], (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)), ([0.0], (0.0, 1.0)),
        ([1.0, 500.0], (1.0, 10.0, 100.0, 1000.0)), ([7e-9], (0.0, 2e-9, 4e-9, 6e-9, 8e-9)),
    ],
)  # fmt: skip
def test_scales_have_round_numbers(values: list[float], expected: tuple[float, ...]) -> None:
    assert tune_page.ticks(values) == pytest.approx(expected)
