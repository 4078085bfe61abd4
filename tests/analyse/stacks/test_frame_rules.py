"""What a report knows of each frame, to build trees of samples that somebody chooses there."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse.stacks.frame_rules import (
    BODY,
    MACHINERY,
    MINE,
    SYSTEM,
    TEAM,
    THREAD,
    frame_rules,
)
from layerscope.model.sample_tables import LEFT_OUT
from layerscope.recording.reader import Reader
from tests.recordings import Recording

LIBRARY = "/usr/lib/python3.11/site-packages/numpy/__init__.py"


def test_the_rules_of_frames(tmp_path: Path) -> None:
    recording = Recording()
    stack = recording.add_stack(
        "python main a.py:5",
        "python main a.py:7",
        "python _find_and_load <frozen importlib._bootstrap>:1",
        f"python <module> {LIBRARY}:1",
        "native start_thread libc.so.6",
        "native gomp_thread_start libgomp.so.1",
        "operators aten::mm",
    )
    about = {"layer": "native", "name": LEFT_OUT, "object": None}
    left_out = recording._once("frames", "frame", about)
    recording.add_sample(stack)
    recording.add_sample(stack, kind="offcpu", state="gil")
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        rules = frame_rules(reader)

    drawn = [rules.frames[rules.function[number]] for number in rules.number.tolist()]
    assert drawn[0] == drawn[1]
    assert (drawn[0].name, drawn[0].line) == ("main", -1)
    assert drawn[left_out].name == LEFT_OUT
    assert rules.key.tolist() == list(range(left_out + 1))
    flags = [int(rules.flags[rules.function[number]]) for number in rules.number.tolist()]
    assert flags[0] == MINE
    assert flags[2] == MACHINERY + SYSTEM
    assert flags[3] == BODY
    assert flags[4] & THREAD
    assert flags[5] & TEAM
    assert rules.frames[rules.imported[rules.function[rules.number[3]]]].name == "import numpy"
    assert rules.imported[rules.function[rules.number[0]]] == -1
    names = [rules.frames[number].name for number in rules.waits["gil"]]
    assert names == ["waits for the GIL", "waits for the GIL (idle)"]


def test_the_rules_of_nothing(tmp_path: Path) -> None:
    with Reader(Recording().write(tmp_path / "train.layerscope")) as reader:
        rules = frame_rules(reader)
    assert len(rules.key) == 0
    assert len(rules.frames) == len(rules.flags) == len(rules.function) == len(rules.imported)
