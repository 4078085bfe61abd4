"""Process counters: what the kernel says of a process, read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from layerscope.collect.layers import counters


def values(pid: int) -> dict[str, int]:
    return {name: value for _, name, value, _ in counters.read(counters.sample(pid))}


def test_a_sample_has_every_counter_with_its_unit_at_one_moment() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    rows = list(counters.read(counters.sample(os.getpid())))
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    assert [(name, unit) for _, name, _, unit in rows] == list(zip(counters.NAMES, counters.UNITS, strict=True))
    assert len({at_ns for at_ns, *_ in rows}) == 1
    assert before <= rows[0][0] <= after


def test_values_are_those_of_the_process() -> None:
    """The name of the program holds what its line in /proc is split by."""
    code = (
        "import ctypes, threading\n"
        "ctypes.CDLL(None).prctl(15, b') R 1 2 (x')\n"
        "block = bytearray(b'x') * 50_000_000\n"
        "end = sum(range(3_000_000))\n"
        "threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        found = values(process.pid)
    finally:
        process.kill()
        process.communicate()

    assert found["threads"] == 2
    assert found["rss_bytes"] > 50_000_000
    assert found["faults_minor"] > 10_000
    assert found["cpu_ns"] > 0
    # The kernel counts user and system time in ticks, and rounds.
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert abs(found["user_ns"] + found["system_ns"] - found["cpu_ns"]) <= 3 * tick_ns


def test_a_dead_process_can_be_read_until_it_is_reaped_and_then_gives_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert {"cpu_ns", "faults_minor"} <= values(pid).keys()
    assert not {"rss_bytes", "threads"} & values(pid).keys()
    os.waitpid(pid, 0)

    assert counters.sample(pid) == b""


def test_no_process_gives_no_sample() -> None:
    assert [counters.sample(pid) for pid in (2**22 + 1, 2**31 - 1, 2**40)] == [b""] * 3


def test_counters_of_a_later_version_are_left_out() -> None:
    rows = np.zeros(3, counters.SAMPLE)
    rows["counter"] = [0, len(counters.NAMES), -1]

    assert [name for _, name, _, _ in counters.read(rows.tobytes())] == ["cpu_ns"]
