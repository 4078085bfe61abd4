"""CPU time of all CPUs and of some of them, as /proc/stat tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.host import noise

STAT = """cpu  30 0 12 1000 8 0 0 4 3 0
cpu0 10 0 4 300 2 0 0 1 1 0
cpu1 15 0 5 300 3 0 0 2 2 0
cpu12 5 0 3 400 3 0 0 1 0 0
intr 1 2 3
"""


@pytest.mark.parametrize(
    ("cpus", "answer"),
    [
        (None, noise.CpuTime(1054, 1008, 4)), ((1,), noise.CpuTime(325, 303, 2)), ((0, 12), noise.CpuTime(729, 705, 2)),
        # A container may be shown others than it runs on.
        ((2, 3), None), ((), None),
    ],
)  # fmt: skip
def test_the_time_of_some_cpus(
    tmp_path: Path, cpus: tuple[int, ...] | None, answer: noise.CpuTime | None
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    assert noise.cpu_time(tmp_path, cpus) == answer


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2 3\n", "cpu  1 2 3 x 5 6 7 8\n", "cpu  1 2 3 -4 5 6 7 8\n", "\n\n"]
)
def test_what_cannot_be_read_is_not_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(text)
    assert noise.cpu_time(tmp_path) is None
