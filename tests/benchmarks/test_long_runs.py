"""What judges runs of hours: the course of a value, its picture, and the program that stands for
such a run.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring.course import HOUR_NS, POINTS, course, settled_ns, thinned
from measuring.plot import Panel, draw, ticks

from tests.recorded import ROOT, record

SECOND_NS = 10**9
SVG = "{http://www.w3.org/2000/svg}"


def test_a_steady_value_has_no_growth() -> None:
    samples = [(at * SECOND_NS, 100 + at % 3) for at in range(600)]

    found = course(samples, 0, 600 * SECOND_NS)

    assert found is not None
    assert (found.first, found.last, found.peak) == (101, 101, 102)
    assert abs(found.an_hour) < 1


def test_growth_is_seen_in_thirds_and_slope() -> None:
    samples = [(at * SECOND_NS, 1000 + 2 * at) for at in range(1200)]

    found = course(samples, 0, 1200 * SECOND_NS)

    assert found is not None
    assert found.an_hour == pytest.approx(2 * HOUR_NS / SECOND_NS)
    assert found.last - found.first == pytest.approx(1600, rel=0.01)


def test_what_lies_outside_does_not_count() -> None:
    samples = [(at * SECOND_NS, 5 if 60 <= at <= 540 else 10_000) for at in range(600)]

    found = course(samples, settled_ns(0, 600 * SECOND_NS), 540 * SECOND_NS)

    assert found is not None
    assert (found.first, found.last, found.peak) == (5, 5, 5)


def test_a_few_looks_are_no_course() -> None:
    assert course([(at, 1) for at in range(5)], 0, 10) is None
    assert course([], 0, 10) is None


def test_the_first_minutes_are_three_at_most() -> None:
    assert settled_ns(7, 7 + HOUR_NS) == 7 + 180 * SECOND_NS
    assert settled_ns(0, 60 * SECOND_NS) == 6 * SECOND_NS


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=2000))
def test_a_picture_keeps_the_highest_value(values: list[int]) -> None:
    points = thinned(list(enumerate(values)), 0, 1, 1)

    assert len(points) <= POINTS
    assert max(value for _, value in points) == max(values)


@given(st.floats(1e-6, 1e12))
def test_ticks_reach_the_highest_value_in_few_equal_steps(highest: float) -> None:
    found = ticks(highest)

    assert found[0] == 0
    assert found[-1] >= highest * (1 - 1e-6)
    assert found[-2] < highest
    assert 2 <= len(found) <= 7
    assert np.allclose(np.diff(found), found[1])


def test_a_picture_shows_every_curve_inside_of_it() -> None:
    curves = {"a < b": [(0.0, 0.0), (10.0, 40.0)], "c": [(0.0, 39.0), (9.0, 1.0)]}

    text = draw(
        "Title & more",
        "minutes",
        ("the end", 9.5),
        [Panel("MiB", curves, ("limit", 50.0)), Panel("MB", {})],
    )

    picture = ElementTree.fromstring(text)
    lines = picture.findall(f"{SVG}polyline")
    assert len(lines) == 2
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    words = {text.text for text in picture.findall(f"{SVG}text")}
    assert {"Title & more", "a < b", "c", "limit", "the end", "minutes"} <= words


@pytest.mark.slow
@pytest.mark.parametrize("steps", [True, False])
def test_the_program_of_hours_makes_the_names_and_steps_that_it_says(
    program_python: str, native_agent: Path, tmp_path: Path, steps: bool
) -> None:
    program = str(ROOT / "benchmarks" / "programs" / "hours.py")
    words = [
        "--seconds",
        "2",
        "--rate",
        "100000",
        "--names",
        "2000",
        *([] if steps else ["--without-steps"]),
    ]
    found = record(program_python, program, tmp_path, *words)

    said = json.loads(found.stdout)
    assert said["names"] == 2000
    assert (said["steps"] > 0) == steps
    assert found.value("SELECT count(*) FROM steps") == said["steps"]
    in_loop = "kind = 'range' AND name LIKE 'block.%'"
    assert found.value(f"SELECT count(DISTINCT name) FROM spans WHERE {in_loop}") == 2000
    # Two names ran twice before, to be compiled.
    assert found.value(f"SELECT count(*) FROM spans WHERE {in_loop}") * 9 == said["spans"] + 4 * 9
