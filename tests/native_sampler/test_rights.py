"""What the sampler knows where rights allow: who ended a wait, and what the kernel did. And nothing
of it where not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from layerscope.rawfile import sampler_file
from layerscope.symbols.kernel_table import KernelTable
from tests.attempts import once_in_three
from tests.native_sampler.sampling import (
    NOBODY,
    Sampled,
    Sampling,
    check,
    check_sums,
    function,
    line_with,
)
from tests.rights import needs

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("user", [(), NOBODY], ids=["root", "nobody"])
def test_a_thread_that_moves_is_counted(known, sampling: Callable[..., Sampling], user) -> None:
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    found, said = sampling(user).run(known, "moves", 30)

    check(found)
    moved = line_with(said, "moved")
    (thread,) = found.threads(moved["tid"])
    last = found.accounts[found.accounts["thread"] == thread][-1]
    assert last["migrations"] == moved["moved"] == 30


@once_in_three
def test_who_releases_a_lock_ends_the_waits_for_it(
    known, sampling: Callable[..., Sampling]
) -> None:
    needs("wakers")
    found, said = sampling().run(known, "locks", 12)

    check(found)
    check_sums(found)
    assert found.file.settings["wakers"] is True
    sleeper, waiter = (line_with(said, "what", what) for what in ("sleeper", "waiter"))
    rows = found.of(waiter["tid"], sampler_file.OFFCPU)
    long = rows[(rows["flags"] & sampler_file.EXACT > 0) & (rows["weight_ns"] > 30e6)]
    assert len(long) >= 6
    assert set(long["waker"]) == set(found.threads(sleeper["tid"]))
    # A timer ends a sleep: nobody does.
    slept = found.of(sleeper["tid"], sampler_file.OFFCPU)
    slept = slept[(slept["flags"] & sampler_file.EXACT > 0) & (slept["weight_ns"] > 30e6)]
    slept = slept[slept["at_ns"] > sleeper["begun"]]
    assert len(slept) >= 6
    assert set(slept["waker"]) == {sampler_file.NONE}


@once_in_three
def test_who_writes_into_a_pipe_ends_the_read(known, sampling: Callable[..., Sampling]) -> None:
    needs("wakers")
    found, said = sampling().run(known, "pipe")

    rows = found.of(line_with(said, "what", "reader")["tid"], sampler_file.OFFCPU)
    long = rows[(rows["flags"] & sampler_file.EXACT > 0) & (rows["weight_ns"] > 30e6)]
    assert len(long) >= 2
    assert {found.file.threads[int(one)]["tid"] for one in long["waker"]} == {
        found.file.processes[0]["pid"]
    }


def functions_of_the_kernel(found: Sampled, row: np.void, table: KernelTable) -> list[str]:
    """Those of a sample, the innermost first."""
    inside = [
        frame["address"]
        for frame in found.chain(int(row["stack"]))
        if frame["kind"] == sampler_file.KERNEL
    ]
    return table.names(np.array(inside, np.uint64))


@pytest.mark.slow
@once_in_three
def test_functions_of_the_kernel_are_below_those_that_asked(
    known, sampling: Callable[..., Sampling]
) -> None:
    needs("kernel")
    table = KernelTable()
    if table.hidden:
        pytest.skip("the kernel does not report where its functions are (kernel.kptr_restrict)")
    found, said = sampling().run(known, "kernel", 3000)

    check(found)
    check_sums(found)
    half_ns = line_with(said, "half_ns")["half_ns"]
    rows = found.of(line_with(said, "half_ns")["tid"], sampler_file.CPU)
    ask, fill, touch = (function(said, name) for name in ("ask", "fill", "touch"))
    below: dict[str, Counter[str]] = {"ask": Counter(), "fill": Counter()}
    for row in rows[rows["kernel_ns"] > 0]:
        for name, place in (("ask", ask), ("fill", fill)):
            if found.passes(int(row["stack"]), place["first"], place["last"]):
                below[name].update(
                    dict.fromkeys(functions_of_the_kernel(found, row, table), int(row["kernel_ns"]))
                )
    # All of the one's time in the kernel is spent for its system calls, most of the other's for
    # page faults.
    assert (
        sum(ns for name, ns in below["ask"].items() if name.startswith("entry_SYSCALL_64"))
        > 0.2 * half_ns
    )
    assert max(ns for name, ns in below["ask"].items() if "getppid" in name) > 0.05 * half_ns
    assert max(ns for name, ns in below["fill"].items() if "page_fault" in name) > 0.3 * half_ns
    assert not any(
        "page_fault" in name and ns > 0.05 * half_ns for name, ns in below["ask"].items()
    )
    # What belongs to whom is what the program measured: each has its half.
    for place in (ask, fill):
        _, ns = found.weight_in(rows, place)
        assert abs(ns - half_ns) < 0.05 * half_ns
    _, touched_ns = found.weight_in(rows, touch)
    assert touched_ns > 0.5 * half_ns


def test_without_rights_nothing_of_it_is_asked_for(
    known, sampling: Callable[..., Sampling]
) -> None:
    found, _ = sampling(NOBODY).run(known, "kernel", 300)

    check(found)
    check_sums(found)
    assert (found.file.settings["wakers"], found.file.settings["kernel"]) == (False, False)
    assert set(found.samples["waker"]) == {sampler_file.NONE}
    assert not (found.frames["kind"] == sampler_file.KERNEL).any()
    assert found.codes() == set()
