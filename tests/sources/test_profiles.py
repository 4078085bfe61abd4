"""Processes in which a framework's own profiler records are read when that has ended."""

from __future__ import annotations

from pathlib import Path

from layerscope.rawfile.log_files import profiled_pids
from layerscope.sources.raw.folder import RawRecording
from layerscope.sources.raw.followed_segments import may_be_followed
from layerscope.sources.raw.profile_files import profiles_in


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


def test_what_is_still_written_is_no_file_of_a_profile(tmp_path: Path) -> None:
    told = tmp_path / "xplane_recorded-8-1.profile"
    told.write_text('{"format": "xplane_recorded", "pid": 8, "is_whole": true}')
    of_another = tmp_path / "onnxruntime-9-3.profile"
    of_another.write_text('{"format": "onnxruntime"}')
    content = tmp_path / "xplane_recorded-8-1_segment.pb"
    part = content.with_name(content.name + ".part")
    part.write_bytes(b"")

    assert [one.has_ended for one in profiles_in(tmp_path)] == [False, False]
    assert [one.path for one in profiles_in(tmp_path, pid=8)] == [told]
    part.rename(content)
    (segment,) = profiles_in(tmp_path, known={of_another})
    assert segment.has_ended


def test_a_process_whose_profiles_are_segments_is_followed(tmp_path: Path) -> None:
    process_in(tmp_path, 8)
    (tmp_path / "xplane_recorded-8-0.profile").write_text('{"tasks": []}')
    (tmp_path / "xplane_recorded-8-1.profile").write_text('{"is_whole": true}')
    assert may_be_followed(tmp_path, 8)

    (process,) = RawRecording(tmp_path).new_processes()
    assert not process.is_held
    assert process.late is not None
    (tmp_path / "onnxruntime-8-1.profile").write_text("{}")
    assert not may_be_followed(tmp_path, 8)
