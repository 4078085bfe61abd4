"""What a program prints is compared where it can be, and what it measures is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.tune import output


@pytest.mark.parametrize(
    ("first", "second", "third", "is_same"),
    [
        ("a b\n", "a b\n", "a b\n", True),
        ("a b\n", "a b\n", "a c\n", False),
        ("loss 0.5 time 3 s", "loss 0.5 time 3 s", "loss 0.5 time 9 s", True),  # a time may be the same by chance
        ("12.5 images/s", "12.5 images/s", "99 images/s", True),
        ("batch 8 done", "batch 8 done", "batch 9 done", False),
        ("loss 0.5000", "loss 0.5000", "loss 0.5004", True),
        ("loss 0.5000", "loss 0.5000", "loss 0.6", False),
        ("loss 0.5", "loss 0.5", "loss nan", False),
        ("loss 0.5", "loss 0.7", "loss 123", True),
        ("loss 0.5", "loss 0.7", "loss inf", False),
        ("id x1", "id y2", "id z3", True),
        ("1%\r50%\r100%\nend", "1%\r100%\nend", "100%\nend", True),
        ("", "", "", True),
        ("", "", "warning", False),
    ],
)  # fmt: skip
def test_what_counts_as_the_same(first: str, second: str, third: str, is_same: bool) -> None:
    expected = output.expected(first, second)
    assert expected.is_compared
    assert (expected.difference(third) == "") is is_same


def test_lines_that_come_and_go_cannot_be_compared() -> None:
    expected = output.expected("a\nb", "a")
    assert not expected.is_compared
    assert expected.difference("anything") == ""


def test_what_a_metric_matches_is_not_compared() -> None:
    metric = re.compile(r"score=(\d+)")
    expected = output.expected("score=10", "score=10", metric)
    assert expected.difference("score=99") == ""
    assert expected.difference("scores=99") != ""


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        (r"(\d+) img", "10 img\n12 img\n", 12.0), (r"\d+ img", "7 img", 7.0), (r"took (\S+)", "took 1.5e-3", 0.0015),
        (r"took (\S+)", "took forever", None), (r"none", "", None), (r"(\S+) img", "1,950 img/s", 1950.0),
        (r"(\S+) img", "1,234,567.5 img/s", 1234567.5), (r"(\S+) s", "0,85 s", 0.85), (r"(\S+) s", "12,5 s", 12.5),
    ],
)  # fmt: skip
def test_the_last_number_that_a_metric_finds(pattern: str, text: str, value: float | None) -> None:
    assert output.measured(text, re.compile(pattern)) == value


def test_a_metric_is_found_at_the_end_of_a_long_output_and_among_the_errors(tmp_path: Path) -> None:
    printed, errors = tmp_path / "stdout", tmp_path / "stderr"
    metric = re.compile(r"rate (\d+)")
    printed.write_text("rate 1\n" + "x\n" * output.MOST_BYTES + "rate 2\n")
    errors.write_text("rate 3\n")
    assert output.measured_in((printed, errors), metric) == 2
    printed.write_text("nothing\n")
    assert output.measured_in((printed, errors), metric) == 3
    printed.write_text("rate 1\n" + "x\n" * output.MOST_BYTES)
    assert output.measured_in((printed, errors), metric) == 1
    assert output.measured_in((tmp_path / "none",), metric) is None


@given(st.text(max_size=200))
def test_any_text_is_the_same_as_itself(text: str) -> None:
    assert output.expected(text, text).difference(text) == ""


def test_the_tail_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "stderr"
    file.write_bytes(b"x" * 1000 + b"\n\nValueError: \xff\n")
    assert output.tail(file) == f"{'x' * 284} / ValueError: \N{REPLACEMENT CHARACTER}"
    assert output.tail(tmp_path / "nothing") == ""
