"""What the names of several processes become in one recording."""

from __future__ import annotations

import numpy as np

from layerscope.ingest.string_table import ProcessStrings, StringTable

NET, CONV = "Net\nNet\n/a/train.py:9", "Net.body.conv\nConv2d\n/a/train.py:5"


def test_the_same_path_and_class_is_one_module_in_every_process() -> None:
    texts = StringTable()
    one = ProcessStrings(texts, ["(other names)", NET, CONV, "aten::add"])
    other = ProcessStrings(
        texts, ["(other names)", "Net.body.conv\nConv2d\n/b/else.py:1", "Net\nOther\n"]
    )

    assert one.modules(np.array([0, 2, 1, 2], np.uint32)).tolist() == [-1, 1, 0, 1]
    assert other.modules(np.array([1, 2, 0], np.uint32)).tolist() == [1, 2, -1]
    assert texts.module_rows() == [
        {"module": 0, "parent": None, "path": "Net", "class": "Net", "line": "/a/train.py:9"},
        {
            "module": 1,
            "parent": 0,
            "path": "Net.body.conv",
            "class": "Conv2d",
            "line": "/a/train.py:5",
        },
        {"module": 2, "parent": None, "path": "Net", "class": "Other", "line": None},
    ]


def test_parents_are_the_nearest_that_were_called() -> None:
    texts = StringTable()
    paths = [
        "Net",
        "Net.a.b.c",
        "Net.a.b",
        "Net#2.a",
        "Net.(Tanh)",
        "Net.(Seq).0",
        "Net.(Seq)",
        "Ne",
        "Net.a.bc",
    ]
    process = ProcessStrings(texts, ["", *(f"{path}\nKind\n" for path in paths)])
    process.modules(np.arange(len(paths) + 1, dtype=np.uint32))

    rows = {row["path"]: row["parent"] for row in texts.module_rows()}
    assert rows == {
        "Net": None, "Net.a.b": 0, "Net.a.b.c": 2, "Net#2.a": None, "Net.(Tanh)": 0, "Net.(Seq)": 0,
        "Net.(Seq).0": 6, "Ne": None, "Net.a.bc": 0,
    }  # fmt: skip


def test_names_that_were_lost_or_come_late_have_no_module() -> None:
    texts = StringTable()
    known = ["(other names)", NET]
    process = ProcessStrings(texts, known)

    assert process.modules(np.array([1, 5], np.uint32)).tolist() == [0, -1]
    assert process.first_lines(np.array([1, 5], np.uint32)).tolist() == [0, 1]
    assert list(texts.names) == ["Net", "(name lost)"]
    known += ["task\nmine", "task\nyours", "task"]
    assert process.first_lines(np.array([2, 3, 4], np.uint32)).tolist() == [2, 2, 2]
    assert process.domains(np.array([2, 3, 4, 2], np.uint32)).tolist() == [0, 1, -1, 0]
    assert [row["json"] for row in texts.args_rows()] == [
        '{"domain": "mine"}',
        '{"domain": "yours"}',
    ]


def test_whole_texts_stay_whole_for_operators() -> None:
    texts = StringTable()
    process = ProcessStrings(texts, ["", "a\nb", "a"])

    assert process.names(np.array([1, 2, 1], np.uint32)).tolist() == [0, 1, 0]
    assert process.names(np.zeros(0, np.uint32)).tolist() == []
    assert list(texts.names) == ["a\nb", "a"]
