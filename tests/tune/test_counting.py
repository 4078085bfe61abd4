"""Steps made of the marks of the agent: known marks give known steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import counters, dtypes, layout, raw_file
from layerscope.tune import counting, guard

MS = 1_000_000
BEGINS, ENDS = layout.MARK_BEGINS, layout.MARK_ENDS
LOADER, OPTIMIZER, REQUEST = layout.RULE_LOADER, layout.RULE_OPTIMIZER, layout.RULE_REQUEST
SERVED = layout.RULE_SERVED
Mark = tuple[int, int, int, int]  # ms, what, number, rule with what else its code has


def raw(
    folder: Path, marks: list[Mark], cpu_ms: Sequence[tuple[int, int]] = (), name: str = "here-1-0"
) -> Path:
    """Raw files of one process with these marks on one thread, and readings of its CPU time."""
    records = np.zeros(len(marks) + 1, dtypes.RECORD)
    records[0]["kind"], records[0]["end"], records[0]["module"] = layout.THREAD_BEGIN, 1, 1
    for record, (at_ms, what, number, code) in zip(records[1:], marks, strict=True):
        record["start"], record["module"], record["seq"], record["end"] = (
            at_ms * MS,
            what,
            number,
            code,
        )
        record["kind"] = layout.MARK
    writer = raw_file.SpoolWriter(folder / name / "spool")
    writer.write(raw_file.PROCESS, b'{"pid": 1, "start_ns": 0, "clock": "monotonic"}')
    writer.write(raw_file.RECORDS, records.tobytes(), key=0, count=len(records))
    for at_ms, spent_ms in cpu_ms:
        writer.write(raw_file.COUNTERS, counters.packed(at_ms * MS, {"cpu_ns": spent_ms * MS}))
    writer.write(raw_file.POLL, np.array([10**12, 10**12, 10**12, 0], "<i8").tobytes())
    writer.write(raw_file.END, b"{}")
    writer.close()
    return folder


def test_a_step_of_an_optimizer_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    marks = [
        (at, BEGINS, number, OPTIMIZER) for number, at in enumerate((100, 110, 121, 133, 146), 1)
    ]
    found = counting.read(raw(tmp_path, [(5, BEGINS, 0, LOADER), *marks], [(100, 50), (200, 150)]))
    assert found is not None
    # Four steps, the first of which is warm-up; what the loader counted before is none.
    assert (found.rule, found.dur_ns.tolist()) == ("optimizer", [11 * MS, 12 * MS, 13 * MS])
    # Between 110 and 146 ms, one CPU was busy.
    assert found.cpu_ns == pytest.approx(36 * MS / 3)


def test_what_lies_behind_the_last_batch_is_in_no_step(tmp_path: Path) -> None:
    times = [
        (0, 0),
        (10, 1),
        (20, 2),
        (30, 3),
        (900, 3),
        (910, 4),
        (920, 5),
    ]  # 3: no more batches, then a new epoch
    found = counting.read(raw(tmp_path, [(at, BEGINS, number, LOADER) for at, number in times]))
    assert found is not None
    assert (found.rule, found.dur_ns.tolist()) == ("loader", [10 * MS] * 4)
    assert found.cpu_ns == 0


def test_requests_that_overlap_are_known_by_their_numbers(tmp_path: Path) -> None:
    begins = [(10 * number, BEGINS, number, SERVED) for number in range(5)]
    ends = [(10 * number + 25 + number, ENDS, number, SERVED) for number in (1, 0, 3, 2)]
    found = counting.read(raw(tmp_path, [(5, BEGINS, 0, REQUEST), *begins, *ends]))
    assert found is not None
    # The first one is warm-up, and the last one has not ended.
    assert (found.rule, found.dur_ns.tolist()) == ("served", [26 * MS, 27 * MS, 28 * MS])


def test_a_request_ends_with_its_last_module_and_waiting_for_the_next_is_none(
    tmp_path: Path,
) -> None:
    marks = []
    for number in range(6):
        at = 100 * number
        marks += [
            (at, BEGINS, number, REQUEST),
            (at + 10, ENDS, number, REQUEST),
            (at + 30, ENDS, number, REQUEST),
        ]
    found = counting.read(raw(tmp_path, [*marks, (600, BEGINS, 6, REQUEST)]))
    assert found is not None
    assert (found.rule, found.dur_ns.tolist()) == ("request", [30 * MS] * 5)


def test_of_modules_that_seemed_to_begin_requests_the_last_counts(tmp_path: Path) -> None:
    later = REQUEST | 1 << layout.WINDOW_INSTANCE
    marks = [(0, BEGINS, 0, REQUEST), (5, ENDS, 0, REQUEST)]
    for number in range(4):
        marks += [
            (100 + 50 * number, BEGINS, number, later),
            (120 + 50 * number, ENDS, number, later),
        ]
    found = counting.read(raw(tmp_path, marks))
    assert found is not None
    assert found.dur_ns.tolist() == [20 * MS] * 3


def test_of_several_processes_those_by_the_strongest_rule_count(tmp_path: Path) -> None:
    training = [(10 * number, BEGINS, number, OPTIMIZER) for number in range(1, 6)]
    raw(tmp_path, training, [(0, 0), (100, 100)])
    raw(tmp_path, training, [(0, 0), (100, 100)], name="here-2-0")
    raw(
        tmp_path,
        [(number, BEGINS, number, LOADER) for number in range(50)],
        [(0, 0), (100, 50)],
        name="here-3-0",
    )
    found = counting.read(tmp_path)
    assert found is not None
    assert found.dur_ns.tolist() == [10 * MS] * 6
    # 30 ms with two and a half CPUs, for six steps.
    assert found.cpu_ns == pytest.approx(75 * MS / 6)


def test_where_there_are_no_marks_there_are_no_steps(tmp_path: Path) -> None:
    assert counting.read(raw(tmp_path, [])) is None
    assert counting.read(tmp_path / "nothing") is None
    assert counting.LiveSteps(tmp_path).count() == 0


def test_steps_are_counted_while_the_file_grows(tmp_path: Path) -> None:
    live = counting.LiveSteps(tmp_path)
    raw(tmp_path, [(number, BEGINS, number, LOADER) for number in range(50)])
    assert live.count() == 49
    raw(tmp_path, [(number, BEGINS, number, OPTIMIZER) for number in range(1, 4)], name="here-2-0")
    assert live.count() == 3  # by the strongest rule


def test_the_collectors_of_other_libraries_stay_out() -> None:
    ours = {
        "INTEL_LIBITTNOTIFY64": "x",
        "LAYERSCOPE_AGENT": "y",
        "NVTX_INJECTION64_PATH": "z",
        "PYTHONPATH": "door",
    }
    assert counting.without_collectors(ours, {"NVTX_INJECTION64_PATH": "z"}) == {
        "NVTX_INJECTION64_PATH": "z", "PYTHONPATH": "door",
    }  # fmt: skip


def test_the_tighter_of_machine_and_group_is_what_is_left(tmp_path: Path) -> None:
    assert guard.memory_left(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 5000 kB\n")
    assert guard.memory_left(tmp_path) == (5000 * 1024, 8000 * 1024)
    (tmp_path / "proc/self/cgroup").write_text("0::/a\n")
    group = tmp_path / "sys/fs/cgroup/a"
    group.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("memory\n")
    (group / "memory.max").write_text("1000000\n")
    (group / "memory.current").write_text("400000\n")
    (group / "memory.stat").write_text("inactive_file 100000\n")
    assert guard.memory_left(tmp_path) == (700_000, 1_000_000)
