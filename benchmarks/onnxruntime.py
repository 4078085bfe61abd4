"""What recording adds to the CPU time of runs of ONNX Runtime, while a session profiles and after;
and how often the time in the operators of all runs lies in the interval that the summary tells.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring.intervals import median_ratio
from measuring.report import Report, Table, at_most, interval
from measuring.runs import PROGRAMS, BenchmarkError, Setting, execute, interleave, recorded

from layerscope.sources.raw.first_runs import extrapolated

# ONNX Runtime has an environment of its own, which not every machine has.
ONLY_WHEN_NAMED = True
PROGRAM = "onnx_runs.py"
BUDGET_S = 600.0
RUNS, QUICK_RUNS = 6_000, 3_000
# Of the profiled runs, those that our hook would have profiled.
PROFILED_SHARE = 0.4
BARE, EVERYTHING, NO_STACKS = "bare", "all default layers", "without stacks"
OWN = "nothing, but it profiles itself"
WITHOUT = {EVERYTHING: (), NO_STACKS: ("--without", "stacks")}
TARGETS = {"early_cpu_ns": 1.10, "late_cpu_ns": 1.03}
PARTS = {"early_cpu_ns": "while it profiles", "late_cpu_ns": "after"}
# Of 20, because the interval is that of 95 %.
LEAST_INSIDE = 0.95


@dataclass(frozen=True)
class Measured:
    """What is known of all runs, and what the first ones tell. How much of what the profiler takes
    lies within the operators nobody knows: `truth_low_ns` if it is all, `truth_high_ns` if none.
    """

    truth_low_ns: float
    truth_high_ns: float
    total_ns: float
    low_ns: float
    high_ns: float

    @property
    def is_inside(self) -> bool:
        """Whether both lie in the interval."""
        return self.low_ns <= self.truth_low_ns and self.truth_high_ns <= self.high_ns


def run(setting: Setting) -> Report:
    """Processes in turns, then runs whose operators are all known."""
    python = python_of()
    if not python:
        raise BenchmarkError("there is no environment with ONNX Runtime: dev.py test makes it")
    setting = replace(setting, program=python)
    report = Report("ONNX Runtime: runs of 11 nodes recorded, over without")
    table = report.table(
        "Processes in turns", "what is recorded", "runs", "when", "CPU a run", "over bare", "target"
    )
    count = QUICK_RUNS if setting.quick else RUNS
    arms: dict[str, Any] = {BARE: partial(plain, setting, count), OWN: partial(own, setting, count)}
    for name, options in WITHOUT.items():
        arms[name] = partial(with_us, setting, count, options)
    found = interleave(arms, setting.pairs, BUDGET_S)
    for part in PARTS:
        add_rows(table, part, found, count)
    report.data["cpu"] = found
    measured = [one_known(setting, count) for _ in range(setting.runs)]
    add_known(report, measured)
    report.remarks.append(
        "CPU: of all threads of the process, from run 100 to 1,500 (the session profiles the "
        "first 2,300 or so) and in the last quarter. Intervals are 95 %; targets are for their "
        "upper ends."
    )
    report.remarks.append(
        "Known: a session of the program's own profiles all runs. Of the first 40 % of them the "
        "rest is extrapolated, which are made shorter by what the profiler adds to a run, as runs "
        "behind its end tell it."
    )
    return report


def python_of() -> str:
    """The Python with ONNX Runtime; empty: there is none."""
    named = os.environ.get("LAYERSCOPE_TEST_JAX_PYTHON", "")
    python = named or str(Path(".envs") / "jax" / "bin" / "python")
    return str(Path(python).absolute()) if Path(python).exists() else ""


def plain(setting: Setting, count: int) -> dict[str, int]:
    """The program alone."""
    done, _ = execute(setting, [setting.program, str(PROGRAMS / PROGRAM), str(count)])
    return dict(done.json)


def own(setting: Setting, count: int) -> dict[str, int]:
    """The program with the profiler of its session, as ours has it, but for all runs."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        words = [str(PROGRAMS / PROGRAM), str(count), f"{folder}/profile"]
        done, _ = execute(setting, [setting.program, *words])
        return {part: done.json[part] for part in PARTS}


