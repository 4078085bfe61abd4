"""What the summary and the tables say of memory in words: of trainings that were never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse import diff, tables
from layerscope.analyse.diff import conditions
from layerscope.analyse.summary import summarise
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
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


@pytest.mark.parametrize("code", ["blocks_left_out", "blocks_of_windows", "releases_lost"])
def test_where_blocks_are_missing_the_peak_is_at_least_what_is_known(
    tmp_path: Path, code: str
) -> None:
    part = training(10)
    part.add_problem("memory", "blocks are missing", "record all steps", "blocks", code)
    whole, folder = tmp_path / "a.layerscope", tmp_path / "b.layerscope"

    assert "Tensors: at least 3.57 kB at the peak" in summary(part, folder)
    with Reader(Run.open(folder)) as b, Reader(training(10).write(whole)) as a:
        assert "The peak is at least 3.57 kB" in tables.build(b, "peak").notes[0]
        made = diff.build(a, b, ("a", "b"), ["memory"])
        assert (
            "The peak of live memory was 3.57 kB in A and is at least 3.57 kB in B: the same is "
            "known of both."
        ) in made.notes
        with pytest.raises(
            UsageError, match=r"at least 3.57 kB, .* blocks are missing; record all"
        ):
            conditions.judge(conditions.parse("peak>5%"), made)
