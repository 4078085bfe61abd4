"""Tables as text: aligned, whole in a pipe, fitted to a terminal."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.analyse.result import GBYTE_PER_S, Result, ResultColumn, select
from layerscope.model.events import Problem
from layerscope.recording.reader import Reader
from layerscope.show import terminal
from tests.recordings import MS, Recording, S

LONG = "autograd::engine::evaluate_function: ConvolutionBackward0"


def result_of(recording: Recording, table: str, **choice: Any) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        run = recording.write(Path(folder) / "x.layerscope", start_ns=S)
        with Reader(run) as reader:
            return select(tables.build(reader, table), **choice)


def two_operators() -> Recording:
    recording = Recording()
    recording.add_span(LONG, 2 * S, 3 * MS)
    recording.add_span("add", 2 * S + 5 * MS, 1500)
    return recording


def test_a_table_is_aligned_and_every_duration_has_its_unit() -> None:
    lines = terminal.text(result_of(two_operators(), "spans")).splitlines()

    name = f"{'name':<{len(LONG)}}"
    assert lines == [
        f"{name}  kind      thread      step    start_ns   dur_ns  self_ns  total_share  self_share",
        f"{LONG}  function  python 100     -  1.000000 s  3.00 ms  3.00 ms      100.0 %     100.0 %",
        f"{'add':<{len(LONG)}}  function  python 100     -  1.005000 s  1.50 µs  1.50 µs       <0.1 %      <0.1 %",
        f"{'all 2 spans':<{len(LONG)}}{' ' * 42}         3.00 ms                  100.0 %",
    ]


@pytest.mark.parametrize(
    ("value", "cell"),
    [(0.0, "0.00 GB/s"), (0.004, "<0.01 GB/s"), (0.01, "0.01 GB/s"), (31.44, "31.4 GB/s")],
)
def test_a_slow_rate_is_not_none(value: float, cell: str) -> None:
    assert terminal.column_cells(
        ResultColumn("gb_per_s", "float64", GBYTE_PER_S, ""), [value], [], 0
    ) == [cell]


@pytest.mark.parametrize("width", [50, 60, 80, 100, 140, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    result = result_of(two_operators(), "operators")

    lines = terminal.text(result, width).splitlines()
    table = [line for line in lines if not line.startswith("Too narrow")]

    assert max(len(line) for line in table) <= width
    assert all("ms" in line or "µs" in line for line in table[1:3])  # never without any number


def test_what_the_terminal_is_too_narrow_for_is_named() -> None:
    result = result_of(two_operators(), "operators")

    narrow = terminal.text(result, 80)
    wide = terminal.text(result, 200)

    assert "autograd::en…onBackward0  " in narrow
    assert "Too narrow for " in narrow
    assert "max_ns: make the window wider, or pipe the table." in narrow
    assert "Too narrow" not in wide
    assert LONG in wide


def test_a_name_cannot_command_the_terminal_or_break_the_line() -> None:
    recording = Recording()
    recording.add_span("a\nb\x1b[31m[bold]\u202e", 0, 5)

    printed = terminal.text(result_of(recording, "operators"))

    assert "a\\nb\\x1b[31m[bold]\\u202e" in printed
    assert len(printed.splitlines()) == 2


def test_wide_characters_take_two_columns() -> None:
    recording = Recording()
    recording.add_span("層", 0, 5)
    recording.add_span("ab", 0, 4)

    heading, first, second = terminal.text(result_of(recording, "operators")).splitlines()

    assert first.startswith("層    ")
    assert second.startswith("ab    ")
    assert len(first) + 1 == len(second) == len(heading)


def test_counters_are_printed_in_the_unit_of_their_row() -> None:
    recording = Recording()
    recording.add_counter(0, "cpu_ns", [(0, 0), (S, 2 * S)], "ns")
    recording.add_counter(0, "rss_bytes", [(0, 351_000_000)], "bytes")
    recording.add_counter(0, "faults_minor", [(0, 0), (S, 12_345)])

    printed = terminal.text(result_of(recording, "counters"))

    assert "2.00 s/s" in printed
    assert "351 MB" in printed
    assert "12,345 /s" in printed


def test_problems_come_first_and_notes_last() -> None:
    recording = two_operators()
    recording.add_problem("modules", "torch is too old", "update it", lost="modules")
    recording.add_gap("ring_full", 1, track=0)

    lines = terminal.text(result_of(recording, "operators", top=1)).splitlines()

    assert lines[0].startswith(
        "Lost: 1 record on 1 thread, because the ring of their thread was full"
    )
    assert lines[1] == "Not everything was recorded (modules): `layerscope summary` says why."
    assert lines[2].startswith("name ")
    assert lines[-1] == "1 more rows; --top 0 shows all."


def test_an_empty_table_says_everything() -> None:
    recording = Recording()
    recording.add_problem("modules", "torch is too old", "update it", lost="modules")

    lines = terminal.text(result_of(recording, "modules")).splitlines()

    assert lines[0] == "Not recorded: modules, because torch is too old; update it."


def test_a_problem_without_a_remedy_ends_after_the_reason() -> None:
    problem = Problem("operators", "test", "nobody knows", "", "operators")

    assert terminal.problem_sentence(problem) == "Not recorded: operators, because nobody knows."


def test_a_problem_that_lost_nothing_is_not_called_a_loss() -> None:
    problem = Problem("operators", "test", "the drainer was started again", "nothing to do")

    assert (
        terminal.problem_sentence(problem)
        == "About operators: the drainer was started again; nothing to do."
    )


def test_nothing_recorded_is_a_sentence_and_no_table() -> None:
    assert (
        terminal.text(result_of(Recording(), "operators")) == f"{tables.load('operators').EMPTY}\n"
    )


@given(st.text(max_size=40), st.integers(1, 50))
def test_a_shortened_name_fits_and_keeps_both_ends(name: str, width: int) -> None:
    short = terminal.shortened(name, width)

    assert terminal.display_width(short) <= width
    if terminal.display_width(name) <= width:
        assert short == name
    else:
        ends = [
            (short[:cut], short[cut + 1 :])
            for cut, character in enumerate(short)
            if character == "…"
        ]
        assert any(name.startswith(head) and name.endswith(tail) for head, tail in ends)


class _Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_only_a_terminal_gets_styles_and_a_fitted_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "70", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    result = result_of(two_operators(), "operators")
    window, pipe = _Stream(True), _Stream(False)

    terminal.write(result, window)
    terminal.write(result, pipe)

    assert pipe.getvalue() == terminal.text(result)
    assert window.getvalue().startswith("\x1b[1mname ")
    plain = re.sub(r"\x1b\[\d+m", "", window.getvalue())
    assert plain == terminal.text(result, 70)
