"""How a setting starts a program, and the line to paste."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.tune.setting import DEFAULT, Setting

PROGRAM = ("python", "train.py", "--batch-size", "16")


def test_the_default_changes_nothing() -> None:
    assert DEFAULT.command(PROGRAM) == list(PROGRAM)
    assert DEFAULT.environment({"A": "1"}) == {"A": "1"}
    assert DEFAULT.line(PROGRAM) == "python train.py --batch-size 16"


def test_two_settings_together_are_both_and_the_second_wins() -> None:
    one = Setting("one", {"A": "1", "B": "1"}, ("/x.so",), ("numactl",), {"-b": "1"}, "first")
    two = Setting("two", {"B": "2"}, ("/x.so", "/y.so"), ("taskset",), {"-b": "2", "-c": "3"})
    both = one.together(two)
    assert (both.name, both.because) == ("one two", "first")
    assert both.variables == {"A": "1", "B": "2"}
    assert both.preload == ("/x.so", "/y.so")
    assert both.prefix == ("numactl", "taskset")
    assert both.arguments == {"-b": "2", "-c": "3"}
    assert DEFAULT.together(two) == two


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (("p", "-b", "16"), ["p", "-b", "8"]),
        (("p", "-b=16", "x"), ["p", "-b=8", "x"]),
        (("p", "x"), ["p", "x", "-b", "8"]),
        (("p", "x", "-b"), ["p", "x", "-b", "-b", "8"]),
    ],
)
def test_an_option_gets_its_value_where_it_stands(
    program: tuple[str, ...], expected: list[str]
) -> None:
    assert Setting("x", arguments={"-b": "8"}).command(program) == expected


def test_a_preload_stands_in_front_of_the_users() -> None:
    assert Setting("x", preload=("/a.so",)).environment({"LD_PRELOAD": "/b.so"}) == {
        "LD_PRELOAD": "/a.so:/b.so"
    }


@given(
    st.dictionaries(
        st.sampled_from("AB"),
        st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    ),
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1),
        max_size=3,
    ),
)
def test_the_line_says_the_same_to_a_shell(variables: dict[str, str], words: list[str]) -> None:
    line = Setting("x", variables).line(["program", *words])
    parts = shlex.split(line)
    given_words = parts[len(parts) - len(words) - 1 :]
    assert given_words == ["program", *words]
    told = parts[: len(parts) - len(words) - 1]
    assert told[1:] == [f"{name}={value}" for name, value in variables.items()]


def test_the_line_runs_in_a_real_shell() -> None:
    code = "import os, sys; print(os.environ['A'], sys.argv[1:])"
    line = Setting("x", {"A": "it's; $HOME"}, arguments={"--b": "8 9"}).line(
        [sys.executable, "-c", code, "--b=1"]
    )
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "it's; $HOME ['--b=8 9']\n"
