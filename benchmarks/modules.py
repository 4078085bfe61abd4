"""What recording the calls of modules costs: many small modules with and without us, and the price
of one call.
"""

from __future__ import annotations

import statistics
from functools import partial

from measuring.inside import compare, split
from measuring.intervals import mean_difference, mean_increase, median_ratio, ratio_of_medians
from measuring.report import Report, Table, at_most, interval
from measuring.runs import Setting, interleave, recorded
from overhead import Sample, arguments, run_plain, run_recorded

NAME = "modules"
TARGET = 1.10
BUDGET_S = 180.0
SECONDS, QUICK_SECONDS = 8.0, 1.0
BLOCK = 4


def run(setting: Setting) -> Report:
    """Pairs of processes, then one process compared with itself."""
    report = Report(
        "Modules: a program of nothing but small modules with layerscope run -q, over without"
    )
    words = arguments(setting, NAME)
    arms = {
        "without": partial(run_plain, setting, words),
        "with": partial(run_recorded, setting, words),
    }
    found = interleave(arms, setting.pairs, BUDGET_S)
    table = report.table(
        "Two processes, in turns", "CPU of", "pairs", "ratio of medians", "median ratio", "target"
    )
    compare_processes(table, report, found["with"], found["without"])
    table = report.table(
        "One process, in turns",
        "switched on and off",
        "blocks",
        "step",
        "a step",
        "ratio",
        "ns each",
        "target",
    )
    compare_inside(setting, table, report)
    report.remarks += [
        "Loop: process CPU time over the steps, printed by the program; whole process: wait4, with "
        "interpreter, "
        "imports and exit. Intervals are 95 %; targets are for their upper ends.",
        "A step is one call of examples/many_small_modules.py's stack of 100 blocks: 301 module "
        "calls.",
        "The calls of modules alone: operators are recorded on both sides.",
    ]
    return report


def compare_processes(
    table: Table, report: Report, with_us: list[Sample], without: list[Sample]
) -> None:
    """The loop, and the whole process with its start."""
    for what, field in (("loop", "loop_cpu_ns"), ("whole process", "whole_cpu_ns")):
        samples = [getattr(one, field) for one in with_us], [getattr(one, field) for one in without]
        ratio, paired = ratio_of_medians(*samples), median_ratio(*samples)
        target = at_most(paired.high, TARGET, f"<= {TARGET:.2f}") if field == "loop_cpu_ns" else ""
        table.add(what, str(len(with_us)), interval(ratio), interval(paired), target)
        report.data[what] = {
            "with": samples[0],
            "without": samples[1],
            "ratio": ratio,
            "median_ratio": paired,
        }


def compare_inside(setting: Setting, table: Table, report: Report) -> None:
    """All of the recording, and the hook of modules alone."""
    whole = compare(setting, NAME)
    table.add(
        "all of the recording",
        str(whole.blocks),
        f"{whole.step_ns / 1e6:.3f} ms",
        f"{whole.operators:.0f} spans",
        interval(whole.ratio, 4),
        interval(whole.operator_ns, 0),
        at_most(whole.ratio.high, TARGET, f"<= {TARGET:.2f}"),
    )
    seconds = QUICK_SECONDS if setting.quick else SECONDS
    words = [NAME, "--toggle", "modules", "--block", str(BLOCK), "--seconds", str(seconds)]
    with recorded(setting, "workload.py", *words) as run:
        said = run.done.json
    on, off = split(said["blocks"])
    calls = said["calls"]
    ratio = mean_increase(on.sum(1), off.sum(1))
    call_ns = mean_difference(on.sum(1), off.sum(1)).scaled(1 / (BLOCK * calls))
    step_ms = statistics.median(off.sum(1)) / BLOCK / 1e6
    table.add(
        "the calls of modules alone",
        str(len(on)),
        f"{step_ms:.3f} ms",
        f"{calls} calls",
        interval(ratio, 4),
        interval(call_ns, 0),
        "",
    )
    report.data["calls"] = {"ratio": ratio, "call_ns": call_ns, "calls": calls}
