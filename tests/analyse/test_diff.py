"""Comparisons: hand-computed answers on small recordings, and laws on random ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase

from layerscope.analyse import diff
from layerscope.analyse.diff import conditions
from layerscope.analyse.result import select
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import ProgramState
from tests.recordings import Recording

# Each example takes a good part of a second: a failing one is good enough as it is.
NO_SHRINK = [Phase.explicit, Phase.reuse, Phase.generate]
OPPOSITE = {
    "added": "gone",
    "gone": "added",
    "slower": "faster",
    "faster": "slower",
    "no measurable difference": "no measurable difference",
    "not repeated": "not repeated",
}


def looped(steps: Sequence[dict[str, int]], warmup: int = 0) -> Recording:
    """A recording with these steps: in each, one call of every operator that takes so long."""
    recording = Recording()
    add_steps(recording, steps, warmup)
    return recording


def add_steps(
    recording: Recording, steps: Sequence[dict[str, int]], warmup: int = 0, rule: str = "optimizer"
) -> None:
    now = 0
    for number, operators in enumerate(steps):
        took = sum(operators.values()) + 100
        phases = (10, took - 60, 20, 20, 10)
        recording.add_step(
            number, now, phases, warmup=number < warmup, process=recording.process, rule=rule
        )
        for name, dur_ns in operators.items():
            recording.add_span(name, now, dur_ns, step=number)
            now += dur_ns
        now += 100


@contextmanager
def compared(
    a: Recording,
    b: Recording,
    view: str = "overview",
    statistic: str = "mean",
    infos: Any = ({}, {}),
) -> Iterator[tuple[diff.Diff, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            recording.write(Path(folder) / f"{name}.layerscope", **info)
            for name, recording, info in zip("ab", (a, b), infos, strict=True)
        ]
        with Reader(runs[0]) as left, Reader(runs[1]) as right:
            made = diff.build(left, right, ("before", "after"), [view], statistic)
            yield made, right.connection()


def rows(a: Recording, b: Recording, view: str = "overview", **choice: Any) -> list[dict[str, Any]]:
    with compared(a, b, view, **choice) as (made, connection):
        found: list[dict[str, Any]] = select(made.result(view, connection)).data.to_pylist()
    return found


def notes(a: Recording, b: Recording, view: str = "overview", **choice: Any) -> str:
    with compared(a, b, view, **choice) as (made, _):
        return "\n".join(made.notes)


def judged(a: Recording, b: Recording, text: str) -> conditions.Judgement:
    condition = conditions.parse(text)
    with compared(a, b, condition.view) as (made, _):
        return conditions.judge(condition, made)


def test_the_overview_has_the_step_its_phases_and_then_the_largest_changes() -> None:
    a = looped([{"mm": 1000, "add": 100, "old": 5}] * 6)
    b = looped([{"mm": 1200, "add": 100, "new": 7}] * 6)

    found = rows(a, b)

    assert [row["name"] for row in found] == [
        "step", "phase.loading", "phase.forward", "phase.backward", "phase.optimizer", "phase.other",
        "mm", "new", "old", "add",
    ]  # fmt: skip
    step, mm, new, old, add = (found[index] for index in (0, 6, 7, 8, 9))
    assert (step["a_ns"], step["b_ns"], step["change_ns"], step["verdict"]) == (
        1205,
        1407,
        202,
        "slower",
    )
    assert (mm["change"], mm["change_low"], mm["change_high"], mm["verdict"]) == pytest.approx(
        (0.2, 0.2, 0.2, "slower")
    )
    assert (new["verdict"], new["a_ns"], new["change"], new["a_calls"], new["b_calls"]) == (
        "added",
        0,
        None,
        0,
        1,
    )
    assert (old["verdict"], old["b_ns"], old["change"]) == ("gone", 0, -1)
    assert add["verdict"] == "no measurable difference"


def test_a_step_without_an_operator_has_zero_of_it() -> None:
    a = looped([{"mm": 100, "rare": 40}, {"mm": 100}, {"mm": 100}, {"mm": 100}])
    b = looped([{"mm": 100}, {"mm": 100}, {"mm": 100, "rare": 40}, {"mm": 100}])

    (rare,) = (row for row in rows(a, b, "operators") if row["name"] == "rare")

    assert (rare["a_ns"], rare["b_ns"], rare["a_calls"]) == (10, 10, 0.25)


def test_warm_up_is_left_out_and_counted() -> None:
    a = looped([{"mm": 90_000}, *[{"mm": 100}] * 4], warmup=1)
    b = looped([{"mm": 100}] * 5)

    (mm,) = rows(a, b, "operators")

    assert (mm["a_ns"], mm["verdict"]) == (100, "no measurable difference")
    said = notes(a, b)
    assert "A is before: 4 steps after 1 of warm-up." in said
    assert "B is after: 5 steps." in said


def test_what_lies_outside_the_steps_is_not_compared() -> None:
    a, b = looped([{"mm": 100}] * 4), looped([{"mm": 100}] * 4)
    b.add_span("evaluation", 10**6, 10**6)

    assert [row["name"] for row in rows(a, b, "operators")] == ["mm"]


def test_the_median_is_not_moved_by_a_few_steps_and_the_mean_is_said_to_be() -> None:
    usual = [{"mm": 1000}] * 40
    a, b = looped(usual), looped([*usual[:38], {"mm": 10**6}, {"mm": 10**6}])

    assert rows(a, b, "steps", statistic="median")[0]["change_ns"] == 0
    assert rows(a, b, "steps")[0]["change_ns"] == 49_950
    assert rows(a, b, "steps")[0]["verdict"] == "no measurable difference"
    said = "The steps of B are uneven: their mean is 46.4 times their median."
    assert f"{said} The median, which is compared without --mean, hides" in notes(a, b)
    assert f"{said} The median is compared; --mean compares the mean." in notes(
        a, b, statistic="median"
    )
    assert "steps of A are uneven" not in notes(a, b)


def test_several_ranks_are_averaged_step_by_step_and_a_stray_process_is_left_out() -> None:
    a, b = looped([{"mm": 100}] * 8), looped([{"mm": 100}] * 8)
    for number, (dur_ns, steps) in enumerate(((300, 8), (7000, 2))):
        b.process = b.add_process(200 + number)
        b.thread = b.add_thread(b.process, 200 + number, "python")
        add_steps(b, [{"mm": dur_ns}] * steps)

    (mm,) = rows(a, b, "operators")

    assert (mm["b_ns"], mm["b_calls"]) == (200, 1)
    said = notes(a, b)
    assert (
        "8 steps, each the mean over 2 processes (1 process with fewer or other steps left out)"
        in said
    )
    assert "Not the same: processes with steps: 1 in A, 2 in B." in said


def test_a_process_that_only_evaluates_is_not_the_training_however_many_batches_it_reads() -> None:
    a, b = looped([{"mm": 100}] * 8), looped([{"mm": 100}] * 8)
    b.process = b.add_process(200)
    b.thread = b.add_thread(b.process, 200, "python")
    add_steps(b, [{"mm": 7000}] * 30 + [{"mm": 900_000}], rule="loader")

    (mm,) = rows(a, b, "operators")

    assert (mm["a_ns"], mm["b_ns"]) == (100, 100)
    said = notes(a, b)
    assert "8 steps (1 process with fewer or other steps left out)" in said
    assert "what a step is" not in said
    assert "uneven" not in said


def test_without_steps_the_run_is_compared_and_nothing_is_sure() -> None:
    a, b = Recording(), looped([{"mm": 100}] * 4)
    a.add_span("mm", 0, 50)

    found = rows(a, b)

    assert [(row["what"], row["verdict"], row["change_low_ns"]) for row in found] == [
        ("run", "not repeated", None),
        ("operator", "not repeated", None),
    ]
    assert (found[1]["a_ns"], found[1]["b_ns"]) == (50, 400)
    assert "Compared is the whole run, because A has no steps: there are no intervals" in notes(
        a, b
    )


def test_a_run_whose_end_was_not_seen_is_not_called_faster() -> None:
    infos = ({}, {"program": ProgramState()})
    with compared(Recording(), Recording(), infos=infos) as (made, connection):
        (run,) = made.result("overview", connection).data.to_pylist()
        judgement = conditions.judge(conditions.parse("run>5%"), made)

    assert (run["b_ns"], run["change_ns"], run["change"], run["verdict"]) == (
        None,
        None,
        None,
        "not repeated",
    )
    assert "how long it took is not known on both sides" in judgement.sentence
    assert not judgement.failed


def test_two_steps_are_too_few_for_an_interval() -> None:
    a, b = looped([{"mm": 100}] * 2), looped([{"mm": 100}] * 9)

    assert {row["verdict"] for row in rows(a, b)} == {"not repeated"}
    assert "they need at least 3 steps on each side" in notes(a, b)


def test_a_module_holds_the_operators_of_the_modules_in_it() -> None:
    def network(dur_ns: int) -> Recording:
        recording = looped([])
        for number in range(4):
            recording.add_step(number, number * 1000, (0, dur_ns, 0, 0, 0))
            recording.add_span(
                "Net", number * 1000, 900, step=number, layer="modules", kind="module", module=0
            )
            for module, share in ((0, 1), (1, 2), (2, 4)):
                recording.add_span("mm", number * 1000, dur_ns * share, step=number, module=module)
        recording.rows["modules"] = [
            {"module": 0, "parent": None, "path": "Net", "class": "Net", "line": None},
            {"module": 1, "parent": 0, "path": "Net.block", "class": "Block", "line": None},
            {"module": 2, "parent": 1, "path": "Net.block.conv", "class": "Conv2d", "line": None},
        ]
        return recording

    found = {row["name"]: row for row in rows(network(10), network(20), "modules")}

    assert {name: (row["a_ns"], row["b_ns"]) for name, row in found.items()} == {
        "Net": (70, 140),
        "Net.block": (60, 120),
        "Net.block.conv": (40, 80),
    }
    assert (found["Net"]["a_calls"], found["Net.block"]["a_calls"]) == (1, 0)
    assert judged(network(10), network(20), "module:Net.block.conv>90%").failed


@pytest.mark.parametrize("cells", [1, 7, 4_000_000])
def test_a_module_holds_what_it_holds_at_any_depth_in_any_order_of_the_keys(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerscope.analyse.diff.quantities._CELLS", cells)
    paths = [
        "a.b.c.d",
        "a.b",
        "a",
        "a.b2",
        "a.b.c",
        "#2.b",
        "#2",
        "alone",
        "a.b.c-",
        "a.never.called",
    ]
    recording = looped([{"add": 5}] * 4)
    parents = {
        path: max((p for p in paths if path.startswith(f"{p}.")), key=len, default=None)
        for path in paths
    }
    recording.rows["modules"] = [
        {
            "module": key,
            "parent": paths.index(above) if above else None,
            "path": path,
            "class": "Some",
        }
        for key, (path, above) in enumerate(parents.items())
    ]
    own = {path: 10**key for key, path in enumerate(paths[:-1])} | {"a.b": 0}
    for path, dur_ns in own.items():
        for number in range(4) if dur_ns else ():
            recording.add_span("mm", number, dur_ns, step=number, module=paths.index(path))

    found = {row["name"]: row["a_ns"] for row in rows(recording, recording, "modules")}

    assert found == {
        path: sum(
            dur_ns for inner, dur_ns in own.items() if inner == path or inner.startswith(f"{path}.")
        )
        for path in own
    }


def test_a_layer_that_one_side_lacks_is_a_sentence_and_no_change() -> None:
    a, b = looped([{"mm": 100}] * 3), looped([{}] * 3)

    assert rows(a, b, "operators") == []
    assert "No operators are compared: B has none." in notes(a, b, "operators")


def test_what_the_file_of_another_program_does_not_tell_is_no_difference() -> None:
    a, b = looped([{"mm": 100}] * 3), looped([{"mm": 100}] * 3)
    infos = (
        {"imported_from": "trace.json", "layers": [], "environment": {}},
        {"environment": {"OMP_NUM_THREADS": "1"}},
    )

    assert "Not the same" not in notes(a, b, infos=infos)


def test_what_is_not_the_same_is_said() -> None:
    a, b = looped([{"mm": 100}] * 3), looped([{"mm": 100}] * 3)
    for row in b.rows["steps"]:
        row["rule"] = "loader"
    infos = (
        {
            "environment": {"OMP_NUM_THREADS": "1", "MKL_DEBUG": "***"},
            "host": {"name": "one", "cpu": {"granted": 4.0}, "memory": {"thp": "never"}},
        },
        {
            "versions": {"torch": "2.12.0"},
            "environment": {"MKL_DEBUG": "5"},
            "host": {
                "name": "",
                "cpu": {"granted": 1.5, "governor": "powersave"},
                "memory": {"thp": ""},
            },
        },
    )

    said = [
        line for line in notes(a, b, infos=infos).splitlines() if line.startswith("Not the same")
    ]

    assert said == [
        "Not the same: what a step is: optimizer in A, loader in B.",
        "Not the same: torch: 2.13.0+cpu in A, 2.12.0 in B.",
        "Not the same: usable CPUs: 4 in A, 1.5 in B.",
        "Not the same: OMP_NUM_THREADS: 1 in A, not set in B.",
    ]


def test_the_problems_of_both_sides_are_told_with_their_side() -> None:
    a, b = looped([{"mm": 100}] * 3), looped([{"mm": 100}] * 3)
    b.add_gap("ring_full", 5, track=b.thread)

    with compared(a, b) as (made, _):
        (problem,) = made.problems

    assert problem.what.startswith("in B the ring of their thread was full")
    assert problem.lost == "5 records on 1 thread"


@pytest.mark.parametrize(
    ("text", "what", "name", "limit"),
    [
        ("step>5%", "step", "step", 0.05),
        (" run > 7 % ", "run", "run", 0.07),
        ("phase.backward>10%", "phase", "phase.backward", 0.1),
        ("operator:aten::mm>12.5%", "operator", "aten::mm", 0.125),
        ("operator:std::vector<int>::at>0%", "operator", "std::vector<int>::at", 0),
        ("module:Net.conv1>10%", "module", "Net.conv1", 0.1),
    ],
)
def test_a_condition_is_understood(text: str, what: str, name: str, limit: float) -> None:
    condition = conditions.parse(text)

    assert (condition.what, condition.name) == (what, name)
    assert condition.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    "text", ["", "step", "step>5", "step<5%", "steps>5%", "operator:>5%", "step>-5%", "step>x%"]
)
def test_a_condition_that_is_none_shows_the_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be understood. It looks like step>5%"):
        conditions.parse(text)


def noisy(level: float, seed: int) -> Recording:
    values = np.random.default_rng(seed).normal(level, 0.03 * level, 40).astype(int).tolist()
    return looped([{"mm": value} for value in values])


def test_a_condition_fails_only_when_the_whole_interval_lies_above_its_limit() -> None:
    a, b = noisy(10**6, 1), noisy(1.1 * 10**6, 2)
    (mm,) = rows(a, b, "operators")
    assert 0.05 < mm["change_low"] < mm["change"] < mm["change_high"] < 0.15

    below, between, above = (
        100 * limit
        for limit in (mm["change_low"] - 0.001, mm["change_low"] + 0.001, mm["change_high"] + 0.01)
    )

    assert judged(a, b, f"operator:mm>{below}%").failed
    assert not judged(a, b, f"operator:mm>{between}%").failed
    assert not judged(a, b, f"operator:mm>{above}%").failed
    assert not judged(b, a, "operator:mm>0%").failed


def test_without_an_interval_no_condition_fails_and_that_is_said() -> None:
    a, b = Recording(), Recording()
    a.add_span("mm", 0, 50)
    b.add_span("mm", 0, 5000)

    judgement = judged(a, b, "operator:mm>5%")

    assert (judgement.failed, judgement.is_sure) == (False, False)
    assert "not failed, because nothing is sure without an interval" in judgement.sentence


def test_what_is_new_is_slower_by_any_percentage_and_what_is_gone_by_none() -> None:
    a, b = looped([{"mm": 100, "old": 5}] * 4), looped([{"mm": 100, "new": 5}] * 4)

    assert judged(a, b, "operator:new>900%").failed
    assert judged(a, b, "operator:new>900%").sentence.endswith("it is not in A.")
    assert not judged(a, b, "operator:old>0%").failed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("operator:aten::m>5%", "there is no operator 'aten::m'. Some that there are: aten::mm"),
        ("phase.sleeping>5%", "there is no phase 'phase.sleeping'. Some that there are: phase."),
        ("module:Net>5%", "there are no modules to compare"),
        ("run>5%", "the recordings are compared step by step. Use step"),
    ],
)
def test_a_condition_on_what_nobody_has_names_what_there_is(text: str, sentence: str) -> None:
    a = looped([{"aten::mm": 100}] * 4)

    with pytest.raises(UsageError) as raised:
        judged(a, a, text)

    assert sentence in str(raised.value)


def test_a_condition_on_the_step_of_a_run_without_steps_says_so() -> None:
    a = Recording()
    a.add_span("mm", 0, 50)

    with pytest.raises(UsageError, match="compared as a whole, because not both have steps"):
        judged(a, a, "step>5%")


# -- laws --------------------------------------------------------------------------------------------
