"""A part of a recording: the spans of some steps, or whole steps that stand for others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.analyse.kept_spans import StepsReader, ThinnedReader, part_of
from layerscope.model.errors import UsageError
from layerscope.recording import thinning
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording

STEP_NS = 10 * MS
COLUMNS = ["span", "track", "start_ns", "name", "step", "weight"]


def stepped(steps: int, spans: int = 3, processes: int = 1) -> Recording:
    """Steps with spans called by their number, and one span around all of them in each process."""
    recording = Recording()
    for process in range(processes):
        track = recording.thread
        if process:
            track = recording.add_thread(recording.add_process(100 + process), 100, "python")
        recording.add_span("around", 0, steps * STEP_NS, track=track)
        for step in range(steps):
            start_ns = step * STEP_NS
            recording.add_step(step, start_ns, (0, STEP_NS, 0, 0, 0), process=process)
            for span in range(spans):
                recording.add_span(
                    f"op {span} of {step}", start_ns + span * MS, MS, track=track, step=step
                )
            stack = recording.add_stack("python train train.py:1")
            recording.add_sample(stack, at_ns=start_ns + MS, track=track, step=step)
    return recording


def names_of(found: dict[str, Any]) -> list[str]:
    return [str(found["name.names"][code]) for code in found["name"].tolist()]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(stepped(20, processes=2).write(tmp_path / "train.layerscope"))


def test_of_some_steps_there_are_their_spans_and_samples(reader: Reader) -> None:
    part = StepsReader(reader, 3, 5)

    found = part.arrays("spans", COLUMNS)
    expected = [f"op {span} of {step}" for step in (3, 4) for span in range(3)]
    assert Counter(names_of(found)) == Counter(expected * 2)
    assert sorted(found["name.names"]) == sorted(expected)  # of others not even the name
    assert set(found["weight"].tolist()) == {1}
    samples = part.arrays("samples", ["at_ns", "track"])
    assert sorted(samples["at_ns"].tolist()) == sorted([3 * STEP_NS + MS, 4 * STEP_NS + MS] * 2)
    assert "the steps 3 to 4" in part.note
    assert list(found) == ["span", "track", "start_ns", "name.names", "name", "step", "weight"]


def test_other_tables_are_whole(reader: Reader) -> None:
    part = StepsReader(reader, 3, 4)

    assert len(part.arrays("steps", ["step"])["step"]) == 40
    assert part.query("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": 122}]
    assert "of step 3;" in part.note


def test_steps_that_there_are_not_are_refused(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--steps 20:30 holds no step .* the steps 0 to 19"):
        part_of(reader, range(20, 30), 10**6, "")
    without = Reader(Recording().write(tmp_path / "other.layerscope"))
    with pytest.raises(UsageError, match="it has no steps, leave --steps out"):
        part_of(without, range(1), 10**6, "")


def test_steps_with_too_many_spans_are_refused(reader: Reader) -> None:
    assert part_of(reader, range(2), 12, "") is not None
    with pytest.raises(UsageError, match="--steps 0:2 holds 12 spans, and the page at most 11"):
        part_of(reader, range(2), 11, "")


def test_what_fits_is_all_there(reader: Reader) -> None:
    assert part_of(reader, None, 122, "") is None
    part = part_of(reader, None, 121, "layerscope view")
    assert part is not None
    assert part.note.endswith("; layerscope view shows all of it.")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(most=st.integers(1, 121))
def test_whole_steps_stay_and_stand_for_the_others(reader: Reader, most: int) -> None:
    found = ThinnedReader(reader, most).arrays("spans", COLUMNS)

    step = found["step"]
    outside = step < 0
    assert outside.sum() == 2  # what lies around the steps stays, for itself
    assert set(found["weight"][outside].tolist()) == {1}
    for track in np.unique(found["track"]).tolist():
        rows = (found["track"] == track) & ~outside
        kept, counts = np.unique(step[rows], return_counts=True)
        assert set(counts.tolist()) == {3}
        assert {0, 19} <= set(kept.tolist())
        weights = {int(at): int(found["weight"][rows & (step == at)][0]) for at in kept}
        assert sum(weights.values()) == 20
        assert weights[0] == weights[19] == 1
        for at, weight in weights.items():
            assert set(found["weight"][rows & (step == at)].tolist()) == {weight}
    least = 2 + 2 * 3 * 3  # the first, the last, and one of those between, of both
    assert len(step) <= max(most, least)


def test_the_note_says_how_many_are_left_and_for_how_many_they_stand(reader: Reader) -> None:
    part = ThinnedReader(reader, 70)

    spans = len(part.arrays("spans", ["span"])["span"])
    assert part.note.startswith(
        f"The page has {spans} of 122 spans: {(spans - 2) // 3} whole steps of 40, of which one stands "
        "for up to 2."
    )


def test_slices_of_other_processes_are_not_called_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the workers that load data."""
    recording = stepped(20)
    worker = recording.add_thread(recording.add_process(200), 200, "worker")
    for span in range(100):
        recording.add_span("load", span * MS, MS // 2, track=worker)
    run = recording.write(tmp_path / "train.layerscope")

    one = ThinnedReader(Reader(run), 140).note
    monkeypatch.setattr(thinning, "SLICE_SPANS", 10)
    other = ThinnedReader(Reader(run), 100).note

    assert " whole steps of 20, of which one stands for up to " in one
    assert "slices" not in one  # the only one stays
    assert " whole steps of 20, " in other
    assert ", and of processes without steps 6 whole slices of time of 10. Its tables" in other


def test_without_steps_slices_of_time_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "SLICE_SPANS", 10)
    recording = Recording()
    for span in range(1000):
        recording.add_span("op", span * MS, MS // 2)
    reader = Reader(recording.write(tmp_path / "train.layerscope"))

    part = ThinnedReader(reader, 300)

    found = part.arrays("spans", COLUMNS)
    assert len(found["span"]) <= 300
    assert found["weight"].sum() == 1000
    assert "whole slices of time of 100" in part.note


def test_weights_of_a_thinned_recording_are_taken_on(tmp_path: Path) -> None:
    recording = stepped(16)
    for row in recording.rows["steps"]:
        row["weight"] = 1 if row["step"] in (0, 15) else 4
    for span in recording.rows["spans"]:
        span["weight"] = 1 if span["step"] in (None, 0, 15) else 4
    before = sum(span["weight"] for span in recording.rows["spans"])
    reader = Reader(recording.write(tmp_path / "train.layerscope"))

    found = ThinnedReader(reader, 30).arrays("spans", COLUMNS)

    assert found["weight"].sum() == before
    assert set(found["weight"].tolist()) == {1, 8}


def test_one_step_that_is_too_large_stays(tmp_path: Path) -> None:
    reader = Reader(stepped(1, spans=50).write(tmp_path / "train.layerscope"))

    assert len(ThinnedReader(reader, 10).arrays("spans", ["span"])["span"]) == 51
