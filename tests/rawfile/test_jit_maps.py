"""The maps for perf of code that is made while the program runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.rawfile import jit_maps
from layerscope.rawfile.jit_maps import FOLDER, take

LINES = "7f0000001000 100 jit_uni_reorder_kernel_f32.1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "raw" / "my-host-4242-17").mkdir(parents=True)
    (tmp_path / "raw" / "my-host-4242-17" / "spool").touch()
    (tmp_path / "maps").mkdir()
    monkeypatch.setattr(jit_maps, "_MAPS", tmp_path / "maps")
    return tmp_path


def test_the_map_of_a_process_is_copied(place: Path) -> None:
    mine, other = place / "maps" / "perf-4242.map", place / "maps" / "perf-1.map"
    for file in (mine, other):
        file.write_text(LINES)

    take(place / "raw", 0)

    assert (place / "raw" / FOLDER / "perf-4242.map").read_text() == LINES
    assert mine.exists()
    assert not (place / "raw" / FOLDER / "perf-1.map").exists()


def test_an_old_file_and_a_link_are_left_alone(place: Path) -> None:
    mine = place / "maps" / "perf-4242.map"
    mine.write_text(LINES)
    os.utime(mine, (1, 1))
    take(place / "raw", 1000)
    assert mine.exists()

    mine.rename(place / "elsewhere")
    mine.symlink_to(place / "elsewhere")
    take(place / "raw", 0)
    assert mine.is_symlink()
    assert not (place / "raw" / FOLDER).exists()
