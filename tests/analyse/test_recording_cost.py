"""What a recording cost, of the program and of its steps."""

from __future__ import annotations

import pytest

from layerscope.recording.run import LayerState, ProgramState, RecordingCost
from tests.analyse.test_summary import summary_of, training
from tests.recordings import MS, Recording, S


def test_cost_is_a_share_of_the_programs_own_cpu_time() -> None:
    cost = summary_of(
        Recording(),
        program=ProgramState(user_ns=900, system_ns=100),
        layers=[
            LayerState("operators", "recorded", cpu_ns=20),
            LayerState("counters", "recorded", cpu_ns=5),
        ],
        cost=RecordingCost(10, 30, 0, 4000, 500),
    ).cost

    assert cost.inside == 0.025
    assert cost.beside == {"session": 0.01, "drainer": 0.03}
    assert cost.size_bytes == 4500
    assert cost.of_steps is None


def test_cost_of_the_steps_is_that_of_their_spans() -> None:
    """Three spans of 0.5 ms in a step of 10 ms; the run has many more."""
    cost = summary_of(
        training(),
        program=ProgramState(user_ns=10 * S),
        layers=[LayerState("operators", "recorded", records=1000, cpu_ns=500 * MS)],
    ).cost

    assert cost.inside == 0.05
    assert cost.of_steps == pytest.approx(0.15)
