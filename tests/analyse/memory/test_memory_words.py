"""What the summary and the tables say of memory in words: of trainings that were never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.show.summary import text
from tests.analyse.memory.made import FOREVER, allocate, training
from tests.recordings import Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made.layerscope"


def summary(recording: Recording, folder: Path) -> str:
    """The summary on one line."""
    with Reader(recording.write(folder)) as reader:
        return " ".join(text(summarise(reader)).split())


def test_what_is_not_of_tensors_alone_is_called_memory(folder: Path) -> None:
    recording = training(10)
    allocate(recording, 5, FOREVER, 2000, allocator="numpy")

    said = summary(recording, folder)

    assert "Memory: 5.57 kB at the peak" in said
    assert "Tensors:" not in said