def with_us(setting: Setting, count: int, options: tuple[str, ...]) -> dict[str, int]:
    """Under layerscope."""
    with recorded(setting, PROGRAM, str(count), options=options) as run:
        return dict(run.done.json)


def add_rows(table: Table, part: str, found: dict[str, list[dict[str, int]]], count: int) -> None:
    """A row for each way, of one part of the runs."""
    bare = [one[part] for one in found[BARE]]
    runs = 1_400 if part == "early_cpu_ns" else count // 4
    for arm, samples in found.items():
        if arm == OWN and part != "early_cpu_ns":  # it goes on
            continue
        cpu = [one[part] for one in samples]
        ratio = median_ratio(cpu, bare) if arm != BARE else None
        limit = TARGETS[part] if arm != OWN else None
        table.add(
            arm,
            str(len(samples)),
            PARTS[part],
            f"{statistics.median(cpu) / runs / 1e3:.0f} us",
            interval(ratio, 3) if ratio else "",
            at_most(ratio.high, limit, f"<= {limit:.2f}") if ratio and limit else "",
        )


def one_known(setting: Setting, count: int) -> Measured:
    """A process whose operators are all known, and what the first ones tell of them."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        words = [str(PROGRAMS / PROGRAM), str(count), f"{folder}/profile"]
        done, _ = execute(setting, [setting.program, *words])
        said = done.json
        events = json.loads(Path(said["profile"]).read_text())
    run_ns = np.array(said["run_ns"], np.float64)
    operators_ns = operators_of_runs(events)
    return judged(run_ns, operators_ns, count)


def judged(run_ns: Any, operators_ns: Any, count: int) -> Measured:
    """What is extrapolated from the first runs, and the truth of all."""
    near = min(1_000, len(run_ns) - count)
    before = np.median(run_ns[count - near : count])
    cost_ns = max(float(before - np.median(run_ns[count : count + near])), 0.0)
    profiled = int(count * PROFILED_SHARE)
    as_recorded = run_ns[:count].copy()
    as_recorded[profiled:] -= cost_ns
    told = extrapolated(as_recorded, operators_ns[:profiled])
    if told is None:
        raise BenchmarkError("too few runs to extrapolate")
    known_ns, later_ns = operators_ns[:profiled].sum(), operators_ns[profiled:count]
    least_ns = known_ns + np.maximum(later_ns - cost_ns, 0).sum()
    most_ns = known_ns + np.minimum(later_ns, as_recorded[profiled:]).sum()
    return Measured(float(least_ns), float(most_ns), told.total_ns, told.low_ns, told.high_ns)


def operators_of_runs(events: list[dict[str, Any]]) -> Any:
    """The time in operators by run, in the order of time."""
    starts = sorted(one["ts"] for one in events if one["name"] == "model_run")
    nodes = [one for one in events if one["cat"] == "Node"]
    at = np.array([one["ts"] for one in nodes])
    dur_ns = 1_000 * np.array([one["dur"] for one in nodes], np.float64)
    of_run = np.searchsorted(np.array(starts), at, side="right") - 1
    return np.bincount(of_run, weights=dur_ns, minlength=len(starts))


def add_known(report: Report, measured: list[Measured]) -> None:
    """How often the truth lies in the interval."""
    table = report.table(
        "Operators of all runs, by the first ones", "runs", "inside", "widths", "errors", "target"
    )
    inside = sum(one.is_inside for one in measured)
    widths = [(one.high_ns - one.low_ns) / 2 / one.total_ns for one in measured]
    errors = [2 * one.total_ns / (one.truth_low_ns + one.truth_high_ns) - 1 for one in measured]
    outside = 1 - inside / len(measured)
    table.add(
        str(len(measured)),
        f"{inside} of {len(measured)}",
        f"+- {100 * statistics.median(widths):.2f} %",
        f"{100 * min(errors):+.2f} to {100 * max(errors):+.2f} %",
        at_most(outside, 1 - LEAST_INSIDE + 1e-9, ">= 19 of 20 inside"),
    )
    report.data["known"] = [vars(one) for one in measured]
