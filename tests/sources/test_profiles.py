"""Processes in which a framework's own profiler records are read when that has ended."""

from __future__ import annotations

from pathlib import Path

from layerscope.rawfile.log_files import profiled_pids
from layerscope.sources.raw.folder import RawRecording


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
