"""CPU time between two moments from samples, and growth of counters from readings: answers that can
be worked out.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.by_step import UNKNOWN, cpu_ns_within, grown_within
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording


def cpu_ns(recording: Recording, stretches: list[tuple[int, int]], process: int = 0) -> list[int]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope")) as reader,
    ):
        tracks = reader.arrays("tracks", ["track", "process", "name"])
        start_ns, end_ns = (np.array(values, np.int64) for values in zip(*stretches, strict=True))
        found = cpu_ns_within(reader, tracks, np.full(len(stretches), process), start_ns, end_ns)
    return [int(value) for value in found]


def busy(recording: Recording, first_ns: int, last_ns: int, **more: Any) -> None:
    """A thread that is always on a CPU, with a sample each 10 ms."""
    for at_ns in range(first_ns, last_ns + 1, 10 * MS):
        recording.add_sample(None, 10 * MS, at_ns, **more)


def test_a_thread_that_is_always_busy_used_as_much_as_there_was() -> None:
    recording = Recording()
    busy(recording, 110 * MS, 500 * MS)

    assert cpu_ns(recording, [(200 * MS, 300 * MS), (203 * MS, 207 * MS), (0, 1000 * MS), (600 * MS, 700 * MS)]) == [
        100 * MS, 4 * MS, 400 * MS, 0,
    ]  # fmt: skip


def test_what_a_thread_used_lies_outside_of_its_measured_waits() -> None:
    """10 ms of CPU time, in the middle of which it slept for 80 ms; a wait that only stands for
    others says nothing.
    """
    recording = Recording()
    busy(recording, 110 * MS, 200 * MS)
    recording.add_sample(None, 80 * MS, 205 * MS, kind="offcpu", state="sleep")
    recording.add_sample(None, 500 * MS, 150 * MS, kind="offcpu", state="preempted", exact=False)
    recording.add_sample(None, 10 * MS, 290 * MS)

    assert cpu_ns(
        recording, [(200 * MS, 205 * MS), (205 * MS, 285 * MS), (285 * MS, 290 * MS)]
    ) == [5 * MS, 0, 5 * MS]


def test_threads_of_a_process_add_up_and_those_of_others_do_not_count() -> None:
    recording = Recording()
    other_thread = recording.add_thread(0, 101, "second")
    elsewhere = recording.add_thread(recording.add_process(200), 200, "python")
    busy(recording, 110 * MS, 200 * MS)
    busy(recording, 110 * MS, 200 * MS, track=other_thread)
    recording.add_sample(None, 3 * MS, 150 * MS, track=other_thread, state="kernel")
    busy(recording, 150 * MS, 180 * MS, track=elsewhere)

    assert cpu_ns(recording, [(120 * MS, 200 * MS)]) == [163 * MS]
    assert cpu_ns(recording, [(100 * MS, 300 * MS)], process=1) == [40 * MS]
    assert cpu_ns(recording, [(100 * MS, 300 * MS)], process=9) == [UNKNOWN]


def test_without_samples_nothing_is_known() -> None:
    assert cpu_ns(Recording(), [(0, 10)]) == [UNKNOWN]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 200)), min_size=1, max_size=20),
    st.lists(st.integers(-50, 3000), min_size=2, max_size=8),
)
@pytest.mark.slow
def test_stretches_that_follow_each_other_add_up_to_the_whole(
    gaps: list[tuple[int, int]], bounds: list[int]
) -> None:  # fmt: skip
    """And none has more than it is long, of one thread."""
    recording, at_ms = Recording(), 100
    for used_ms, waited_ms in gaps:
        if waited_ms:
            recording.add_sample(None, waited_ms * MS, at_ms * MS, kind="offcpu")
        at_ms += used_ms + waited_ms
        recording.add_sample(None, used_ms * MS, at_ms * MS)
    edges = [0, *sorted(bound for bound in bounds if 0 < bound < at_ms), at_ms]
    stretches = [(a * MS, b * MS) for a, b in itertools.pairwise(edges)]
    found = cpu_ns(recording, stretches)

    assert abs(sum(found) - sum(used for used, _ in gaps) * MS) <= len(found)
    assert all(-1 <= used <= b - a + 1 for used, (a, b) in zip(found, stretches, strict=True))


def grown(readings: list[tuple[int, int]], *stretches: tuple[int, int]) -> list[int]:
    at_ns, values, start_ns, end_ns = (
        np.array(column, np.int64)
        for pairs in (readings, stretches)
        for column in zip(*pairs, strict=True)
    )
    return [int(value) for value in grown_within((at_ns, values), start_ns, end_ns)]


def test_growth_follows_a_straight_line_between_readings() -> None:
    readings = [(100, 0), (200, 50), (300, 50), (400, 90)]

    assert grown(readings, (100, 200), (150, 300), (100, 400), (200, 350)) == [50, 25, 90, 20]


def test_stretches_that_are_shorter_than_the_readings_are_apart_or_lie_outside_have_no_growth() -> (
    None
):
    readings = [(100, 0), (200, 50), (1000, 450)]

    # The last one is long enough for one of its ends only.
    assert grown(readings, (110, 190), (50, 250), (900, 1001), (150, 500)) == [UNKNOWN] * 4
    assert grown(readings, (100, 1000)) == [450]
    assert grown_within(None, np.array([0]), np.array([9])).tolist() == [UNKNOWN]
    assert grown([(100, 7)], (0, 500)) == [UNKNOWN]
