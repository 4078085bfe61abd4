"""What spins, and what is not known."""

from __future__ import annotations

import pytest

from layerscope.analyse.stacks import weights
from layerscope.analyse.stacks.frames import NATIVE, PYTHON, StackFrame
from layerscope.analyse.stacks.marked import SPINNING, UNKNOWN, mark_of, marked_weights
from layerscope.analyse.stacks.spinning import Spinning, spinning_of
from layerscope.model.layers import WAITS
from layerscope.model.sample_tables import CUT, LEFT_OUT
from layerscope.show import resource_lines
from layerscope.tune import why
from tests.analyse.stacks.made import graph_of, opened, sampled, stacks_of
from tests.recordings import Recording


@pytest.mark.parametrize(
    ("name", "spins"),
    [
        ("gomp_team_barrier_wait_end", True), ("gomp_barrier_wait_end", True), ("do_spin", True),
        ("[libgomp.so.1.0.0]", True), ("[libiomp5.so]", True), ("__kmp_fork_barrier(int, int)", True),
        ("__sched_yield", True), ("pthread_spin_lock", True), ("mkl_serv_thread_yield", True),
        ("cudaDeviceSynchronize", True), ("cuCtxSynchronize_v2", True), ("cuMemcpyDtoHAsync_v2", True),
        ("cudaLaunchKernel", False), ("cuMemcpyHtoDAsync_v2", False), ("[libcuda.so.580.1]", False),
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


def test_frames_that_are_left_out_are_marked_and_shown_between_the_others() -> None:
    stack = ("python f a.py:1", f"native {LEFT_OUT}", "python g a.py:2")
    recording = sampled((("python f a.py:1",), 1), (stack, 10))
    recording.rows["frames"][1].update(name=LEFT_OUT, object=None)

    graph = graph_of(recording)

    assert stacks_of(graph) == {"f (a.py)": 1, f"f (a.py) > {LEFT_OUT} > g (a.py)": 10}
    assert marked_weights(graph) == {UNKNOWN: 10}


def test_a_graph_without_marks_has_no_sums() -> None:
    assert marked_weights(graph_of(sampled((("python a m.py:1",), 1)))) == {}


def test_the_share_of_spinning_is_one_of_all_cpu_time() -> None:
    recording = sampled(
        (("native main app", "native work app"), 60),
        (("native main app", "native do_spin libgomp.so"), 30),
        (("native main app", "native do_spin libgomp.so", "kernel yield"), 10),
    )
    key = recording.add_stack("native main app", "native do_spin libgomp.so")
    recording.add_sample(key, 1000, kind="offcpu", state="barrier", exact=True)
    with opened(recording) as reader:
        assert spinning_of(reader) == Spinning(0.4, 0.0)


def test_waiting_for_a_gpu_is_all_that_its_function_calls_but_copying() -> None:
    waits = (
        "python f a.py:1",
        "native cudaStreamSynchronize cudart",
        "native cuStreamSynchronize libcuda.so.1",
    )
    copies = ("native cudaMemcpyAsync cudart", "native cuMemcpyDtoHAsync_v2 libcuda.so.1")
    recording = sampled(
        (("native cudaLaunchKernel cudart", "native [libcuda.so.1] libcuda.so.1"), 20),
        (waits, 10),
        ((*waits, "native [libcuda.so.1] libcuda.so.1", "native clock_gettime [vdso]"), 30),
        ((*copies, "native [libcuda.so.1] libcuda.so.1", "kernel ioctl"), 5),
        ((*copies, "native __memmove_avx libc.so.6"), 15),
        (("native do_spin libgomp.so",), 20),
    )  # fmt: skip
    with opened(recording) as reader:
        assert spinning_of(reader) == Spinning(0.65, 0.45)
    assert marked_weights(graph_of(recording)) == {SPINNING: 65}


def test_without_samples_the_share_of_spinning_is_not_known() -> None:
    with opened(Recording()) as reader:
        assert spinning_of(reader) is None


def test_every_reason_to_wait_has_words_wherever_waits_are_described() -> None:
    for words in (
        weights.WORDS_OF_WAITS | {"other": ""},
        resource_lines.WAITS,
        why.WAITED_FOR | dict.fromkeys(("other", "unknown")),
    ):
        assert set(WAITS) <= set(words)
