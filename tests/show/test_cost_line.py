"""What the summary says of the cost of the recording."""

from __future__ import annotations

import pytest

from layerscope.recording.run import LayerState
from tests.recordings import MS
from tests.show.test_summary import text_of, training


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (100, "1.0 % in the program, at least 10.8 % of its steps (estimated), 2.7 % in"),
        (500, "1.0 % in the program, at least 2.2 % of its steps (estimated), 2.7 % in"),
        (1000, "1.0 % in the program (estimated), 2.7 % in"),
    ],
)
def test_steps_that_pay_more_than_the_run_are_told_what(records: int, said: str) -> None:
    """Six spans in a step of 11.1 ms."""
    layers = [LayerState("operators", "recorded", records=records, cpu_ns=20 * MS)]

    assert said in text_of(training(), layers=layers).replace("\n  ", " ")
