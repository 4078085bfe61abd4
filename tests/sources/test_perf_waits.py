"""Waits in `perf.data`: from each of their sources."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from layerscope.model.layers import SAMPLE_STATES
from layerscope.sources import perf_data, perf_file
from layerscope.sources.imported import Imported
from tests.sources import perf_writer as pw
from tests.sources.test_perf_data import (
    EXE,
    GOLDEN,
    OFFCPU,
    OTHER,
    codes,
    column,
    read,
    stack_names,
    usual,
)


def waits_of(content: Imported) -> list[tuple[int, ...]]:
    """(tid, start, duration, preempted, exact, tid of the waker) of each wait."""
    names = ("track", "at_ns", "weight_ns", "state", "exact", "waker", "kind")
    rows = zip(*(column(content, name) for name in names), strict=True)
    return [
        (content.tracks[track].tid or 0, at, weight, int(SAMPLE_STATES[state] == "preempted"), int(exact),
         content.tracks[waker].tid or 0 if waker >= 0 else 0)
        for track, at, weight, state, exact, waker, kind in rows if kind == OFFCPU
    ]  # fmt: skip


def test_records_of_switches_are_waits(tmp_path: Path) -> None:
    writer = usual()
    writer.switch(1000, 10, is_out=True)
    writer.switch(1100, 11, is_out=True, is_preempted=True)
    writer.switch(1500, 11, is_out=False)
    writer.switch(51_000, 10, is_out=False)
    writer.switch(60_000, 10, is_out=True)
    writer.switch(70_000, 11, is_out=True)
    content = read(tmp_path, writer.file())
    assert waits_of(content) == [
        (10, 1000, 50_000, 0, 1, 0), (11, 1100, 400, 1, 1, 0), (10, 60_000, 10_000, 0, 0, 0), (11, 70_000, 0, 0, 0, 0)
    ]  # fmt: skip
    assert codes(content) == set()


def switch_raw(before: int, state: int, after: int) -> bytes:
    return struct.pack("<8x16siiq16sii", b"a", before, 120, state, b"b", after, 120)


def test_the_tracepoint_tells_stacks_and_the_waker(tmp_path: Path) -> None:
    """Thread 10 sleeps from 1000 to 4000, 11 wakes it at 3500; 11 loses its CPU to it and gets it
    back from idle.
    """
    writer = pw.Writer()
    for number in (0, 1):
        writer.event((2, 300 + number), sample_type=pw.USUAL | pw.RAW)
    formats = b"\x17\x08\x44tracing"
    fields = {
        "sched_switch": "prev_pid;24;4 prev_state;32;8 next_pid;56;4",
        "sched_wakeup": "pid;24;4",
    }
    for number, (name, places) in enumerate(fields.items()):
        rows = [place.split(";") for place in places.split()]
        told = "".join(
            f"\tfield:int {one};\toffset:{at};\tsize:{size};\tsigned:1;\n" for one, at, size in rows
        )
        formats += f'name: {name}\nID: {300 + number}\nformat:\n{told}\nprint fmt: "x"\n'.encode()
    writer.features = {perf_file.TRACING_DATA: formats}
    writer.map(10, 0x1000, 0x1000, 0, EXE)
    writer.comm(10, 10, b"sleeper")
    writer.fork(10, 10, 11, 10, 0)
    writer.sample(1000, 10, [pw.USER, 0x1010], event=0, raw=switch_raw(10, 1, 11))
    writer.sample(
        3500,
        11,
        [pw.USER, 0x1010],
        event=1,
        pid=10,
        raw=struct.pack("<8x16sii", b"sleeper", 10, 120),
    )
    writer.sample(4000, 11, [pw.USER, 0x1020], event=0, pid=10, raw=switch_raw(11, 0, 10))
    writer.sample(
        9000, 0, [pw.KERNEL, 0xFFFFFFFF81000000], event=0, misc=1, raw=switch_raw(0, 0, 11)
    )
    content = read(tmp_path, writer.file())
    assert waits_of(content) == [(10, 1000, 3000, 0, 1, 11), (11, 4000, 5000, 1, 1, 0)]
    assert stack_names(content) == [["[program]"]] * 2
    assert content.problems == []


def test_who_was_only_seen_to_leave_waits_until_its_next_sample(tmp_path: Path) -> None:
    writer = usual()
    writer.event(pw.SWITCHES, period=1)
    writer.sample(1000, 10, [pw.USER, 0x1010], event=1)
    writer.sample(7000, 10, [pw.USER, 0x1010], event=0)
    writer.sample(8000, 10, [pw.USER, 0x1010], event=1)
    content = read(tmp_path, writer.file())
    assert waits_of(content) == [(10, 1000, 6000, 0, 0, 0), (10, 8000, 0, 0, 0, 0)]
    assert codes(content) == {"perf_waits"}


@pytest.mark.parametrize("is_last_ended", [False, True])
def test_a_number_that_is_used_again_is_another_thread(tmp_path: Path, is_last_ended: bool) -> None:
    """The first one's last switch is no wait, its successor's first one does not end it, and both
    have their own.
    """
    writer = usual()
    writer.switch(1000, 11, is_out=True)
    writer.switch(1100, 11, is_out=False)
    writer.fork(10, 10, 11, 11, 2000, is_exit=True)
    writer.switch(2001, 11, is_out=True)
    writer.fork(10, 10, 11, 10, 3000)
    writer.switch(3000, 11, is_out=False)
    writer.switch(4000, 11, is_out=True)
    writer.switch(9000, 11, is_out=False)
    if is_last_ended:
        writer.fork(10, 10, 11, 11, 9500, is_exit=True)
        writer.switch(9501, 11, is_out=True)
    content = read(tmp_path, writer.file())
    assert waits_of(content) == [(11, 1000, 100, 0, 1, 0), (11, 4000, 5000, 0, 1, 0)]
    assert column(content, "track")[-2:] == [1, 2]


def test_a_thread_that_ends_while_it_waits_waits_no_longer(tmp_path: Path) -> None:
    writer = usual()
    writer.switch(1000, 11, is_out=True)
    writer.fork(10, 10, 11, 11, 2000, is_exit=True)
    writer.switch(9000, 10, is_out=False)
    assert waits_of(read(tmp_path, writer.file())) == [(11, 1000, 1000, 0, 0, 0)]


def test_a_number_that_is_used_again_where_no_return_is_told(tmp_path: Path) -> None:
    writer = usual()
    writer.event(pw.SWITCHES, period=1)
    writer.sample(1000, 11, [pw.USER, 0x1010], event=1, pid=10)
    writer.fork(10, 10, 11, 11, 900, is_exit=True)
    writer.fork(10, 10, 11, 10, 3000)
    writer.sample(4000, 11, [pw.USER, 0x1010], event=0, pid=10)
    writer.sample(5000, 11, [pw.USER, 0x1010], event=1, pid=10)
    writer.sample(5500, 11, [pw.USER, 0x1010], event=0, pid=10)
    assert waits_of(read(tmp_path, writer.file())) == [(11, 5000, 500, 0, 0, 0)]


OFF_CPU, NO_OWN_TIME = (1, 10), 0xFFFFFFFF00000000


def names_of_events(writer: pw.Writer, *names: bytes) -> bytes:
    """The feature EVENT_DESC."""
    found = struct.pack("<II", len(names), len(writer.events[0][-1]))
    for number, name in enumerate(names):
        attr = writer.events[number][-1]
        found += (
            attr
            + struct.pack("<II", 1, 64)
            + name.ljust(64, b"\0")
            + struct.pack("<Q", 100 + number)
        )
    return found


def test_off_cpu_samples_are_as_long_as_they_say(tmp_path: Path) -> None:
    """Their time is the end of the wait; the sums of short ones have none, and are where the last
    sample is.
    """
    writer = usual()
    writer.event(OFF_CPU, period=1)
    writer.event(pw.SWITCHES, period=1)
    writer.features = {
        perf_file.EVENT_DESC: names_of_events(writer, b"cpu-clock", b"offcpu-time", b"cs")
    }
    writer.sample(1000, 10, [pw.USER, 0x1010], event=2)
    writer.sample(3000, 10, [pw.USER, 0x1010], event=1, period=500)
    writer.sample(9000, 10, [pw.USER, 0x1010])
    whole = writer.file()
    # The sample of a wait does not say that the thread ran.
    assert waits_of(read(tmp_path, whole)) == [(10, 1000, 8000, 0, 0, 0), (10, 2500, 500, 0, 1, 0)]
    for period in (40, 50):
        writer.sample(NO_OWN_TIME, 10, [pw.USER, 0x1010], event=1, period=period)
    writer.map(10, 0x1000, 0x1000, 0, OTHER, 8000)
    content = read(tmp_path, writer.file())
    assert waits_of(content)[2:] == [(10, 8950, 50, 0, 1, 0), (10, 8960, 40, 0, 1, 0)]
    assert codes(content) == {"perf_waits", "perf_no_own_time"}
    assert len(content.problems) == 2
    # They have the mappings that the last samples have.
    assert stack_names(content)[-3:] == [["[libtwo.so]"]] * 3


def test_what_a_thread_leaves_when_it_ends_is_no_wait(tmp_path: Path) -> None:
    writer = usual()
    writer.fork(10, 10, 11, 11, 900, is_exit=True)
    writer.switch(901, 11, is_out=True)
    assert waits_of(read(tmp_path, writer.file())) == []


def test_switches_of_a_real_file() -> None:
    """The program sleeps ten times for 10 ms."""
    content = perf_data.read(GOLDEN / "file.data")
    slept = [dur for tid, _, dur, preempted, exact, _ in waits_of(content)
             if tid == content.tracks[0].tid and not preempted and exact]  # fmt: skip
    assert sum(10_000_000 <= dur < 30_000_000 for dur in slept) >= 10
