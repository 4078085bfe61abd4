"""Process counters: what the kernel says of a process, read from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from layerscope.capture import counters
from layerscope.rawfile import counters as counter_file


def values(pid: int) -> dict[str, int]:
    return {name: value for _, name, value, _ in counter_file.read(counters.sample(pid))}


def test_a_sample_has_every_counter_of_a_process_with_its_unit_at_one_moment() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    rows = list(counter_file.read(counters.sample(os.getpid())))
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    units = dict(zip(counter_file.NAMES, counter_file.UNITS, strict=True))
    known = [name for name in units if not name.startswith("machine_")]
    expected = {name: units[name] for name in known if name not in counter_file.OF_GROUP}
    assert {name: unit for _, name, _, unit in rows} == expected
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
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
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


def test_bytes_are_those_of_the_process_and_of_children_that_it_has_waited_for(
    tmp_path: Path,
) -> None:
    code = (
        "import os, subprocess, sys\n"
        "block = bytearray(b'x') * 30_000_000\n"
        "open('one', 'wb').write(block); open('one', 'rb').read()\n"
        "subprocess.run([sys.executable, '-c', 'open(\"two\", \"wb\").write(bytes(5_000_000))'])\n"
        "del block\n"
        "print('ready', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        found = values(process.pid)
    finally:
        process.kill()
        process.communicate()

    # Beside that an interpreter reads its modules and writes lines.
    assert 35_000_000 <= found["wchar_bytes"] < 36_000_000
    assert 30_000_000 <= found["rchar_bytes"] < 60_000_000
    assert found["rss_peak_bytes"] > 60_000_000 > found["rss_bytes"]
    assert found["storage_written_bytes"] >= 0


def test_what_may_not_be_read_is_absent_and_told() -> None:
    """/proc/PID/io is for the user that the process runs as, and for root."""
    process = subprocess.Popen(["sleep", "60"])
    answer, question = os.pipe()
    child = os.fork()
    if child == 0:
        if not os.getuid():
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        source = counters.CounterSource(process.pid if os.getuid() == 65534 else 1)
        names = {name for _, name, _, _ in counter_file.read(source.sample())}
        os.write(question, json.dumps([sorted(names), source.unread]).encode())
        os._exit(0)
    try:
        os.close(question)
        names, unread = json.loads(os.read(answer, 4096))
    finally:
        os.close(answer)
        os.waitpid(child, 0)
        process.kill()
        process.wait()

    assert unread == {"io": "Permission denied"}
    assert {"cpu_ns", "rss_bytes", "rss_peak_bytes"} <= set(names)
    assert not {"rchar_bytes", "storage_read_bytes"} & set(names)


def test_throttling_counts_from_the_first_sample_in_whatever_group_the_process_is(
    tmp_path: Path,
) -> None:
    def tell(group: str, throttled: int, spent_us: int) -> None:
        (tmp_path / "proc/7").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/7/cgroup").write_text(f"0::/{group}\n")
        folder = tmp_path / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory\n")
        (folder / "cpu.stat").write_text(f"nr_throttled {throttled}\nthrottled_usec {spent_us}\n")
        (folder / "memory.max").write_text("64000\n")
        (folder / "memory.current").write_text("500\n")

    def read() -> dict[str, int]:
        source.look()
        return {name: value for _, name, value, _ in counter_file.read(source.sample())}

    source = counters.GroupSource(7, tmp_path, slow_ns=0)
    memory = {"group_memory_bytes": 500, "group_memory_limit_bytes": 64000}
    tell("one", 40, 1500)
    assert read() == {"throttled": 0, "throttled_ns": 0, **memory}
    tell("one", 43, 2500)
    assert read() == {"throttled": 3, "throttled_ns": 1_000_000, **memory}
    key = source.look()
    tell("two", 1000, 77)
    assert read() == {"throttled": 3, "throttled_ns": 1_000_000, **memory}
    tell("two", 1001, 80)
    assert read() == {"throttled": 4, "throttled_ns": 1_003_000, **memory}
    assert source.look() != key
    (tmp_path / "proc/7/cgroup").unlink()  # it has ended
    assert read()["throttled"] == 4


def test_without_a_control_group_nothing_is_told(tmp_path: Path) -> None:
    source = counters.GroupSource(7, tmp_path)

    assert source.look() == ()
    assert source.sample() == b""


def test_the_machine_is_counted_and_what_it_lacks_is_left_out(
    tmp_path: Path,
) -> None:
    """Busy are user, nice, system, irq and softirq; guests are in user already."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    source = counters.MachineSource(tmp_path, slow_ns=0)

    def read(stat: str) -> dict[str, int]:
        (tmp_path / "proc" / "stat").write_text(f"cpu  {stat}\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
        return {name: value for _, name, value, _ in counter_file.read(source.sample())}

    assert read("10 20 30 400 50 6 7 8 9 9") == {
        "machine_cpu_ns": (10 + 20 + 30 + 6 + 7) * tick_ns,
        "machine_stolen_ns": 8 * tick_ns,
    }
    (tmp_path / "proc" / "pressure" / "cpu").write_text(
        "some avg10=0.73 avg60=0.85 avg300=8.63 total=500\nfull avg10=0.00 total=0\n"
    )
    assert read("11 22 33 999 99 10 12 10 99 99") == {
        "machine_cpu_ns": (11 + 22 + 33 + 10 + 12) * tick_ns,
        "machine_stolen_ns": 10 * tick_ns,
        "machine_cpu_pressure_ns": 500_000,
    }
    (tmp_path / "proc" / "stat").write_text("cpu one two\n")
    assert set(read("1 2 3")) == {"machine_cpu_pressure_ns"}


def test_what_changes_slowly_is_read_less_often() -> None:
    source = counters.CounterSource(os.getpid())
    first, second = (
        {name for _, name, _, _ in counter_file.read(source.sample())} for _ in range(2)
    )
    always = {
        name
        for _, name, _, _ in counter_file.read(
            counters.CounterSource(os.getpid(), slow_ns=0).sample()
        )
    }

    assert first == always
    assert first - second == {
        "rss_peak_bytes", "rss_anonymous_bytes", "rss_file_bytes", "rss_shared_bytes",
        "rchar_bytes", "wchar_bytes", "storage_read_bytes", "storage_written_bytes",
    }  # fmt: skip
    assert "cpu_ns" in second


def test_a_dead_process_can_be_read_until_it_is_reaped_and_then_gives_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert {"cpu_ns", "faults_minor", "wchar_bytes"} <= values(pid).keys()
    assert not {"rss_bytes", "rss_peak_bytes", "threads"} & values(pid).keys()
    os.waitpid(pid, 0)

    assert counters.sample(pid) == b""


def test_no_process_gives_no_sample() -> None:
    assert [counters.sample(pid) for pid in (2**22 + 1, 2**31 - 1, 2**40)] == [b""] * 3


def test_counters_of_a_later_version_are_left_out() -> None:
    rows = np.zeros(3, counter_file.row_dtype())
    rows["counter"] = [0, len(counter_file.NAMES), -1]

    assert [name for _, name, _, _ in counter_file.read(rows.tobytes())] == ["cpu_ns"]
