"""Threads and processes that come and go: short ones, many, forked ones, ones that are killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from layerscope.rawfile import raw_file, sampler_file
from tests.attempts import once_in_three
from tests.native_sampler.sampling import NOBODY, PATIENCE_S, Sampling, check, check_sums, line_with

pytestmark = pytest.mark.alone


@pytest.mark.slow
@once_in_three
def test_a_thousand_threads_of_a_millisecond(known, sampling: Callable[..., Sampling]) -> None:
    found, said = sampling().run(known, "short", 1000)

    check(found)
    check_sums(found)
    used_ns = line_with(said, "used_ns")["used_ns"]
    lost = found.told[
        "lost_records"
    ]  # where the machine is too busy to empty the kernel's rings in time
    assert len(found.file.threads) == 1001 or (lost and len(found.file.threads) > 1)
    assert all(row["end_ns"] > row["start_ns"] for row in found.file.threads.values())
    others = found.samples[
        (found.samples["thread"] > 0) & (found.samples["kind"] == sampler_file.CPU)
    ]
    # What is left of a thread after it has read its clock is its own end.
    assert lost or used_ns * 0.95 <= others["weight_ns"].sum() <= used_ns * 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "user", [NOBODY, pytest.param((), marks=pytest.mark.stress)], ids=["nobody", "root"]
)
@once_in_three
def test_five_hundred_threads_at_once(known, sampling: Callable[..., Sampling], user) -> None:
    found, said = sampling(user).run(known, "many", 500)

    check(found)
    check_sums(found)
    used_ns = line_with(said, "used_ns")["used_ns"]
    lost = found.told[
        "lost_records"
    ]  # where the machine is too busy to empty the kernel's rings in time
    assert len(found.file.threads) == 501 or (lost and len(found.file.threads) > 1)
    others = found.samples[
        (found.samples["thread"] > 0) & (found.samples["kind"] == sampler_file.CPU)
    ]
    assert lost or used_ns * 0.95 <= others["weight_ns"].sum() <= used_ns * 1.5
    assert found.codes() <= {"samples_dropped", "switches_lost"}
    # 20 ms each: of most of them a period has passed.
    sampled_threads = np.unique(others["thread"][others["stack"] != sampler_file.NONE])
    assert lost or found.codes() or len(sampled_threads) > 400


@once_in_three
def test_a_forked_child_is_sampled_from_its_beginning(
    known, sampling: Callable[..., Sampling]
) -> None:
    found, said = sampling().run(known, "forks", 300)

    check(found)
    check_sums(found)
    child = line_with(said, "child")["child"]
    assert [row["pid"] for row in found.file.processes.values()].count(child) == 1
    rows = found.of(child, sampler_file.CPU)
    known_ns = int(rows["weight_ns"][rows["stack"] != sampler_file.NONE].sum())
    assert known_ns >= 100e6


@once_in_three
def test_a_child_that_is_told_of_before_its_parent(
    known, sampling: Callable[..., Sampling]
) -> None:
    """What the process that forked it has handed over arrives later: from then on the child is sent
    signals, too.
    """
    one = sampling()
    one.passes_on.clear()

    process = one.start(str(known), one.door, "forks", "600")
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(0.15)
    one.passes_on.set()
    said, _ = process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    child = line_with([json.loads(line) for line in said.splitlines()], "child")["child"]
    rows = found.of(child, sampler_file.CPU)
    assert int(rows["weight_ns"][rows["stack"] != sampler_file.NONE].sum()) >= 400e6
    # Those that the kernel copies instead come without one.
    assert found.file.quality["signals"] >= 20


@once_in_three
def test_a_program_that_is_killed_keeps_what_was_sampled(
    known, sampling: Callable[..., Sampling]
) -> None:
    found, _ = sampling().run(known, "dies", 300)

    check(found)
    check_sums(found)
    cpu = found.samples[found.samples["kind"] == sampler_file.CPU]
    assert cpu["weight_ns"][cpu["stack"] != sampler_file.NONE].sum() >= 100e6


def test_a_sampler_that_is_killed_leaves_a_readable_file(
    known, sampling: Callable[..., Sampling]
) -> None:
    from layerscope.sources.raw.stacks import SampledFile

    one = sampling()
    program = one.start_known(known, "burn", 1200)
    file = SampledFile(one.raw / raw_file.SAMPLER_FILE)
    give_up = time.monotonic() + PATIENCE_S
    while not len(file.take(sampler_file.SAMPLES)) and time.monotonic() < give_up:
        time.sleep(0.05)
        file.advance()
    one.process.kill()

    program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0
    file.advance()
    assert not file.ended
    assert not file.is_damaged
    assert file.threads


def test_signals_of_the_terminal_do_not_end_it(known, sampling: Callable[..., Sampling]) -> None:
    one = sampling()
    program = one.start_known(known, "burn", 300)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        one.process.send_signal(number)

    program.communicate(timeout=PATIENCE_S)
    check(one.end())


@pytest.mark.slow
@once_in_three
def test_a_program_that_takes_the_signal_is_told_about(
    known, sampling: Callable[..., Sampling]
) -> None:
    found, _ = sampling().run(known, "takes", 6000)

    check(found)
    check_sums(found)
    assert found.codes() == {"sigurg_taken"}


@once_in_three
def test_timers_of_the_program_without_events(known, sampling: Callable[..., Sampling]) -> None:
    found, _ = sampling().run(known, "burn", 400, TIMERS="1")

    check(found)
    cpu = found.samples[found.samples["kind"] == sampler_file.CPU]
    with_stack = cpu[cpu["stack"] != sampler_file.NONE]
    # But for what is left at the end, which the kernel's own clock may tell of.
    assert (with_stack["kernel_ns"][:-1] == 0).all()
    assert with_stack["weight_ns"].sum() >= 200e6
