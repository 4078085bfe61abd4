"""What blocks are for, where a program does more than train: evaluations, requests, loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import tables
from layerscope.analyse.memory.blocks import Steps
from layerscope.analyse.memory.categories import CATEGORIES
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.memory.peak import peaks_of_steps
from layerscope.recording.reader import Reader
from tests.analyse.memory.made import (
    FIRST_NS,
    FOREVER,
    PARAMETER,
    allocate,
    blocks_of,
    start_of,
    training,
)
from tests.recordings import Recording

FORWARD: dict[str, Any] = {"phase": "forward", "module": 0}


def categories(recording: Recording, folder: Path) -> dict[str, str]:
    """What the blocks of each line are; several are joined by a comma."""
    found: dict[str, set[str]] = {}
    with Reader(recording.write(folder / "made")) as reader:
        memory = RecordedMemory(reader)
        (heap,) = memory.heaps
        category = memory.categories(heap).category.tolist()
        for line, place in zip(heap.blocks.texts("line").tolist(), category, strict=True):
            found.setdefault(line, set()).add(CATEGORIES[place])
    return {line: ", ".join(sorted(names)) for line, names in found.items()}


def test_only_tensors_are_parameters(tmp_path: Path) -> None:
    recording = training(10)
    allocate(recording, 15, FOREVER, PARAMETER, line="data.py:1", allocator="numpy")

    found = categories(recording, tmp_path)

    assert (found["net.py:1"], found["data.py:1"]) == ("parameter", "buffer")


def test_every_pass_says_which_sizes_parameters_have(tmp_path: Path) -> None:
    recording = training(10)
    allocate(recording, 15, FOREVER, 5000, line="critic.py:1")
    # A second network, with a backward pass of its own in every step.
    for step in range(10):
        at = start_of(step)
        recording.add_span("Critic", at + 62, 3, layer="modules", kind="module", step=step)
        recording.add_span("MulBackward0", at + 66, 3, kind="backward", step=step)
        allocate(recording, at + 67, at + 99, 5000, phase="backward", line="critic.py:2")

    found = categories(recording, tmp_path)

    assert (found["net.py:1"], found["critic.py:1"]) == ("parameter", "parameter")
    with Reader(recording.write(tmp_path / "table")) as reader:
        (row,) = [
            row for row in tables.build(reader, "peak", "category").data.to_pylist()
            if row["category"] == "parameter"
        ]  # fmt: skip
    assert row["certain_share"] == 1


def test_without_gradients_of_their_own_parameters_are_parameters(tmp_path: Path) -> None:
    recording = training(10)
    # As where gradients lie in one block, from before the loop.
    blocks = recording.rows["allocations"]
    recording.rows["allocations"] = [
        block for block in blocks
        if block["phase"] != "backward" or block["bytes"] != PARAMETER
    ]  # fmt: skip

    assert categories(recording, tmp_path)["net.py:1"] == "parameter"


def test_what_a_loader_releases_itself_is_no_input(tmp_path: Path) -> None:
    recording = training(10)
    for step in range(10):
        at = start_of(step)
        recording.add_span("next", at + 2, 3, kind="loader", step=step)
        allocate(recording, at + 3, at + 4, 50, phase="loading", line="collate.py:1")
        allocate(recording, at + 3, at + 90, 60, phase="loading", line="collate.py:2")

    found = categories(recording, tmp_path)

    assert (found["collate.py:1"], found["collate.py:2"]) == ("temporary", "input")


def test_after_an_evaluation_in_a_step_the_batch_is_an_input(tmp_path: Path) -> None:
    recording = training(10)
    for step in range(10):
        at = start_of(step)
        about = {"step": step, "module": 0}
        recording.add_span("Net", at + 2, 3, layer="modules", kind="module", **about)
        end_ns = at + 106 if step < 9 else FOREVER
        allocate(recording, at + 6, end_ns, 77, line="batch.py:1")

    assert categories(recording, tmp_path)["batch.py:1"] == "input"


def test_what_comes_after_the_last_step_is_known_if_it_was_released(tmp_path: Path) -> None:
    recording = training(10)
    at = start_of(10) + 500
    recording.add_span("Net", at, 20, layer="modules", kind="module", module=0)
    allocate(recording, at + 1, at + 5, 500, line="evaluate.py:1", **FORWARD)
    allocate(recording, at + 2, at + 3, 600, line="evaluate.py:2")
    allocate(recording, at + 2, FOREVER, 700, line="evaluate.py:3")

    found = categories(recording, tmp_path)

    assert found["evaluate.py:1"] == "activation"
    assert found["evaluate.py:2"] == "temporary"
    assert found["evaluate.py:3"] == "other"


def test_each_of_two_requests_at_once_has_all_that_is_live_in_it() -> None:
    blocks = blocks_of([(10, 5, 100), (25, 5, 700), (45, 5, 30)])
    number = np.arange(4)
    steps = Steps(
        step=number,
        start_ns=np.array([0, 20, 40, 90]),
        end_ns=np.array([60, 22, 50, 95]),
        is_warmup=number < 0,
    )

    assert peaks_of_steps(blocks, steps).tolist() == [700, 0, 30, 0]


def test_without_steps_what_was_released_is_temporary(tmp_path: Path) -> None:
    recording = Recording()
    allocate(recording, 10, 20, 500, line="released.py:1")
    allocate(recording, 15, FOREVER, 500, line="kept.py:1")

    assert categories(recording, tmp_path) == {"released.py:1": "temporary", "kept.py:1": "other"}


@pytest.mark.parametrize("requests", [6, 20])
def test_what_a_request_replaces_is_of_the_one_before(tmp_path: Path, requests: int) -> None:
    recording = Recording()
    recording.rows["processes"][0]["end_ns"] = start_of(requests + 5)
    allocate(recording, 10, FOREVER, 700, line="weights")
    for step in range(requests):
        at = start_of(step)
        about: dict[str, Any] = {"rule": "request"}
        recording.add_step(step, at, (0, 50, 0, 0, 0), **about)
        recording.add_span("Net", at, 50, layer="modules", kind="module", step=step, module=0)
        # A variable names both until the next one has been made.
        allocate(recording, at - 20, at + 81, 64, line="batch")
        allocate(recording, at + 40, at + 155, 500, line="result", **FORWARD)

    assert FIRST_NS > 20
    assert categories(recording, tmp_path) == {
        "weights": "parameter",
        "batch": "input",
        "result": "activation",
    }
