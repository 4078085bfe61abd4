"""OpenMP's threads in flame graphs."""

from __future__ import annotations

import pytest

from tests.analyse.stacks.made import graph_of, sampled, stacks_of

THREAD = ("native clone3 libc.so.6", "native start_thread libc.so.6")


@pytest.mark.parametrize(
    "begins",
    [
        ("native gomp_thread_start libgomp.so.1",),
        ("native [libgomp.so.1.0.0] libgomp.so.1", "native [libgomp.so.1.0.0] libgomp.so.1"),
        ("native __kmp_launch_worker(void*) libiomp5.so",),
    ],
)
def test_what_workers_do_stands_under_them(begins: tuple[str, ...]) -> None:
    recording = sampled(
        (("python <module> train.py:9", "modules Net", "operators aten::mm"), 3),
        ((*THREAD, *begins, "modules Net", "operators aten::mm", "native gemm libmkl.so"), 4),
        ((*THREAD, *begins), 1),
    )
    found = stacks_of(graph_of(recording))
    assert found["<module> (train.py) > Net > aten::mm"] == 3
    assert found["OpenMP workers > Net > aten::mm > gemm (libmkl.so)"] == 4
    assert sum(weight for stack, weight in found.items() if stack.startswith("OpenMP")) == 5


def test_other_threads_and_the_one_that_begins_a_team_are_none_of_its_workers() -> None:
    recording = sampled(
        ((*THREAD, "native work app", "native GOMP_parallel libgomp.so.1"), 1),
        (("native main app", "native [libgomp.so.1.0.0] libgomp.so.1"), 2),
        (("native gomp_thread_start libgomp.so.1",), 4),
    )
    assert not any("OpenMP workers" in stack for stack in stacks_of(graph_of(recording)))
