"""Samples that stand beside the events of a trace in Chrome's format, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.sources import chrome
from tests.sources.test_speedscope import weights

FRAMES = {
    "1": {"name": "main", "category": "app"},
    "2": {"name": "train", "parent": 1, "url": "train.py", "line": 7},
    "3": {"name": "lost", "parent": "none"},
    "4": {"name": "circle", "parent": 5},
    "5": {"name": "other circle", "parent": 4},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sample(at_us: Any, frame: Any, tid: Any = "8") -> dict[str, Any]:
    return {"cpu": "-1", "name": "", "ts": at_us, "pid": 7, "tid": tid, "weight": "1", "sf": frame}


def trace(path: Path, *samples: Any, frames: Any = FRAMES) -> Path:
    named = {"ph": "M", "pid": 7, "tid": "8", "name": "thread_name", "args": {"name": "loop"}}
    span = {"ph": "X", "pid": 7, "tid": "8", "name": "a", "ts": 1000, "dur": 5}
    whole = {"traceEvents": [named, span], "samples": samples, "stackFrames": frames}
    path.write_text(json.dumps(whole))
    return path


def test_samples_become_stacks_until_the_next_of_their_thread(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "trace.json",
        sample("1002.125", 2),
        sample(1000, 1),
        sample("1010", 3),
        sample(1000, 1, tid=9),
    )
    found = chrome.read(path)
    assert weights(found) == {"main": 2_125 + 1_000_000, "main;train": 7_875, "lost": 2_125}
    assert not found.problems
    with Reader(open_run(path)) as reader:
        query = "SELECT t.name, s.at_ns FROM samples s JOIN tracks t USING (track) ORDER BY 1, 2"
        assert list(reader.query(query).to_pydict().values()) == [
            ["loop", "loop", "loop", "thread 9"],
            [0, 2_125, 10_000, 0],
        ]
        places = "SELECT file, line, layer FROM frames WHERE name = 'train'"
        assert reader.query(places).to_pylist() == [
            {"file": "train.py", "line": 7, "layer": "python"}
        ]


def test_samples_without_a_time_or_a_stack_are_counted(tmp_path: Path) -> None:
    bad = (sample("soon", 1), sample(None, 1), sample("1e99", 1), sample(1, 99), sample(1, None))
    path = trace(tmp_path / "trace.json", *bad, sample(2, 4), sample(3, 5), "x", sample(4, 1))
    found = chrome.read(path)
    assert list(weights(found)) == ["main"]
    (problem,) = found.problems
    assert problem.what == "8 samples of the trace have a time or a stack that cannot be"


@pytest.mark.parametrize("frames", [[], None, {"1": 5}])
def test_samples_without_frames_are_none(tmp_path: Path, frames: Any) -> None:
    path = trace(tmp_path / "trace.json", sample(1, 1), frames=frames)
    assert chrome.read(path).stacks is None
