"""What happened between two readings: of made-up counters, and of a process that is kept off its
CPUs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.host import cgroup, cpu, watch
from layerscope.host.cgroup import Throttling
from layerscope.host.noise import CpuTime
from layerscope.host.watch import Reading, Watched
from tests.cpu_groups import CpuGroup, spinning

S = 1_000_000_000
GROUP = (Path("/group"),)
BEFORE = Reading(
    5 * S, GROUP, (Throttling(100, 10, 7 * S),), CpuTime(1000, 500, 20), 77, 3 * S, 400, {1: 2 * S, 2: S, 3: 5}, 9 * S
)  # fmt: skip
AFTER = Reading(
    7 * S, GROUP, (Throttling(120, 25, 9 * S),), CpuTime(1400, 600, 60), 77, 6 * S, 460, {1: 3 * S, 2: S, 4: 1}, 16 * S
)  # fmt: skip


def test_the_difference_of_two_readings() -> None:
    assert watch.difference(BEFORE, AFTER) == Watched(
        seconds=2.0, periods=20, throttled=15, throttled_ns=2 * S, steal_share=0.1, busy_share=0.65, process_cpus=1.5,
        process_threads=2, faults=60, family_cpus=3.5, threads_left=3, threads_begun=1, threads_ended=1,
    )  # fmt: skip


def changed(reading: Reading, **news: object) -> Reading:
    from msgspec.structs import replace

    return replace(reading, **news)  # type: ignore[arg-type]


def test_of_another_process_with_the_same_number_nothing_is_told() -> None:
    found = watch.difference(BEFORE, changed(AFTER, start=78))

    assert (found.process_cpus, found.process_threads, found.faults) == (None, None, None)
    assert (found.threads_left, found.threads_begun, found.threads_ended) == (None, 0, 0)
    assert found.throttled == 15


def test_of_another_group_and_of_counters_that_ran_backwards_nothing_is_told() -> None:
    moved = watch.difference(BEFORE, changed(AFTER, group=()))
    back = watch.difference(BEFORE, changed(AFTER, throttling=(Throttling(90, 9),)))

    assert (moved.periods, moved.throttled, moved.throttled_ns) == (None, None, None)
    assert (back.periods, back.throttled, back.throttled_ns) == (None, None, None)


def test_of_groups_around_each_other_the_one_that_is_throttled_most_is_told() -> None:
    """All count the same periods: added up, those of a group that is not throttled would halve the
    share.
    """
    before = changed(
        BEFORE, throttling=(Throttling(100, 90, 5), Throttling(100, 10, S), Throttling())
    )
    after = changed(
        AFTER, throttling=(Throttling(120, 90, 5), Throttling(120, 22, 3 * S), Throttling())
    )
    found = watch.difference(before, after)

    assert (found.periods, found.throttled, found.throttled_ns) == (20, 12, 2 * S)


def test_time_of_children_that_is_lost_does_not_make_the_family_less_than_the_process() -> None:
    assert watch.difference(BEFORE, changed(AFTER, family_ns=S)).family_cpus == 1.5
    assert watch.difference(BEFORE, changed(AFTER, start=78)).family_cpus is None


def test_idle_time_that_the_kernel_corrects_is_no_error() -> None:
    found = watch.difference(BEFORE, changed(AFTER, cpu=CpuTime(1100, 499, 19)))

    assert (found.steal_share, found.busy_share) == (0.0, 1.0)
    assert watch.difference(BEFORE, BEFORE) == Watched(
        0.0, 0, 0, 0, None, None, None, 0, 0, threads_left=3
    )


def test_a_process_has_used_what_its_descendants_have(tmp_path: Path) -> None:
    """Two generations, one of them a zombie, and what was waited for; strangers and a parent are no
    descendants.
    """
    stat = "{0} (x) {1} {2} 7 7 0 -1 0 0 0 0 0 {3} 1 {4} 1 20 0 2 0 5 1 1\n"
    for words in (
        (1, "S", 0, 1000, 0),
        (7, "S", 1, 10, 20),
        (8, "R", 7, 30, 0),
        (30, "Z", 8, 40, 0),
        (9, "R", 1, 50, 0),
    ):
        (tmp_path / f"proc/{words[0]}").mkdir(parents=True)
        (tmp_path / f"proc/{words[0]}/stat").write_text(stat.format(*words))
    found = watch.read(tmp_path, 7)

    assert found.process_ns == 11 * watch._TICK_NS
    assert found.family_ns == (10 + 20 + 30 + 40 + 3 * 2) * watch._TICK_NS
    assert watch.read(tmp_path).family_ns is None


def test_workers_of_a_process_are_watched_with_it() -> None:
    """One that works all the time, and one that ends meanwhile."""
    work = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass\n"
    code = (
        "import subprocess, sys, time\n"
        "run = lambda s: subprocess.Popen([sys.executable, '-c', sys.argv[1].format(s)])\n"
        "first = run(60); run(0.5); print('ready', flush=True); time.sleep(0.2)\n"
        "input(); first.kill(); first.wait()"
    )
    command = [sys.executable, "-c", code, work]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            found = watch.watch(1.5, pid=parent.pid)
        finally:
            parent.communicate("\n", timeout=60)

    assert found.process_cpus is not None
    assert found.family_cpus is not None
    assert found.process_cpus < 0.3
    assert 0.2 < found.family_cpus - found.process_cpus < 2


def test_a_process_whose_name_is_made_to_mislead_is_read_right(tmp_path: Path) -> None:
    stat = "7 (a) S 1 (b) R 1 7 7 0 -1 0 40 0 2 0 300 25 0 0 20 0 2 0 123456 1 1\n"
    for name in ("proc/7/stat", "proc/7/task/7/stat", "proc/7/task/8/stat"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(stat)
    (tmp_path / "proc/7/task/8/schedstat").write_text("123456789 5 6\n")
    found = watch.read(tmp_path, 7)

    assert (found.faults, found.process_ns, found.start) == (42, 325 * watch._TICK_NS, 123456)
    assert found.threads_ns == {7: 325 * watch._TICK_NS, 8: 123456789}


@pytest.mark.slow
def test_64_threads_in_a_group_of_one_cpu_are_kept_off_it() -> None:
    if cpu.facts().granted < 2:
        pytest.skip("fewer than 2 CPUs are left here: a group of one would hold nobody back")
    with CpuGroup(1.0) as group, spinning(64, group) as pid:
        limits, granted = cgroup.facts(pid=pid), cpu.facts(pid=pid).granted
        first = group.counted()
        found = watch.watch(3.0, pid=pid)
        last = group.counted()

    assert (limits.cpus, granted) == (1.0, 1.0)
    whole = [after - before for before, after in zip(first, last, strict=True)]
    told = (found.periods, found.throttled, found.throttled_ns)
    # The kernel counts between our readings and those of the test, too: at most a few periods of
    # 0.1 s.
    for ours, theirs, slack in zip(told, whole, (10, 10, 2 * S), strict=True):
        assert ours is not None, told
        assert max(1, theirs - slack) <= ours <= theirs, (told, whole)
    assert found.process_cpus is not None
    assert found.process_cpus < 1.3
    assert found.process_threads is not None
    assert 2 < found.process_threads <= 64
