"""The rate of samples is changed while the program runs: sums of CPU time stay exact."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import layout, sampler_file
from tests.attempts import once_in_three
from tests.native_sampler.sampling import PATIENCE_S, Sampled, Sampling, check, check_sums

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LATER_HZ = 20


def changed(one: Sampling, hz: int = LATER_HZ) -> int:
    """Ask for another rate; the time when it is in force."""
    one.send(layout.SEND_RATE, 0, 0, index=hz)
    time.sleep(0.05)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def used(one: Sampling) -> list[tuple[int, int]]:
    """What the sampler has said so far of the CPU time of the program, in ns, and of its handlers,
    in ms.
    """
    one.control.setblocking(False)
    told = []
    while True:
        try:
            data = one.control.recv(4096)
        except BlockingIOError:
            return told
        if len(data) != layout.MESSAGE.size:
            return told
        _, kind, _, handler_ms, program_ns = layout.MESSAGE.unpack(data)
        if kind == layout.SEND_USED:
            told.append((program_ns, handler_ms))


def rate_hz(rows: np.ndarray) -> float:
    """Samples with a stack in a second of the CPU time that they stand for."""
    with_stack = rows[rows["stack"] != sampler_file.NONE]
    return len(with_stack) / (int(with_stack["weight_ns"].sum()) / 1e9)


def check_rates(found: Sampled, tid: int, at_ns: int) -> None:
    """All is counted, and there are fewer samples from then on."""
    check(found)
    check_sums(found)
    rows = found.of(tid, sampler_file.CPU)
    rows = rows[np.argsort(rows["at_ns"], kind="stable")]
    before, after = rows[rows["at_ns"] < at_ns], rows[rows["at_ns"] >= at_ns][1:]
    assert rate_hz(before) > 80
    assert rate_hz(after) < 1.2 * LATER_HZ
    # It does nothing in the kernel, and a longer period is not taken for that.
    assert int(rows["kernel_ns"].sum()) < 0.05 * int(rows["weight_ns"].sum())


@once_in_three
def test_a_lower_rate_keeps_the_sum_of_a_thread(
    known: Path, sampling: Callable[..., Sampling]
) -> None:
    one = sampling()
    process = one.start_known(known, "split", 2400)
    time.sleep(1.0)
    at_ns = changed(one)
    said, _ = process.communicate(timeout=PATIENCE_S)
    told = used(one)
    found = one.end()

    line = json.loads(said.splitlines()[-1])
    check_rates(found, line["tid"], at_ns)
    # What it has said in the middle is a part of the whole.
    assert told
    whole_ns = int(found.samples["weight_ns"][found.samples["kind"] == sampler_file.CPU].sum())
    assert 0.2 * whole_ns < told[-1][0] <= whole_ns


@once_in_three
def test_a_lower_rate_holds_for_a_program_without_the_agent(
    plain: Path, sampling: Callable[..., Sampling]
) -> None:
    one = sampling()
    process = one.start(str(plain), "split", "2400")
    time.sleep(1.2)
    at_ns = changed(one)
    process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check_rates(found, process.pid, at_ns)


@once_in_three
def test_threads_that_inherited_their_clock_have_the_lower_rate_too(
    plain: Path, sampling: Callable[..., Sampling]
) -> None:
    one = sampling()
    process = one.start(str(plain), "threads", "900")
    time.sleep(1.3)  # the others have begun
    at_ns = changed(one)
    process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    cpu = found.samples[found.samples["kind"] == sampler_file.CPU]
    assert rate_hz(cpu[cpu["at_ns"] < at_ns]) > 80
    later = cpu[cpu["at_ns"] >= at_ns + 100_000_000]
    assert rate_hz(later) < 1.3 * LATER_HZ


@once_in_three
def test_a_rate_that_goes_up_again_is_no_time_in_the_kernel(
    known: Path, sampling: Callable[..., Sampling]
) -> None:
    one = sampling()
    process = one.start_known(known, "split", 2400)
    for hz in (10, 99) * 4:
        time.sleep(0.25)
        changed(one, hz)
    said, _ = process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    rows = found.of(json.loads(said.splitlines()[-1])["tid"], sampler_file.CPU)
    assert int(rows["kernel_ns"].sum()) < 0.05 * int(rows["weight_ns"].sum())
