"""What `layerscope findings` makes of what the rules say: prices, their order, what is not shown, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from layerscope.analyse import findings
from layerscope.analyse.findings import RunFindings
from layerscope.analyse.findings.finding import CERTAIN, LOW, RUN, Finding, Limits, Threshold
from layerscope.analyse.findings.workload import AFTER_EFFECTS, WHOLE_RUN, Workload, wilson
from layerscope.recording.proofs import NO_DIFFERENCE, PROVEN, REFUTED, Proof, keep_proof, proofs_of
from layerscope.recording.reader import Reader
from tests.findings.slow_loader import STEP_MS, slow_loader
from tests.recordings import MS, Recording

HALF = [STEP_MS // 2] * 12
# A price is so many times what was measured.
MORE = 1 + AFTER_EFFECTS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def found(made: Recording, tmp_path: Path, *rules: str, **info: object) -> RunFindings:
    with Reader(made.write(tmp_path / "made.layerscope", **info)) as reader:
        return findings.find(reader, list(rules))


# -- prices ----------------------------------------------------------------------------------------


def test_a_price_is_the_mean_over_all_measured_steps(tmp_path: Path) -> None:
    loads_ms = [4, 6] * 10

    (one,) = found(slow_loader(loads_ms), tmp_path, "loader_wait").found

    assert one.price.value_ns == pytest.approx(5 * MORE * MS)
    assert one.price.share == pytest.approx(5 * MORE / STEP_MS)
    assert one.price.cost_share == pytest.approx(5 / STEP_MS)
    assert one.price.low_ns <= one.price.value_ns <= one.price.high_ns
    assert one.where.line == "data.py:7"


def test_steps_that_do_not_vary_have_an_exact_price(tmp_path: Path) -> None:
    (one,) = found(slow_loader(HALF), tmp_path, "loader_wait").found

    assert one.price.low_ns == STEP_MS * MS / 2
    assert one.price.value_ns == one.price.high_ns == pytest.approx(STEP_MS * MS / 2 * MORE)


@given(st.lists(st.integers(0, STEP_MS), min_size=5, max_size=60), st.floats(0.1, 1))
def test_an_interval_holds_its_value_and_is_no_longer_than_a_step(
    costs_ms: list[int], least: float
) -> None:
    workload = object.__new__(Workload)
    workload.dur_ns = np.full(len(costs_ms), STEP_MS * MS)
    workload.per = "step"

    price = workload._priced(np.array(costs_ms, float) * MS, None, least)

    assert 0 <= price.low_ns <= price.value_ns <= price.high_ns <= STEP_MS * MS
    mean_ns = sum(costs_ms) * MS / len(costs_ms)
    assert price.value_ns == pytest.approx(min(mean_ns * MORE, STEP_MS * MS))
    assert price.low_ns <= least * mean_ns + 1e-3


@given(st.integers(1, 1000), st.data())
def test_wilsons_interval_holds_the_share(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))

    low, high = wilson(successes, trials)

    assert 0 <= low <= successes / trials <= high <= 1


def test_wilsons_interval_is_that_of_the_textbook() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_of_a_thinned_run_the_steps_that_were_kept_are_judged(tmp_path: Path) -> None:
    made = slow_loader([10] * 24)
    for row in made.rows["steps"]:
        row["weight"] = 2 if row["step"] % 2 == 0 else 0
    made.rows["samples"] = [row for row in made.rows["samples"] if row["step"] % 2 == 0]
    made.rows["spans"] = [row for row in made.rows["spans"] if row["step"] % 2 == 0]
    with Reader(made.write(tmp_path / "made.layerscope")) as reader:
        workload = Workload(reader)
        price = workload.price(
            "SELECT step, sum(weight_ns) AS ns FROM step_samples WHERE kind = 'offcpu' GROUP BY step"
        )

    assert price.value_ns == pytest.approx(10 * MORE * MS)
    assert len(workload.step) == 12


# -- what is shown ---------------------------------------------------------------------------------


def test_findings_are_in_the_order_of_the_lower_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"wide": (9, 1), "narrow": (5, 4)}
    use(monkeypatch, {name: rule(name, value, low) for name, (value, low) in rules.items()})

    every = found(slow_loader(HALF), tmp_path)

    assert [one.rule for one in every.found] == ["narrow", "wide"]


def test_less_than_2_percent_of_a_step_is_looked_at_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, {"small": rule("small", 0.36, 0.3), "enough": rule("enough", 0.37, 0.3)})

    every = found(slow_loader(HALF), tmp_path)

    assert [one.rule for one in every.found] == ["enough"]
    assert [(one.rule, one.share) for one in every.looked_at] == [
        ("small", pytest.approx(0.36 * MORE / STEP_MS))
    ]


def test_what_may_cost_nothing_or_was_hardly_seen_is_looked_at_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = slow_loader(HALF)
    use(monkeypatch, {"unsure": rule("unsure", 5, 0), "seldom": seldom(4), "often": seldom(5)})

    every = found(made, tmp_path)

    assert [one.rule for one in every.found] == ["often"]
    assert {one.rule for one in every.looked_at} == {"unsure", "seldom"}


def test_a_rule_that_fails_is_a_problem_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SimpleNamespace(NEEDS=(), THRESHOLDS=(), find=lambda workload, limits: iter([1 // 0]))
    wrong = SimpleNamespace(
        NEEDS=(), THRESHOLDS=(), find=lambda workload, limits: iter(workload.rows("SELECT nothing"))
    )
    use(monkeypatch, {"broken": broken, "wrong": wrong, "good": rule("good", 5, 4)})

    every = found(slow_loader(HALF), tmp_path)

    assert [one.rule for one in every.found] == ["good"]
    assert [problem.what.partition(":")[0] for problem in every.problems] == [
        "the rule broken failed",
        "the rule wrong failed",
    ]


def test_a_rule_without_what_it_needs_is_skipped_with_the_reason(tmp_path: Path) -> None:
    made = slow_loader(HALF)
    del made.rows["samples"]

    every = found(made, tmp_path)

    assert every.skipped["loader_wait"] == "no stacks were recorded"
    assert every.found == []


def test_four_steps_are_too_few(tmp_path: Path) -> None:
    every = found(slow_loader(HALF[:4]), tmp_path)

    assert "fewer than 5" in every.skipped["loader_wait"]


# -- a busy machine --------------------------------------------------------------------------------


def test_on_a_busy_machine_nothing_is_certain(tmp_path: Path) -> None:
    every = found(slow_loader([10] * 12, busy=True), tmp_path, "loader_wait")

    assert every.contention is not None
    assert every.contention.is_busy
    assert every.contention.preempted_share == pytest.approx(0.25)
    (one,) = every.found
    assert one.certainty == LOW
    assert "on a busy machine" in one.notes[-1]


def test_a_program_that_uses_all_its_cpus_waits_for_its_own_threads(tmp_path: Path) -> None:
    made = slow_loader([10] * 12, busy=True)
    other = made.add_thread(made.process, 101, "worker")
    for step in range(12):
        made.add_sample(None, 70 * MS, at_ns=step * STEP_MS * MS, track=other, step=step)

    every = found(made, tmp_path, "loader_wait")

    assert every.contention is not None
    assert not every.contention.is_busy
    assert every.found[0].certainty == CERTAIN


def test_workers_that_load_for_the_program_are_no_others(tmp_path: Path) -> None:
    made = slow_loader([10] * 12, busy=True)
    worker = made.add_process(200)
    thread = made.add_thread(worker, 200, "pt_data_worker")
    sums = dict.fromkeys(("total_ns", "self_ns", "min_ns", "max_ns", "count"), 1)
    of_worker = {"process": worker, "layer": "operators", "kind": "function", "name": "aten::mul"}
    made.rows["totals"] = [{"total": 0, **of_worker, "step_class": "outside", **sums}]
    for step in range(12):
        made.add_sample(None, 70 * MS, at_ns=step * STEP_MS * MS, track=thread)

    every = found(made, tmp_path, "loader_wait")

    assert every.contention is not None
    assert not every.contention.is_busy


# -- which process, which thread -------------------------------------------------------------------


def test_of_several_ranks_the_slowest_is_judged(tmp_path: Path) -> None:
    made = slow_loader([2] * 12)
    made.rows["processes"][0]["rank"] = 0
    process = made.add_process(200, rank=1)
    track = made.add_thread(process, 200, "python")
    stack = made.add_stack("python load data.py:7", "native read libc.so")
    for step in range(12):
        start_ns = step * 30 * MS
        made.add_step(step, start_ns, (24 * MS, 6 * MS, 0, 0, 0), process=process)
        made.add_span("DataLoader", start_ns, 24 * MS, kind="loader", step=step, track=track)
        made.add_sample(
            stack,
            24 * MS,
            start_ns,
            kind="offcpu",
            state="sleep",
            step=step,
            phase="loading",
            track=track,
        )

    every = found(made, tmp_path, "loader_wait")

    assert every.about == "These are findings of rank 1, whose steps take longest of 2."
    assert every.found[0].price.value_ns == pytest.approx(24 * MORE * MS)


def test_what_another_thread_does_costs_nothing(tmp_path: Path) -> None:
    made = slow_loader([0] * 12)
    other = made.add_thread(made.process, 101, "reader")
    stack = made.add_stack("python load data.py:7", "native read libc.so")
    for step in range(12):
        made.add_sample(
            stack,
            15 * MS,
            step * STEP_MS * MS,
            kind="offcpu",
            state="sleep",
            step=step,
            phase="loading",
            track=other,
        )

    every = found(made, tmp_path, "loader_wait")

    assert every.found == []


def test_without_steps_a_price_is_of_the_run(tmp_path: Path) -> None:
    made = Recording()
    stack = made.add_stack("python work work.py:1", "native f libc.so")
    made.add_sample(stack, 30 * MS)
    made.add_span("aten::mm", 0, 40 * MS)
    with Reader(made.write(tmp_path / "made.layerscope")) as reader:
        workload = Workload(reader)
        price = workload.price("SELECT step, sum(weight_ns) AS ns FROM step_samples GROUP BY step")
        steps = workload.rows("SELECT step FROM step_spans")

    assert (price.value_ns, price.per) == (pytest.approx(30 * MORE * MS), RUN)
    assert workload.mean_ns == 2e9  # as run.json says
    assert steps == [{"step": WHOLE_RUN}]


def test_every_frame_of_a_stack_is_found(tmp_path: Path) -> None:
    made = slow_loader(HALF)
    with Reader(made.write(tmp_path / "made.layerscope")) as reader:
        rows = Workload(reader).rows("""
            SELECT DISTINCT frames.name FROM step_samples JOIN stack_frames USING (stack) JOIN frames USING (frame)
            WHERE phase = 'loading' ORDER BY 1""")

    assert [row["name"] for row in rows] == ["load", "read"]


# -- what was proven -------------------------------------------------------------------------------


def proof(rule: str, verdict: str, at_utc: str = "2026-01-01T00:00:00+00:00") -> Proof:
    return Proof(rule, verdict, 0.8, 0.75, 0.85, 9, "A=1", ["python", "x.py"], "here", {}, at_utc)


def test_a_proven_finding_says_so(tmp_path: Path) -> None:
    made = slow_loader(HALF).write(tmp_path / "made.layerscope")
    keep_proof(made, proof("loader_wait", PROVEN))

    with Reader(made) as reader:
        (one,) = findings.find(reader, ["loader_wait"]).found

    assert one.proven == "proven: × 0.80 [0.75, 0.85], 9 pairs"  # noqa: RUF001


def test_a_refuted_finding_is_not_shown_again_of_the_same_program(tmp_path: Path) -> None:
    first = slow_loader(HALF).write(tmp_path / "first.layerscope")
    later = slow_loader(HALF).write(tmp_path / "later.layerscope")
    other = slow_loader(HALF).write(tmp_path / "other.layerscope", command=["python", "another.py"])
    keep_proof(first, proof("loader_wait", REFUTED))

    shown = []
    for run in (first, later, other):
        with Reader(run) as reader:
            every = findings.find(reader, ["loader_wait"])
            shown.append(([one.rule for one in every.found], [one.rule for one in every.refuted]))

    assert shown == [([], ["loader_wait"]), ([], ["loader_wait"]), (["loader_wait"], [])]


def test_the_newest_proof_counts(tmp_path: Path) -> None:
    made = slow_loader(HALF).write(tmp_path / "made.layerscope")
    keep_proof(made, proof("loader_wait", REFUTED))
    keep_proof(made, proof("loader_wait", NO_DIFFERENCE, "2026-02-01T00:00:00+00:00"))

    with Reader(made) as reader:
        (one,) = findings.find(reader, ["loader_wait"]).found

    assert one.proven.startswith("no difference measurable")


def test_damaged_proofs_are_none(tmp_path: Path) -> None:
    made = slow_loader(HALF).write(tmp_path / "made.layerscope")
    (made.path / "proofs.json").write_text('[{"rule": 3}]')

    assert proofs_of(made) == []


# --------------------------------------------------------------------------------------------------


def rule(name: str, value_ms: float, low_ms: float) -> SimpleNamespace:
    """A rule that finds one thing at this price."""

    def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
        price = workload.price(f"SELECT step, {value_ms * MS} AS ns FROM measured_steps")
        yield Finding(name, name, replace(price, low_ns=low_ms * MS))

    return SimpleNamespace(NEEDS=(), THRESHOLDS=(Threshold("x", 1.0, "", ""),), find=find)


def seldom(samples: int) -> SimpleNamespace:
    """A rule whose price is made of so few samples."""

    def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
        price = workload.price(f"SELECT step, {5 * MS} AS ns, 1 AS samples FROM measured_steps")
        yield Finding(
            "often" if samples > 4 else "seldom", "", replace(price, samples=samples, low_ns=MS)
        )

    return SimpleNamespace(NEEDS=(), THRESHOLDS=(), find=find)


def use(monkeypatch: pytest.MonkeyPatch, rules: dict[str, SimpleNamespace]) -> None:
    """Let these be all rules."""
    monkeypatch.setattr(findings, "names", lambda: list(rules))
    monkeypatch.setattr(findings, "load", rules.__getitem__)
