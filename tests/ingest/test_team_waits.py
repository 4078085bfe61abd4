"""Waits of OpenMP's workers in a runtime without names."""

from __future__ import annotations

import numpy as np

from layerscope.ingest import waiting
from layerscope.ingest.team_waits import at_barriers
from layerscope.model.layers import SAMPLE_KINDS, WAITS

CPU, WAIT = SAMPLE_KINDS.index("cpu"), SAMPLE_KINDS.index("offcpu")
MS = 1_000_000
MASTER, WORKER = 0, 1


def bits(*functions: str) -> int:
    found = 0
    for name in functions:
        found = waiting.deeper(found, waiting.evidence(name))
    return found


INSIDE = bits("main", "GOMP_parallel", "main._omp_fn.0", "busy")
OUTSIDE = bits("main", "busy")
NAMELESS = bits("clone3", "start_thread", "[libgomp.so.1.0.0]", "[libgomp.so.1.0.0]")


def states(waits: list[tuple[int, int]], master: list[int], exact: bool = True) -> list[str]:
    """The states of a worker's waits (begin, duration in ms), where the master has a sample of CPU
    time every 10 ms with this evidence.
    """
    count = len(master)
    columns = {
        "at_ns": np.array(
            [10 * MS * place for place in range(count)] + [at * MS for at, _ in waits]
        ),
        "weight_ns": np.array([10 * MS] * count + [dur * MS for _, dur in waits]),
        "track": np.array([MASTER] * count + [WORKER] * len(waits)),
        "kind": np.array([CPU] * count + [WAIT] * len(waits)),
        "exact": np.array([False] * count + [exact] * len(waits)),
    }
    evidence = np.array(master + [NAMELESS] * len(waits))
    state = np.full(len(evidence), waiting.POOL_STATE)
    found = at_barriers(columns, state, evidence)
    assert (found[:count] == waiting.POOL_STATE).all()
    return [WAITS[one] for one in found[count:].tolist()]


def test_a_worker_waits_at_a_barrier_while_its_team_is_in_a_region() -> None:
    master = [INSIDE] * 10 + [OUTSIDE] * 10
    assert states([(5, 90), (105, 90), (42, 1), (142, 1)], master) == [
        "barrier", "pool", "barrier", "pool",
    ]  # fmt: skip


def test_a_wait_longer_than_a_region_is_what_most_of_it_is() -> None:
    assert states([(5, 190)], [INSIDE] * 12 + [OUTSIDE] * 8) == ["barrier"]
    assert states([(5, 190)], [INSIDE] * 8 + [OUTSIDE] * 12) == ["pool"]


def test_of_waits_that_stand_for_others_their_begin_decides() -> None:
    assert states([(85, 900)], [INSIDE] * 10 + [OUTSIDE] * 90, exact=False) == ["barrier"]


def test_without_a_region_and_before_the_first_sample_a_worker_has_no_work() -> None:
    assert states([(5, 90)], [OUTSIDE] * 20) == ["pool"]
    assert states([(-5, 1)], [INSIDE] * 20) == ["pool"]


def test_nested_calls_of_the_runtime_stay_in_the_region() -> None:
    assert bits("main", "GOMP_parallel", "f", "[libgomp.so.1]") & waiting.REGION
    assert not bits("main", "f", "printf") & waiting.REGION
    assert not NAMELESS & waiting.REGION
