"""Processes in which a framework's own profiler records are read when that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.rawfile.log_files import profiled_pids
from layerscope.sources.raw import profile_files
from layerscope.sources.raw.folder import RawRecording
from layerscope.sources.raw.profile_files import ProfilesAhead, profiles_in
from tests.sources.test_xplane import Plane, message


def process_in(raw: Path, pid: int) -> None:
    folder = raw / f"host-{pid}-1000"
    folder.mkdir(parents=True)
    (folder / "spool").write_bytes(b"")


def test_a_process_that_is_profiled_is_not_read_before_the_end(tmp_path: Path) -> None:
    process_in(tmp_path, 7)
    process_in(tmp_path, 8)
    (tmp_path / "onnxruntime-8-1.profile").write_text("{}")

    assert profiled_pids(tmp_path) == {8}
    recording = RawRecording(tmp_path)
    held = {process.pid: process.is_held for process in recording.new_processes()}
    assert held == {7: False, 8: True}


def test_who_looks_while_it_grows_does_not_wait(tmp_path: Path) -> None:
    process_in(tmp_path, 8)
    (tmp_path / "onnxruntime-8-1.profile").write_text("{}")

    (process,) = RawRecording(tmp_path, is_live=True).new_processes()

    assert not process.is_held


def segment(raw: Path, number: int, events: int = 3) -> Path:
    """One that has ended."""
    plane = Plane("/host:CPU")
    plane.line(1, "python", 0, *(plane.event("dot", n, 1, hlo_op="dot") for n in range(events)))
    (raw / f"xplane_recorded-8-{number}.profile").write_text(
        '{"format": "xplane_recorded", "pid": 8, "is_whole": true}'
    )
    file = raw / f"xplane_recorded-8-{number}_segment.pb"
    file.write_bytes(message((1, plane.content())))
    return file


def test_segments_that_have_ended_are_read_beside_the_program(tmp_path: Path) -> None:
    segment(tmp_path, 1)
    still_written = segment(tmp_path, 2)
    still_written.rename(f"{still_written}.part")
    of_another = tmp_path / "onnxruntime-8-3.profile"
    of_another.write_text('{"format": "onnxruntime"}')
    of_another.with_name("onnxruntime-8-3_2026.json").write_text("[")
    ahead = ProfilesAhead()

    assert [ahead.read(tmp_path), ahead.read(tmp_path)] == [True, False]
    _, first, second = profiles_in(tmp_path)
    segment(tmp_path, 1).unlink()  # it is not read again
    ((content,), problems) = ahead.take(first)
    assert (content.names, len(content.start_ns), problems) == (["dot"], 3, [])
    assert ahead.take(second) == ([], [])


def test_what_is_read_beside_the_program_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_files, "_MOST_SPANS_AHEAD", 5)
    for number in (1, 2, 3):
        segment(tmp_path, number)
    ahead = ProfilesAhead()

    assert [ahead.read(tmp_path) for _ in range(3)] == [True, True, False]
    assert ahead.spans == 6
    assert len(ahead.take(list(profiles_in(tmp_path))[2])[0]) == 1
