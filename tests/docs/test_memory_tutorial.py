"""The tutorial about the peak of memory runs as it stands there, and finds what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.tutorials import Tutorial

pytestmark = pytest.mark.slow

MB = 1_000_000
# What PyTorch allocates beside the tensors of the program differs from version to version.
NEARLY = 0.1


def bytes_by(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["category"]: row["bytes"] for row in rows}


def nearly(size_mb: float) -> Any:
    return pytest.approx(size_mb * MB, rel=NEARLY)


def test_the_tutorial_finds_what_it_says(
    program_python: str, native_agent: Path, tmp_path: Path
) -> None:
    page = "tutorials/halve-the-peak.md"
    commands = Tutorial(page, ("train.py",), tmp_path, program_python)

    assert "12 steps" in commands.run().stderr
    before = bytes_by(commands.rows())
    assert sum(before.values()) == nearly(151)
    assert before["other"] == nearly(85)
    # What the pictures of the validation leave behind: of each block three results in 9 steps.
    rows, steps = 256, 9
    leak = commands.rows()
    gelu = {row["parent"] for row in leak if row["line"] == 13}
    of_blocks = [row for row in leak if row["node"] in gelu and row["name"] == "aten::gelu"]
    assert [row["total_bytes"] for row in of_blocks] == [rows * 512 * 4 * steps] * 8

    commands.run()  # the change
    commands.run()  # recorded again
    fixed = bytes_by(commands.rows())
    assert sum(fixed.values()) == nearly(47.4)
    assert fixed["activation"] == nearly(37.7)
    # The batch: 1024 rows of 128 numbers of 4 bytes, and as many digits of 8 bytes.
    assert fixed["input"] == 1024 * (128 * 4 + 8)
    assert fixed["parameter"] == before["parameter"]
    shown = commands.run().stdout
    assert "2.10 MB      aten::gelu > train.py:13\n" in shown
    assert "in step 1 (forward)" in shown

    commands.run()  # the change
    commands.run()  # recorded again
    changed = {row["name"]: row for row in commands.rows()}
    assert changed["Net"]["total_bytes"] < changed["Net"]["total_before_bytes"] / 2
    # The results of `up` and of gelu in a block that is done: 1024 rows of 512 numbers of 4 bytes.
    assert changed["Net.blocks.0"]["change_bytes"] == -2 * 1024 * 512 * 4
    verdicts = {row["name"]: row["verdict"] for row in commands.rows()}
    assert verdicts == {"peak": "smaller", "other": "gone", "activation": "smaller"}
    assert commands.left == []
