"""Threads that were busy have a frame each, and what threads did has one for each state."""

from __future__ import annotations

import pytest

from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.analyse.stacks.groups import AUTO
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.model.errors import UsageError
from tests.analyse.stacks.made import MAIN, compared, graph_of, sampled, stacks_of
from tests.recordings import MS, Recording

BY_ITSELF = Look(by=AUTO)
WORKER = (
    "native clone3 libc.so.6",
    "native start_thread libc.so.6",
    "native gomp_thread_start l.so",
)


def two_threads(other_ms: int, *stack: str) -> Recording:
    """The main thread with 90 ms of CPU time, and one that is called loader with so much."""
    recording = sampled((MAIN, 90 * MS))
    loader = recording.add_thread(recording.process, 102, "loader")
    key = recording.add_stack(*(stack or ("python load data.py:1",)))
    recording.add_sample(key, other_ms * MS, track=loader)
    recording.add_sample(key, 500 * MS, kind="offcpu", state="lock", track=loader)
    return recording


def outermost(graph: Graph) -> set[str]:
    return {stack.partition(" > ")[0] for stack in stacks_of(graph)}


def test_several_busy_threads_have_a_frame_each() -> None:
    graph = graph_of(two_threads(10), BY_ITSELF)

    assert outermost(graph) == {"python 100", "loader 102"}
    assert any("--by none" in note for note in graph.notes)
    assert outermost(graph_of(two_threads(10))) == {"<module> (train.py)", "load (data.py)"}
    waits = graph_of(two_threads(10), Look("offcpu", by=AUTO))
    assert stacks_of(waits) == {"loader 102 > load (data.py) > waits for a lock": 500 * MS}


@pytest.mark.parametrize("look", [BY_ITSELF, Look(by=AUTO, choice=Choice(thread="python"))])
def test_one_busy_thread_has_none(look: Look) -> None:
    milliseconds = 9 if look is BY_ITSELF else 90
    graph = graph_of(two_threads(milliseconds), look)

    assert "<module> (train.py)" in outermost(graph)
    assert graph.notes == ()


def test_threads_that_openmp_began_are_not_busy_ones() -> None:
    assert "<module> (train.py)" in outermost(graph_of(two_threads(90, *WORKER), BY_ITSELF))

    recording = two_threads(90)
    for tid in (103, 104):
        worker = recording.add_thread(recording.process, tid, "python")
        recording.add_sample(recording.add_stack(*WORKER), 50 * MS, track=worker)
    graph = graph_of(recording, BY_ITSELF)

    assert outermost(graph) == {"python 100", "loader 102", "OpenMP workers"}
    assert stacks_of(graph)["OpenMP workers"] == 100 * MS
    assert graph.whole == 280 * MS


def test_a_comparison_has_the_threads_of_either() -> None:
    graph = compared(two_threads(1), two_threads(90), BY_ITSELF)
    assert outermost(graph) == {"python", "loader"}


def test_a_recording_without_samples_has_no_busy_threads() -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, 5)
    assert stacks_of(graph_of(recording, Look("operators", by=AUTO))) == {"aten::mm": 5}


def test_running_spinning_and_waiting_are_apart() -> None:
    spins = (*MAIN, "native do_spin libgomp.so")
    recording = sampled((MAIN, 1), (spins, 10), ((*spins, "kernel sched_yield"), 100))
    recording.add_sample(recording.add_stack(*spins), 1000, kind="offcpu", state="barrier")
    recording.add_sample(None, 10_000)

    graph = graph_of(recording, Look("wall", by="state"))

    main = "<module> (train.py) > main (train.py)"
    spin = f"{main} > do_spin (libgomp.so)"
    assert stacks_of(graph) == {
        f"running > {main}": 1,
        "running > stack not known": 10_000,
        f"spinning > {spin}": 10,
        f"spinning > {spin} > sched_yield": 100,
        f"waiting > {spin} > waits at a barrier": 1000,
    }


def test_spans_have_no_states() -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, 5)
    with pytest.raises(UsageError, match="--by state is for samples, and operators are made of"):
        graph_of(recording, Look("operators", by="state"))
