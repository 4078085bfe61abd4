"""The names of oneDNN's own code: asked for, taken, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.collect import jit_maps
from layerscope.collect.jit_maps import FOLDER, take, variables

LINES = "7f0000001000 100 jit_uni_reorder_kernel_f32.1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "raw" / "my-host-4242-17").mkdir(parents=True)
    (tmp_path / "raw" / "my-host-4242-17" / "spool").touch()
    (tmp_path / "maps").mkdir()
    monkeypatch.setattr(jit_maps, "_MAPS", tmp_path / "maps")
    return tmp_path


def test_what_the_user_has_set_stays() -> None:
    assert variables({}) == {"ONEDNN_JIT_PROFILE": "2"}
    assert variables({"ONEDNN_JIT_PROFILE": "0"}) == {}
    assert variables({"DNNL_JIT_PROFILE": "1"}) == {}


def test_the_map_of_a_process_is_taken_and_goes(place: Path) -> None:
    mine, other = place / "maps" / "perf-4242.map", place / "maps" / "perf-1.map"
    for file in (mine, other):
        file.write_text(LINES)

    take(place / "raw", 0, removes=True)

    assert (place / "raw" / FOLDER / "perf-4242.map").read_text() == LINES
    assert not mine.exists()
    assert other.exists()
    assert not (place / "raw" / FOLDER / "perf-1.map").exists()


def test_what_was_not_asked_for_by_us_or_is_of_python_stays(place: Path) -> None:
    mine = place / "maps" / "perf-4242.map"
    mine.write_text(LINES)
    take(place / "raw", 0, removes=False)
    assert mine.exists()

    mine.write_text(LINES + "7f0000002000 10 py::train:/a/train.py\n")
    take(place / "raw", 0, removes=True)
    assert mine.exists()
    assert "py::" in (place / "raw" / FOLDER / "perf-4242.map").read_text()


def test_an_old_file_and_a_link_are_left_alone(place: Path) -> None:
    mine = place / "maps" / "perf-4242.map"
    mine.write_text(LINES)
    os.utime(mine, (1, 1))
    take(place / "raw", 1000, removes=True)
    assert mine.exists()

    mine.rename(place / "elsewhere")
    mine.symlink_to(place / "elsewhere")
    take(place / "raw", 0, removes=True)
    assert mine.is_symlink()
    assert not (place / "raw" / FOLDER).exists()
