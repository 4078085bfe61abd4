"""What each block is for, how much a line leaks: trainings that were never run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import diff, tables
from layerscope.analyse.diff import conditions
from layerscope.analyse.findings.rules.memory_grows import _allocated
from layerscope.analyse.findings.workload import Workload
from layerscope.analyse.memory.categories import CATEGORIES
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.summary import summarise
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.show.summary import text
from tests.analyse.memory.made import (
    ACTIVATION,
    FIRST_NS,
    FOREVER,
    INPUT,
    LOSS,
    PARAMETER,
    STATE,
    STEP_NS,
    allocate,
    start_of,
    training,
)
from tests.analyse.test_tables import rows
from tests.recordings import Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made.layerscope"


def categories(recording: Recording, folder: Path) -> dict[tuple[str, int], str]:
    """What the blocks of each line and size are; several are joined by a comma."""
    found: dict[tuple[str, int], set[str]] = {}
    with Reader(recording.write(folder)) as reader:
        memory = RecordedMemory(reader)
        for heap in memory.heaps:
            category = memory.categories(heap).category.tolist()
            lines, sizes = heap.blocks.texts("line").tolist(), heap.blocks.bytes.tolist()
            for line, size, place in zip(lines, sizes, category, strict=True):
                found.setdefault((line, size), set()).add(CATEGORIES[place])
    return {key: ", ".join(sorted(names)) for key, names in found.items()}


KNOWN = {
    ("net.py:1", PARAMETER): "parameter",
    ("net.py:2", 555): "temporary",
    ("train.py:2", INPUT): "input",
    ("net.py:3", 200): "temporary",
    ("net.py:4", ACTIVATION): "activation",
    ("train.py:3", LOSS): "activation",
    ("train.py:4", 210): "temporary",
    ("train.py:4", PARAMETER): "gradient",
    ("train.py:5", 220): "temporary",
    ("train.py:5", STATE): "optimizer state",
}


@pytest.mark.parametrize("steps", [3, 10, 60])
def test_a_training_has_all_categories(folder: Path, steps: int) -> None:
    assert categories(training(steps), folder) == KNOWN


def test_without_spans_the_phases_of_blocks_tell_the_same(folder: Path) -> None:
    assert categories(training(10, has_spans=False), folder) == KNOWN


@pytest.mark.parametrize("has_spans", [True, False])
def test_of_many_blocks_some_tell_what_those_at_the_peak_are(folder: Path, has_spans: bool) -> None:
    with Reader(training(60, has_spans).write(folder)) as reader:
        memory = RecordedMemory(reader, most=40)
        (heap,) = memory.heaps
        whole = memory.categories(heap)
        held = memory.held(heap)

    live = heap.peak.is_live
    assert held.category.tolist() == whole.category[live].tolist()
    assert held.is_certain.tolist() == whole.is_certain[live].tolist()
    assert len(held.blocks) == live.sum() > 5


def test_gradients_that_are_accumulated_over_passes_are_gradients(folder: Path) -> None:
    recording = training(10)
    # A second pass in every step; what the first one left is there until the next step.
    for step in range(10):
        at = start_of(step)
        recording.add_span("Net", at + 62, 3, layer="modules", kind="module", step=step)
        recording.add_span("AddBackward0", at + 66, 3, kind="backward", step=step)
        allocate(recording, at + 63, at + 67, 310, phase="forward", module=0, line="second:1")
        allocate(recording, at + 67, at + 68, 210, phase="backward", line="second:2")

    found = categories(recording, folder)

    assert found[("second:1", 310)] == "activation"
    assert found[("second:2", 210)] == "temporary"
    assert {key: found[key] for key in KNOWN} == KNOWN


def test_a_checkpoint_computes_activations_in_the_backward_pass(folder: Path) -> None:
    recording = training(10)
    for step in range(10):
        at = start_of(step)
        recording.add_span("Net", at + 47, 5, layer="modules", kind="module", step=step)
        about: dict[str, Any] = {"phase": "backward", "module": 0}
        allocate(recording, at + 48, at + 55, 320, line="again:1", **about)
        allocate(recording, at + 49, at + 51, 330, line="again:2", **about)
        allocate(recording, at + 53, at + 55, 340, line="again:3", **about)

    found = categories(recording, folder)

    assert found[("again:1", 320)] == "activation"
    assert found[("again:2", 330)] == found[("again:3", 340)] == "temporary"
    assert {key: found[key] for key in KNOWN} == KNOWN


def test_a_copy_of_a_network_is_of_the_same_modules(folder: Path) -> None:
    recording = training(10)
    recording.rows["modules"].append({"module": 1, "path": "Net.second", "class": "Linear"})
    for step in range(10):
        at = start_of(step)
        recording.add_span("AddmmBackward0", at + 41, 3, kind="backward", step=step, module=1)
        allocate(recording, at + 42, at + 96, PARAMETER, phase="backward", line="train.py:4")
    # The gradient of the second module comes first, and the second parameter last.
    for at in (15, 16, 17):
        allocate(recording, at, FOREVER, PARAMETER, line="net.py:1")

    with Reader(recording.write(folder)) as reader:
        memory = RecordedMemory(reader)
        (heap,) = memory.heaps
        found = memory.categories(heap)
        module = memory.modules(heap, np.arange(4), found)

    assert module.tolist() == [0, 1, 0, 1]


def test_what_has_no_gradient_is_a_buffer_and_what_is_kept_is_other(folder: Path) -> None:
    recording = training(10)
    allocate(recording, 40, FOREVER, 4096, line="net.py:9")
    allocate(recording, start_of(4) + 80, FOREVER, 9999, line="cache.py:1")

    found = categories(recording, folder)

    assert found[("net.py:9", 4096)] == "buffer"
    assert found[("cache.py:1", 9999)] == "other"


def test_a_copy_of_the_parameters_makes_neither_certain(folder: Path) -> None:
    recording = training(10)
    allocate(recording, 40, FOREVER, PARAMETER, line="average.py:1")

    with Reader(recording.write(folder)) as reader:
        found = tables.build(reader, "peak", "category").data.to_pylist()

    shares = {row["category"]: row["certain_share"] for row in found}
    assert shares["parameter"] == 0
    assert shares["gradient"] == shares["optimizer state"] == 1


def test_data_of_the_size_of_a_parameter_is_told_apart_by_its_line(folder: Path) -> None:
    recording = training(10)
    # A second parameter of the same line, whose size is that of no other block.
    allocate(recording, 15, FOREVER, 1111, line="net.py:1")
    for step in range(10):
        at = start_of(step)
        allocate(recording, at + 47, at + 96, 1111, phase="backward", line="train.py:4")
    allocate(recording, 40, FOREVER, PARAMETER, line="data.py:1")

    found = categories(recording, folder)

    assert found[("data.py:1", PARAMETER)] == "buffer"
    assert found[("net.py:1", PARAMETER)] == found[("net.py:1", 1111)] == "parameter"


def test_without_a_backward_pass_all_results_are_activations(folder: Path) -> None:
    recording = Recording()
    recording.rows["processes"][0]["end_ns"] = 5000
    allocate(recording, 10, FOREVER, 700, line="weights")
    for step in range(5):
        at = start_of(step)
        recording.add_step(step, at, (0, 50, 0, 0, 50), rule="request")
        recording.add_span("Net", at + 10, 40, layer="modules", kind="module", step=step)
        allocate(recording, at + 2, at + 90, 64, line="request")
        allocate(recording, at + 20, at + 30, 500, line="hidden", phase="forward", module=0)

    assert categories(recording, folder) == {
        ("weights", 700): "parameter",
        ("request", 64): "input",
        ("hidden", 500): "activation",
    }


def test_a_program_that_was_killed_in_a_step_has_what_its_steps_had(folder: Path) -> None:
    recording = training(10)
    at = start_of(10)
    recording.add_span("Net", at + 10, 8, layer="modules", kind="module", module=0, unfinished=True)
    about: dict[str, Any] = {"phase": "forward", "module": 0}
    allocate(recording, at + 12, FOREVER, ACTIVATION, line="net.py:4", **about)

    found = categories(recording, folder)

    assert found[("net.py:4", ACTIVATION)] == "activation"


# -- leaks -----------------------------------------------------------------------------------------


def leaks(recording: Recording, folder: Path) -> dict[str, int]:
    """The lines that leak, with bytes a step."""
    with Reader(recording.write(folder)) as reader:
        memory = RecordedMemory(reader)
        (heap,) = memory.heaps
        growth = memory.growth(heap)
        names = heap.blocks.names["line"][growth.line].tolist()
    return {
        name: round(growth.bytes_per_step[place])
        for place, name in enumerate(names)
        if growth.is_leak[place]
    }


def test_of_a_process_whose_end_is_not_known_open_blocks_outlive_its_steps(folder: Path) -> None:
    recording = training()
    recording.rows["processes"][0]["end_ns"] = None
    for step in range(30):
        allocate(recording, start_of(step) + 80, FOREVER, 1000, line="kept.py:1")

    assert leaks(recording, folder) == {"kept.py:1": 1000}


def test_a_healthy_training_leaks_nothing(folder: Path) -> None:
    assert leaks(training(), folder) == {}


@pytest.mark.parametrize(("every", "size"), [(1, 1000), (3, 3000)])
def test_a_line_that_keeps_what_it_allocates_leaks(folder: Path, every: int, size: int) -> None:
    recording = training(39)
    for step in range(0, 39, every):
        allocate(recording, start_of(step) + 80, FOREVER, size, line="kept.py:1")

    # Of the 36 steps that are judged every third is one that keeps something.
    assert leaks(recording, folder) == {"kept.py:1": 1000}


@pytest.mark.parametrize(
    ("at_ns", "reason", "is_told"),
    [
        (start_of(10), "ring_full", False),
        (start_of(10), "max_size", False),
        (start_of(10), "too_deep", True),
        (FIRST_NS - 50, "ring_full", True),
    ],
)
def test_where_releases_may_be_lost_nothing_is_called_a_leak(
    folder: Path, at_ns: int, reason: str, is_told: bool
) -> None:
    recording = training()
    recording.add_gap(reason, 3, process=0, start_ns=at_ns)
    for step in range(30):
        allocate(recording, start_of(step) + 80, FOREVER, 1000, line="kept.py:1")

    assert leaks(recording, folder) == ({"kept.py:1": 1000} if is_told else {})
    with Reader(recording.write(folder.with_name("again"))) as reader:
        notes = " ".join(tables.build(reader, "memory", "line").notes)
        assert ("No line is called a leak: records were lost" in notes) is not is_told
        assert ("Live memory grows by" in notes) is is_told


def test_a_queue_of_a_fixed_length_and_a_cache_that_fills_do_not_leak(folder: Path) -> None:
    recording = training()
    for step in range(30):
        at = start_of(step) + 80
        allocate(recording, at, at + 4 * STEP_NS, 1000, line="queue.py:1")
        if step < 8:
            allocate(recording, at, FOREVER, 1000, line="cache.py:1")

    assert leaks(recording, folder) == {}


def test_of_few_steps_nobody_can_say_whether_they_leak(folder: Path) -> None:
    recording = training(7)
    for step in range(7):
        allocate(recording, start_of(step) + 80, FOREVER, 1000, line="kept.py:1")

    assert leaks(recording, folder) == {}
    found = {row["line"]: row for row in rows(recording, "memory", "line")}
    assert found["kept.py:1"]["growth_per_step"] is None
    assert found["kept.py:1"]["end_bytes"] == 7000


def test_the_rule_of_growing_memory_names_the_line_that_keeps_it(folder: Path) -> None:
    recording = training()
    for step in range(30):
        allocate(recording, start_of(step) + 80, FOREVER, 2_000_000, line="kept.py:1")

    with Reader(recording.write(folder)) as reader:
        workload = Workload(reader)
        evidence, where = _allocated(workload, megabytes=2.1)
        _, elsewhere = _allocated(workload, megabytes=5.0)

    assert where is not None
    assert (where.line, where.operator) == ("kept.py:1", "aten::empty")
    assert elsewhere is None
    assert evidence[0].rows.to_pylist()[0]["bytes"] == 28 * 2_000_000


# -- processes, devices, what was lost -------------------------------------------------------------


def test_each_process_and_device_has_its_own_peak(folder: Path) -> None:
    recording = training(5)
    other = recording.add_thread(recording.add_process(200, end_ns=9000), 200, "rank")
    allocate(recording, 50, 60, 50_000, track=other)
    allocate(recording, 70, FOREVER, 100, device="cuda:0")

    found = rows(recording, "peak", "process")

    # In a forward pass, before the gradient of the step before is dropped.
    gradient = PARAMETER
    assert [(row["process"], row["device"], row["bytes"]) for row in found] == [
        (1, "cpu", 50_000),
        (0, "cpu", PARAMETER + STATE + gradient + INPUT + 200 + ACTIVATION + LOSS),
        (0, "cuda:0", 100),
    ]
    assert [row["step"] for row in found] == [None, 1, None]


def test_a_block_whose_release_was_lost_is_live_at_no_moment(folder: Path) -> None:
    recording = training(5)
    allocate(recording, FIRST_NS, FOREVER, 1 << 30, is_lost=True)

    with Reader(recording.write(folder)) as reader:
        peak = tables.build(reader, "peak", "process")
        assert peak.data["bytes"][0].as_py() < 1 << 20
        assert "The releases of 1 blocks (1.07 GB) were lost" in " ".join(peak.notes)


@pytest.mark.parametrize("name", ["memory", "peak"])
def test_without_allocations_the_tables_say_how_to_record_them(folder: Path, name: str) -> None:
    with Reader(Recording().write(folder)) as reader:
        found = tables.build(reader, name)
        assert found.rows == 0
        assert found.sentences == (
            "No allocations were recorded: record with layerscope run --layers=+memory, or with "
            "profile_memory=True of the framework's profiler.",
        )


def test_a_block_of_the_end_of_the_recording_lives_until_then() -> None:
    recording = Recording()
    recording.rows["processes"][0]["end_ns"] = 500
    allocate(recording, 100, FOREVER, 7)

    (row,) = rows(recording, "memory")

    assert (row["max_ns"], row["end_bytes"]) == (400, 7)


def test_the_summary_names_phase_and_categories_of_the_peak(folder: Path) -> None:
    recording = training(10)
    other = recording.add_thread(recording.add_process(200, end_ns=9000), 200, "rank")
    allocate(recording, 50, 60, 5, track=other)

    with Reader(recording.write(folder)) as reader:
        said = " ".join(text(summarise(reader)).split())

    assert (
        "Tensors: 3.57 kB at the peak of pid 100, in step 1 (forward): parameters 1.00 kB, "
        "gradients 1.00 kB, optimizer state 1.00 kB, activations 304 bytes, temporary 200 bytes; "
        "most of net.py:1: 1.00 kB"
    ) in said
    assert "Leak:" not in said


# -- diff ------------------------------------------------------------------------------------------


def test_diff_says_which_category_and_line_make_the_peak_higher(tmp_path: Path) -> None:
    larger = training(10)
    allocate(larger, start_of(4) + 80, FOREVER, 9999, line="cache.py:1")
    folders = tmp_path / "a.layerscope", tmp_path / "b.layerscope"
    with (
        Reader(training(10).write(folders[0])) as a,
        Reader(larger.write(folders[1])) as b,
    ):
        made = diff.build(a, b, ("a", "b"), ["memory"])
        found = made.result("memory", b.connection()).data.to_pylist()
        failed = conditions.judge(conditions.parse("peak>5%"), made)
        passed = conditions.judge(conditions.parse("peak>900%"), made)

    changes = Counter({(row["what"], row["name"]): row["change_bytes"] for row in found})
    assert changes[("category", "other")] == 9999
    assert changes[("line", "cache.py:1")] == 9999
    assert changes[("peak", "peak")] == sum(
        size for (what, _), size in changes.items() if what == "category"
    )
    assert (failed.failed, passed.failed) == (True, False)


def test_memory_of_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    without = training(10)
    del without.rows["allocations"]
    folders = tmp_path / "a.layerscope", tmp_path / "b.layerscope"
    with (
        Reader(training(10).write(folders[0])) as a,
        Reader(without.write(folders[1])) as b,
    ):
        made = diff.build(a, b, ("a", "b"), ["memory"])
        result = made.result("memory", b.connection())
        assert result.rows == 0
        assert "allocations were not recorded in B" in result.empty
        with pytest.raises(UsageError, match="not recorded in B"):
            conditions.judge(conditions.parse("peak>5%"), made)
