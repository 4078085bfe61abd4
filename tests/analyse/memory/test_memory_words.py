"""What the summary and the tables say of memory in words: of trainings that were never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import diff, tables
from layerscope.analyse.diff import conditions
from layerscope.analyse.stacks import graphs
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.summary import summarise
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show.summary import text
from tests.analyse.memory.made import FOREVER, allocate, start_of, training
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


def notes(recording: Recording, folder: Path) -> str:
    """What stands below the table of the peak."""
    with Reader(recording.write(folder)) as reader:
        return " ".join(tables.build(reader, "peak").notes)


def kept(**more: Any) -> Recording:
    """A training with a line that keeps what it allocates."""
    recording = training()
    for step in range(30):
        allocate(recording, start_of(step) + 80, FOREVER, 1000, **{"line": "kept.py:1", **more})
    return recording


@pytest.mark.parametrize("line", ["kept.py:1", ""])
def test_a_line_that_nobody_knows_is_not_named(tmp_path: Path, line: str) -> None:
    said = summary(kept(line=line), tmp_path / "summary")
    said += notes(kept(line=line), tmp_path / "notes")

    for sentence in ("; most of", "Leak: ", "Live memory grows by"):
        assert (sentence in said) is bool(line)
    assert "not known" not in said


def test_without_steps_and_without_times_nothing_is_said_of_them(tmp_path: Path) -> None:
    recording = Recording()
    for size in (7, 8):
        allocate(recording, 10, FOREVER, size)
    timed = Recording()
    for at_ns in (7, 8):
        allocate(timed, at_ns, FOREVER, 1)

    assert notes(recording, tmp_path / "notes") == "The peak is 15 bytes."
    assert "Tensors: 15 bytes at the peak: most of train.py:1: 15 bytes" in summary(
        recording, tmp_path / "summary"
    )
    assert notes(timed, tmp_path / "timed") == "The peak is 2 bytes, 8 ns after the start."
    with Reader(recording.write(tmp_path / "live")) as reader:
        assert graphs.build(reader, Look("live")).notes == ()
    with Reader(timed.write(tmp_path / "timed_live")) as reader:
        (said,) = graphs.build(reader, Look("live")).notes
    assert said.endswith(" is 8 ns after its start.")


@pytest.mark.parametrize(
    ("rank", "device", "whose"),
    [(None, "cpu", "of pid 200"), (1, "cpu", "of rank 1"), (1, "cuda:0", "of rank 1 on cuda:0")],
)
def test_the_process_and_the_device_are_named_where_there_are_several(
    tmp_path: Path, rank: int | None, device: str, whose: str
) -> None:
    recording = training(10)
    thread = recording.add_thread(recording.add_process(200, rank=rank), 200, "rank")
    allocate(recording, 50, 60, 50_000, track=thread, device=device)

    assert f"Tensors: 50.0 kB at the peak {whose}, after" in summary(
        recording, tmp_path / "summary"
    )
    assert f"The peak {whose} is 50.0 kB, 50 ns after" in notes(recording, tmp_path / "notes")


@pytest.mark.parametrize("is_one", [True, False])
def test_only_processes_are_told_apart_by_process(folder: Path, is_one: bool) -> None:
    recording = training(10)
    other = recording.add_thread(recording.add_process(200), 200, "rank")
    thread = recording.thread if is_one else other
    allocate(recording, 50, 60, 50_000, track=thread, device="cuda:0")

    with Reader(recording.write(folder)) as reader:
        (said,) = graphs.build(reader, Look("live")).notes

    assert said.startswith("Added up are 2 processes and devices")
    assert said.endswith("--by process has them apart.") is not is_one
