"""Shapes of inputs in words, and the table of operators by shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.shapes import words
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from tests.recordings import Recording


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"shapes": [[64, 1, 28], [], None], "dtypes": ["float32", "int64", None]}, "float32[64, 1, 28], int64[]"),
        ({"shapes": [[2], None, None], "dtypes": ["bool", "bool", "int"]}, "bool[2]"),
        ({"shapes": [[[2, 3], [0]], None], "dtypes": [["float32", "int8"], "int"]}, "(float32[2, 3], int8[0])"),
        ({"shapes": [[2], [None, [1]]], "dtypes": ["float32", [None, "int64"]]}, "float32[2], (None, int64[1])"),
        ({"shapes": [[2], []], "dtypes": ["float32", []]}, "float32[2], ()"),
        ({"shapes": ["?"], "dtypes": ["float32"]}, "float32[?]"),
        ({"shapes": [[[1], [2]]], "dtypes": [["int8", "int8"]], "cut": True}, "(int8[1], int8[2]), ..."),
        ({"shapes": None, "dtypes": None}, "not known"),
        ({"shapes": [[2]]}, "[2]"),
        ({"shapes": [[2]], "dtypes": []}, "not known"),
        ({"shapes": 7, "dtypes": 7}, "not known"),
    ],
)  # fmt: skip
def test_the_tensors_of_a_call_in_words(told: dict[str, object], shown: str) -> None:
    assert words(json.dumps(told)) == shown


def test_text_that_is_no_json_is_not_known() -> None:
    assert words('{"shapes": [[2') == "not known"


def shaped() -> Recording:
    """Three calls of one operator with two shapes of tensors, one of them with two kinds of
    scalars; one without.
    """
    recording = Recording()
    texts = [
        {"shapes": [[2, 3], None], "dtypes": ["float32", "int"]},
        {"shapes": [[2, 3], None], "dtypes": ["float32", None]},
        {"shapes": [[4], None], "dtypes": ["float32", "int"]},
    ]
    recording.rows["args"] = [
        {"args": key, "json": json.dumps(told)} for key, told in enumerate(texts)
    ]
    for at, (args, dur_ns) in enumerate([(0, 10), (1, 20), (2, 40), (None, 80)]):
        recording.add_span("op", 100 * at, dur_ns, args=args)
    recording.add_span("task", 500, 7, args=None, layer="ranges")
    return recording


def by_shape(recording: Recording, folder: Path) -> list[dict[str, Any]]:
    """The table of operators by shape."""
    with Reader(recording.write(folder / "a.layerscope")) as reader:
        result = tables.build(reader, "operators", "shape")
        rows: list[dict[str, Any]] = (
            result.relation.order(result.order).to_arrow_table().to_pylist()
        )
    return rows


def test_calls_with_the_same_tensors_are_one_row(tmp_path: Path) -> None:
    rows = by_shape(shaped(), tmp_path)

    assert [(row["shape"], row["name"], row["count"], row["self_ns"]) for row in rows] == [
        ("no tensors", "op", 1, 80), ("float32[4]", "op", 1, 40), ("float32[2, 3]", "op", 2, 30),
    ]  # fmt: skip


def test_a_recording_without_shapes_says_how_to_get_them(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 0, 1)
    recording.rows["args"] = [{"args": 0, "json": '{"domain": "mine"}'}]

    with pytest.raises(UsageError) as refused:
        by_shape(recording, tmp_path)

    assert str(refused.value) == (
        "operators cannot be shown by shape: no layer recorded the shapes of inputs. "
        "Record them: layerscope run --shapes train.py, or with record_shapes=True of the "
        "framework's profiler"
    )


def test_a_recording_that_could_not_have_shapes_says_why(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 0, 1)
    recording.add_problem("operators", "there is no C++ compiler", "install g++")
    recording.rows["problems"][0]["code"] = "shapes_not_built"

    with pytest.raises(UsageError, match=r"by shape: there is no C\+\+ compiler\. Install g\+\+$"):
        by_shape(recording, tmp_path)
