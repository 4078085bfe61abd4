"""What resident memory is made of: hand-computed answers."""

from __future__ import annotations

from tests.analyse.test_tables import rows
from tests.recordings import Recording, S

MB = 1_000_000


def recording_with(anonymous: int) -> Recording:
    """Its resident memory is largest at two seconds."""
    recording = Recording()
    for name, value in (("anonymous", anonymous), ("file", 50 * MB), ("shared", 7 * MB)):
        readings = [(S, MB), (2 * S, value), (3 * S, MB)]
        recording.add_counter(0, f"rss_{name}_bytes", readings, "bytes")
    return recording


def parts(recording: Recording) -> dict[str, int]:
    return {row["part"]: row["bytes"] for row in rows(recording, "resident")}


def test_blocks_that_are_live_then_are_told_apart_from_what_else_malloc_has() -> None:
    recording = recording_with(400 * MB)
    recording.add_block(100 * MB, S, None)
    recording.add_block(20 * MB, S, 2 * S)
    recording.add_block(33 * MB, S, S // 2)  # has ended
    recording.add_block(34 * MB, 2 * S + 1, None)  # has not begun
    recording.add_block(35 * MB, S, None, device="cuda:0")
    recording.add_block(36 * MB, S, None, is_lost=True)
    recording.add_block(40 * MB, S, None, allocator="numpy")
    recording.add_counter(0, "in_use_bytes", [(S, 1), (2 * S - S // 3, 190 * MB)], domain="malloc")
    recording.add_counter(0, "free_bytes", [(2 * S - S // 3, 60 * MB)], domain="malloc")

    found = parts(recording)

    assert found == {
        "tensors": 120 * MB,
        "arrays": 40 * MB,
        "other blocks": 30 * MB,
        "free blocks": 60 * MB,
        "other anonymous": 150 * MB,
        "files": 50 * MB,
        "shared": 7 * MB,
    }
    assert sum(found.values()) == 457 * MB
    assert list(found) == [
        "tensors", "arrays", "other blocks", "free blocks", "other anonymous", "files", "shared",
    ]  # fmt: skip


def test_what_was_never_touched_is_said_and_the_parts_add_up() -> None:
    recording = recording_with(30 * MB)
    recording.add_block(100 * MB, S, None)

    found = parts(recording)

    assert found["not resident"] == -70 * MB
    assert sum(found.values()) == 87 * MB


def test_each_process_is_looked_at_when_it_has_most() -> None:
    recording = recording_with(30 * MB)
    worker = recording.add_process(200)
    for name in ("anonymous", "file", "shared"):
        readings = [(4 * S, 5 * MB), (5 * S, MB)]
        recording.add_counter(worker, f"rss_{name}_bytes", readings, "bytes")

    found = rows(recording, "resident")

    assert {(row["process"], row["at_ns"]) for row in found} == {(0, 2 * S), (worker, 4 * S)}
    assert sum(row["share"] for row in found if row["process"] == worker) == 1.0


def test_without_readings_there_is_no_row() -> None:
    assert rows(Recording(), "resident") == []


def test_what_tensors_gave_back_since_malloc_was_read_is_free() -> None:
    recording = recording_with(300 * MB)
    recording.add_block(100 * MB, S, None)
    recording.add_block(20 * MB, S, S - S // 4)  # live when malloc was read
    when = 2 * S - S // 3
    recording.add_counter(0, "in_use_bytes", [(when, 150 * MB)], domain="malloc")
    recording.add_counter(0, "free_bytes", [(when, 10 * MB)], domain="malloc")
    recording.add_counter(0, "python_bytes", [(when, 90 * MB)], domain="malloc")

    found = parts(recording)

    assert found["tensors"] == 100 * MB
    assert found["other blocks"] == 30 * MB
    assert found["free blocks"] == 30 * MB
    assert found["Python objects"] == 90 * MB
    assert found["other anonymous"] == 50 * MB
