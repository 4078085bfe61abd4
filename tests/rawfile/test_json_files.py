"""The JSON files beside the raw files: any content is taken, and what cannot be used is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.open import open_run
from layerscope.rawfile.json_files import OPTIONS, SESSION, damage, read_options, read_session
from layerscope.rawfile.windows import RequestedWindow, of_options
from layerscope.recording.complete import COMPLETE
from layerscope.recording.reader import Reader
from tests.ingest.small_recording import write_with_raw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["max_size", "full", "step_mark", "window", "pid", "end_ns", "exit", "problems", "shifts_ns"]
)


@given(st.dictionaries(FIELDS, JSON) | JSON)
def test_any_json_gives_fields_of_the_right_types_or_none(
    tmp_path_factory: pytest.TempPathFactory, told: Any
) -> None:
    raw = tmp_path_factory.mktemp("raw")
    for name in (OPTIONS, SESSION):
        (raw / name).write_text(json.dumps(told))

    options, session = read_options(raw), read_session(raw)

    assert isinstance(options.get("max_size", 1.0), float)
    assert abs(session.get("end_ns", 0)) <= 2**63
    assert abs(session.get("exit") or 0) <= 2**31
    assert all(isinstance(problem["what"], str) for problem in session.get("problems", []))


def test_options_are_read_as_they_were_written(tmp_path: Path) -> None:
    told = {
        "max_size": 5e8,
        "step_mark": "train",
        "window": {"first": 3, "last": None, "every": 10},
    }
    (tmp_path / OPTIONS).write_text(json.dumps(told))

    assert of_options(read_options(tmp_path)) == RequestedWindow(first=3, every=10)
    assert read_options(tmp_path)["step_mark"] == "train"
    assert list(damage(tmp_path)) == []


@pytest.mark.parametrize("name", [OPTIONS, SESSION])
@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        "7",
        '{"max_size": "2GB", "end_ns": "now"}',
        '{"max_size": -1, "end_ns": 1e300}',
        '{"window": {"first": -1}, "end_ns": 9223372036854775808}',
        '{"step_mark": 3, "exit": 2147483648}',
        '{"full": null, "problems": [{"what": 3}]}',
        '{"window": [1], "problems": {"a": 1}}',
    ],
)
def test_a_recording_with_a_damaged_file_beside_the_raw_files_opens_and_says_so(
    name: str, content: str, tmp_path: Path
) -> None:
    run = write_with_raw(tmp_path / "train.layerscope")
    (run.raw / name).write_text(content)
    (run.path / COMPLETE).unlink()

    with Reader(open_run(run.path)) as reader:
        problems = reader.query("SELECT code, what, lost FROM problems").to_pylist()
        assert reader.rows("spans") == 16

    (problem,) = [
        problem
        for problem in problems
        if problem["code"] == f"{name.removesuffix('.json')}_damaged"
    ]
    assert f"{name} of the raw files is damaged" in problem["what"]
    assert problem["lost"]
