"""What spins, and what is not known."""

from __future__ import annotations

import pytest

from layerscope.analyse.stacks.frames import NATIVE, PYTHON, StackFrame
from layerscope.analyse.stacks.marked import SPINNING, UNKNOWN, mark_of, marked_weights
from layerscope.ingest.frames import CUT
from tests.analyse.stacks.made import graph_of, sampled


@pytest.mark.parametrize(
    ("name", "spins"),
    [
        ("gomp_team_barrier_wait_end", True), ("gomp_barrier_wait_end", True), ("do_spin", True),
        ("[libgomp.so.1.0.0]", True), ("[libiomp5.so]", True), ("__kmp_fork_barrier(int, int)", True),
        ("__sched_yield", True), ("pthread_spin_lock", True), ("mkl_serv_thread_yield", True),
        ("GOMP_parallel", False), ("gomp_thread_start", False), ("await", False),
        ("mkl_blas_avx512_sgemm", False), ("[libgompertz.so]", False),
    ],
)  # fmt: skip
def test_what_spins(name: str, spins: bool) -> None:
    assert mark_of(StackFrame(NATIVE, name, "lib.so")) == (SPINNING if spins else None)
    assert mark_of(StackFrame(PYTHON, name, "a.py")) is None


def test_spinning_is_what_no_function_in_it_has_and_the_kernel_for_it() -> None:
    recording = sampled(
        (("native main app", "native [libgomp.so.1] libgomp.so"), 1),
        (("native main app", "native [libgomp.so.1] libgomp.so", "native work app"), 10),
        (("native main app", "native do_wait libgomp.so", "kernel sched_yield"), 100),
        (("native main app", "kernel page_fault"), 1000),
    )
    recording.add_sample(None, 10000)
    assert marked_weights(graph_of(recording)) == {SPINNING: 101, UNKNOWN: 10000}


def test_callers_that_are_not_known_are_marked() -> None:
    assert mark_of(StackFrame(NATIVE, CUT)) == UNKNOWN


def test_a_graph_without_marks_has_no_sums() -> None:
    assert marked_weights(graph_of(sampled((("python a m.py:1",), 1)))) == {}
