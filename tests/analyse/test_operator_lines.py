"""Lines of operators in the table of operators."""

from __future__ import annotations

from tests.analyse.test_tables import result_of, rows
from tests.recordings import MS, Recording, S


def test_an_operator_has_the_same_line_in_both_tables() -> None:
    """By what was sampled in its module, else where that was called; by ranges their own line,
    whatever was sampled.
    """
    recording = Recording()
    recording.rows["modules"] = [
        {"module": 0, "parent": None, "path": "Net", "class": "Net", "line": "train.py:7"},
        {"module": 1, "parent": 0, "path": "Net.fc", "class": "Linear", "line": "net.py:4"},
    ]
    for name, module, dur_ms in (
        ("aten::add", None, 9), ("aten::add", 0, 2), ("aten::mm", 1, 3), ("aten::exp", 0, 1), ("aten::never", None, 1),
    ):  # fmt: skip
        recording.add_span(
            name, len(recording.rows.get("spans", [])) * S, dur_ms * MS, module=module
        )
    recording.add_span("loss", 50 * S, MS, kind="range", line="train.py:99")
    outside = ("python <module> train.py:12",)
    recording.add_sample(recording.add_stack(*outside, "operators aten::add"))
    recording.add_sample(recording.add_stack(*outside, "operators loss"))
    inside = ("python <module> train.py:7", "modules Net", "python forward net.py:2")
    for operator in ("aten::add", "aten::add", "aten::exp"):
        recording.add_sample(recording.add_stack(*inside, f"operators {operator}"))

    plain, by_line = rows(recording, "operators"), rows(recording, "operators", "line")

    assert {row["name"]: row["line"] for row in plain} == {
        "aten::add": "train.py:12", "aten::mm": "net.py:4", "aten::exp": "net.py:2", "aten::never": None,
        "loss": "train.py:99",
    }  # fmt: skip
    assert sorted((row["name"], row["line"], row["count"]) for row in by_line) == [
        ("aten::add", "net.py:2", 1), ("aten::add", "train.py:12", 1), ("aten::exp", "net.py:2", 1),
        ("aten::mm", "net.py:4", 1), ("aten::never", "not known", 1), ("loss", "train.py:99", 1),
    ]  # fmt: skip


def test_calls_of_an_operator_from_several_lines_are_divided_as_its_samples_are() -> None:
    recording = Recording()
    for call in range(8):
        recording.add_span("aten::add", call * S, (4 + call % 2) * MS)
    for line, samples in ((5, 3), (9, 1)):
        stack = recording.add_stack(f"python <module> train.py:{line}", "operators aten::add")
        for _ in range(samples):
            recording.add_sample(stack)

    result = result_of(recording, "operators", "line")
    found = [
        (row["line"], row["count"], row["total_ns"], row["avg_ns"], row["max_ns"])
        for row in rows(recording, "operators", "line")
    ]
    assert found == [
        ("train.py:5", 6, 27 * MS, 4_500_000, 5 * MS),
        ("train.py:9", 2, 9 * MS, 4_500_000, 5 * MS),
    ]
    assert any("several lines" in note for note in result.notes)
    [plain] = rows(recording, "operators")
    assert (plain["count"], plain["line"]) == (8, "train.py:5")
