"""Compilations by function: hand-computed answers."""

from __future__ import annotations

import json

from tests.analyse.test_tables import rows
from tests.recordings import MS, Recording


def compiled(recording: Recording, name: str, start_ns: int, dur_ns: int, **told: str) -> None:
    known = recording.rows.setdefault("args", [])
    key = len(known)
    known.append({"args": key, "json": json.dumps({"domain": "d", **told})})
    recording.add_span(name, start_ns, dur_ns, layer="ranges", kind="task", args=key)


def test_compilations_are_summed_by_function_and_the_last_reason_is_told() -> None:
    recording = Recording()
    compiled(recording, "compile jit(step)", MS, 5 * MS, number="0", arguments="float32[3]")
    compiled(recording, "forward", 7 * MS, MS, number="0/0", line="a.py:3")
    compiled(recording, "compile jit(step)", 9 * MS, 2 * MS, number="1", reason="x: 3 → 4")
    compiled(recording, "a task of the program", 20 * MS, 9 * MS)

    first, second = rows(recording, "compilations")

    assert first == {
        "function": "jit(step)", "line": None, "count": 2, "total_ns": 7 * MS, "max_ns": 5 * MS, "first_ns": MS,
        "last_ns": 9 * MS, "arguments": "float32[3]", "reason": "x: 3 → 4",
    }  # fmt: skip
    assert (second["function"], second["line"], second["reason"]) == ("forward", "a.py:3", None)
