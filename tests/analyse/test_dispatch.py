"""Launching, running and waiting apart: hand-computed answers."""

from __future__ import annotations

import json

from tests.analyse.test_tables import rows
from tests.recordings import MS, Recording


def two_steps() -> Recording:
    """Steps of 10 ms: a call of 2 ms, 1 ms of something else, a wait; the work overlaps all."""
    recording = Recording()
    pool = recording.add_thread(0, 71, "tf_XLAEigen")
    recording.rows["args"] = [{"args": 0, "json": json.dumps({"hlo_op": "dot"})}]
    for number in range(2):
        begin = number * 10 * MS
        recording.add_step(number, begin, (0, 10 * MS, 0, 0, 0))
        recording.add_span("PjitFunction(step)", begin, 2 * MS, step=number)
        recording.add_span(
            "PjitFunction(step)", begin + MS // 2, MS, step=number, layer="ranges", kind="event"
        )
        wait = {"layer": "ranges", "kind": "event", "step": number}
        recording.add_span("CommonPjRtBuffer::Await", begin + 3 * MS, 5 * MS, **wait)
        for start_ms, last_ms in ((1, 3), (2, 2), (5, 4)):
            recording.add_span(
                "dot", begin + start_ms * MS, last_ms * MS, track=pool, args=0, step=number
            )
    return recording


def test_launching_running_and_waiting_are_apart() -> None:
    first, second = rows(two_steps(), "dispatch")

    assert first == {
        "process": 0, "step": 0, "start_ns": 0, "dur_ns": 10 * MS, "launches": 1, "launch_ns": 2 * MS,
        "run_ns": 7 * MS, "blocked_ns": 5 * MS, "idle_ns": 3 * MS, "ahead_ns": 2 * MS,
    }  # fmt: skip
    assert {**second, "step": 0, "start_ns": 0} == first


def test_a_wait_of_another_thread_is_not_one_of_the_step() -> None:
    recording = two_steps()
    other = recording.add_thread(0, 72, "loader")
    wait = {"layer": "ranges", "kind": "event", "track": other}
    recording.add_span("CommonPjRtBuffer::Await", 8 * MS, MS, **wait)

    assert rows(recording, "dispatch")[0]["blocked_ns"] == 5 * MS


def test_of_several_devices_a_wait_that_is_not_told_is_not_0() -> None:
    recording = two_steps()
    told = [{"hlo_op": "dot", "device_ordinal": device} for device in range(2)]
    recording.rows["args"] = [
        {"args": device, "json": json.dumps(one)} for device, one in enumerate(told)
    ]
    recording.add_span("dot", 9 * MS, MS, args=1, step=0)
    spans = recording.rows["spans"]
    (last,) = [one for one in spans if one["start_ns"] == 13 * MS]
    spans.remove(last)

    first, second = rows(recording, "dispatch")

    assert (first["blocked_ns"], first["ahead_ns"]) == (5 * MS, 3 * MS)
    assert (second["blocked_ns"], second["ahead_ns"]) == (None, None)
    assert second["idle_ns"] == 3 * MS


def test_a_program_that_launches_nothing_has_no_rows() -> None:
    recording = Recording()
    recording.add_step(0, 0, (0, 10 * MS, 0, 0, 0))
    recording.add_span("aten::mm", 0, MS, step=0)

    assert rows(recording, "dispatch") == []
