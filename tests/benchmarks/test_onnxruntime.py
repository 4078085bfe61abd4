"""Whether the interval of all runs is judged by what is known of them."""

from __future__ import annotations

import numpy as np
import onnxruntime as benchmark  # benchmarks/onnxruntime.py


def test_the_truth_of_runs_without_noise_lies_in_their_interval() -> None:
    rng = np.random.default_rng(0)
    operators_ns = rng.normal(500_000, 20_000, 2_000)
    run_ns = operators_ns + 250_000.0  # of which the profiler takes 50,000
    behind = rng.normal(700_000, 20_000, 500)
    measured = benchmark.judged(np.concatenate([run_ns, behind]), operators_ns, 2_000)
    assert measured.is_inside
    # Of the runs behind the first 40 %, a profiler takes a tenth of what lies in operators at most.
    width_ns = measured.high_ns - measured.low_ns
    unknown_ns = measured.truth_high_ns - measured.truth_low_ns
    assert unknown_ns <= width_ns < unknown_ns + 0.05 * measured.truth_low_ns


def test_operators_are_of_the_run_that_they_begin_in() -> None:
    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 50},
        {"cat": "Session", "name": "model_run", "ts": 100, "dur": 50},
        {"cat": "Node", "name": "a_kernel_time", "ts": 10, "dur": 3},
        {"cat": "Node", "name": "b_kernel_time", "ts": 20, "dur": 4},
        {"cat": "Node", "name": "a_kernel_time", "ts": 110, "dur": 5},
    ]
    assert benchmark.operators_of_runs(events).tolist() == [7_000, 5_000]
