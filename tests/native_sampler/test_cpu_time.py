"""CPU time is told once and whole, however late the sampler hears of a thread, an area, another
program or a CPU.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import sampler_file
from tests.attempts import once_in_three
from tests.native.building import build, build_driver
from tests.native_sampler.conftest import HERE, folder_for_all
from tests.native_sampler.sampling import MAIN, NOBODY, PATIENCE_S, Sampling, check, check_sums

pytestmark = pytest.mark.alone

REFUSES = HERE.parent / "programs" / "refuses.py"
PERF_EVENT_OPEN, EACCES = "298", "13"  # of x86-64, which the sampler is for


@pytest.fixture(scope="module")
def hands_over(native_agent: Path, perf_events: None) -> Iterator[Path]:
    """The compiled hands_over.c."""
    with folder_for_all() as folder:
        yield build_driver(folder, driver=HERE / "hands_over.c").rename(folder / "hands_over")


def sum_ns(rows: np.ndarray, with_stack: bool = False) -> int:
    """The weight of samples, or of those among them that have a stack."""
    return int(
        rows["weight_ns"][rows["stack"] != sampler_file.NONE].sum()
        if with_stack
        else rows["weight_ns"].sum()
    )


@once_in_three
def test_to_move_between_cpus_is_no_time_in_the_kernel(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU here")
    found, pid, out = sampling().whole(str(plain), "moves", "900")

    rows = found.of(pid, sampler_file.CPU)
    assert abs(sum_ns(rows) - 900e6) < 45e6
    assert int(rows["kernel_ns"].sum()) < json.loads(out)["system_ns"] + 60e6


@once_in_three
def test_short_children_that_are_in_the_kernel_are_counted(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    found, _, out = sampling().whole(str(plain), "children", "200")

    children = [json.loads(line) for line in out.splitlines()]
    assert len(children) == 6
    for child in children:
        assert abs(sum_ns(found.of(child["pid"], sampler_file.CPU)) - child["used_ns"]) < 10e6


@once_in_three
def test_an_area_that_comes_late_tells_nothing_twice(
    sampling: Callable[..., Sampling], hands_over: Path
) -> None:
    one = sampling()
    out, _ = one.start(str(hands_over), one.door, "late", "400").communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    said = json.loads(out)
    rows = found.of(said["tid"], sampler_file.CPU)
    assert abs(sum_ns(rows) - said["used_ns"]) < 20e6
    assert sum_ns(rows, with_stack=True) > 0.7 * 400e6


@once_in_three
def test_a_thread_that_is_found_late_has_its_weight(
    sampling: Callable[..., Sampling], hands_over: Path
) -> None:
    refuses = (sys.executable, "-B", str(REFUSES), PERF_EVENT_OPEN, EACCES)
    one = sampling(refuses)
    out, _ = one.start(str(hands_over), one.door, "found", "2500").communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    said = json.loads(out)
    rows = found.of(said["tid"], sampler_file.CPU)
    assert abs(sum_ns(rows) - said["used_ns"]) < 100e6
    assert sum_ns(rows, with_stack=True) > 0.3 * said["used_ns"]


@once_in_three
def test_what_a_program_uses_that_another_one_becomes_is_told_once(
    sampling: Callable[..., Sampling], hands_over: Path, plain: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    one = sampling()
    process = one.start(str(hands_over), one.door, "becomes", "1500", str(plain), "split", "300")
    process.communicate(timeout=PATIENCE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = one.end()

    check(found)
    check_sums(found)
    used_ns = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9
    earlier, later = (sum_ns(found.samples[found.samples["thread"] == number]) for number in (0, 1))
    rows = found.of(process.pid, sampler_file.CPU)
    assert abs(sum_ns(rows) - used_ns) < 10e6
    assert abs(sum_ns(rows[rows["thread"] == 1]) - 300e6) < 10e6
    assert min(earlier, later) > 0


@once_in_three
def test_a_program_that_becomes_our_user_is_sampled(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root can start a program of another user")
    one = sampling(NOBODY)
    command = ["sh", "-c", 'sleep 0.1; exec "$@"', "sh", *NOBODY, str(plain), "split", "400"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        one.send(MAIN, process.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        process.wait(PATIENCE_S)
        found = one.end()

    check(found)
    assert found.codes() == set()
    assert abs(sum_ns(found.of(process.pid, sampler_file.CPU)) - 400e6) < 40e6
    assert sum_ns(found.of(process.pid, sampler_file.CPU), with_stack=True) > 0.7 * 400e6


def test_few_descriptors_cost_no_rows(sampling: Callable[..., Sampling], hands_over: Path) -> None:
    """More threads wait than there are descriptors."""
    one = sampling(("prlimit", "--nofile=100:100"))
    one.start(str(hands_over), one.door, "idle", "120").communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    assert found.told["dropped"] == 0
    assert "disk_full" not in found.codes()
    waits = found.samples[found.samples["kind"] == sampler_file.OFFCPU]
    if not found.told["lost_records"]:
        assert sum_ns(waits) > 0.9 * 120 * 1.5e9


def ran(folder: Path, name: str) -> dict[str, int] | list[int]:
    """What a part of the sampler says, compiled into a program of its own."""
    program = build(folder / name, [HERE / f"{name}.c"], "-Wall", "-Wextra", "-Wno-unused-function")
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    said: dict[str, int] | list[int] = json.loads(done.stdout)
    return said


def test_a_switch_that_is_told_late_changes_no_sum(tmp_path: Path) -> None:
    assert ran(tmp_path, "late_switches") == {"ran_ms": 5175, "waited_ms": 60030, "out_ms": 66200}


def test_thinning_keeps_the_sum_of_each_kind(tmp_path: Path) -> None:
    told = ran(tmp_path, "thinned")
    assert told[0::2] == told[1::2]
    assert all(told)


def test_a_killed_session_leaves_the_sampler_to_the_end_of_the_program(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    one = sampling()
    process = one.start(str(plain), "moves", "900")
    one.control.close()
    process.communicate(timeout=PATIENCE_S)
    found = one.ended()

    check(found)
    check_sums(found)
    assert abs(sum_ns(found.of(process.pid, sampler_file.CPU)) - 900e6) < 45e6
