"""What `layerscope run --shapes` adds to a program's own CPU time: tiny operators, a perceptron, a
CNN.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from measuring.inside import BLOCKS, PROFILED_BLOCK, split
from measuring.intervals import mean_difference, mean_increase, median_ratio, ratio_of_medians
from measuring.report import Report, Table, at_most, interval
from measuring.runs import BenchmarkError, Setting, interleave, plain, recorded
from overhead import Sample, arguments, run_plain, sample

from layerscope.recording.reader import Reader

OPTIONS = ("--shapes",)
TARGETS = {"tiny": 1.25, "mlp": 1.05, "cnn": 1.05}
SECONDS = {"tiny": 6.0, "mlp": 15.0, "cnn": 25.0}
QUICK_SECONDS = 1.0
BUDGET_S = 120.0
OTHERS = {
    "empty_inputs": "a callback that does nothing and asks for inputs",
    "profiler_shapes": "torch.profiler(record_shapes=True)",
}


def run(setting: Setting) -> Report:
    """One process compared with itself, then pairs of processes."""
    report = Report(
        "Shapes: the program's own CPU time with layerscope run -q --shapes, over without"
    )
    with recorded(setting, "workload.py", "tiny", "--steps", "5", options=OPTIONS):
        pass  # compiles, as the first run of a user does
    table = report.table(
        "One process, callbacks on and off in turns",
        "workload",
        "blocks",
        "operators a step",
        "ratio",
        "ns an operator",
        "different shapes",
        "target",
    )
    for name in TARGETS:
        compare_inside(setting, name, table, report)
    for switch, what in OTHERS.items():
        compare_other(setting, switch, what, table, report)
    words = arguments(setting, "tiny")
    arms = {
        "without": partial(run_plain, setting, words),
        "with": partial(run_recorded, setting, words),
    }
    found = interleave(arms, setting.pairs, BUDGET_S)
    samples = (
        [one.loop_cpu_ns for one in found["with"]],
        [one.loop_cpu_ns for one in found["without"]],
    )
    table = report.table(
        "Two processes, in turns", "workload", "pairs", "ratio of medians", "median ratio"
    )
    ratios = ratio_of_medians(*samples), median_ratio(*samples)
    table.add("tiny", str(len(samples[0])), *map(interval, ratios))
    report.data["tiny, processes"] = {"with": samples[0], "without": samples[1], "ratios": ratios}
    report.remarks += [
        "Intervals are 95 %; targets are for their upper ends. Compiling is not in it: it comes "
        "once for a PyTorch.",
        "A callback that asks for inputs has PyTorch put them all into a list of its own first, "
        "for every operator: "
        "the least that a recorder of shapes can cost.",
    ]
    return report


def run_recorded(setting: Setting, words: list[str]) -> Sample:
    """With layerscope and shapes."""
    with recorded(setting, "workload.py", *words, options=OPTIONS) as run:
        return sample(run.done, run)


def compare_inside(setting: Setting, name: str, table: Table, report: Report) -> None:
    """One workload with itself."""
    seconds = QUICK_SECONDS if setting.quick else SECONDS[name]
    words = [name, "--toggle", "recording", "--block", str(BLOCKS[name]), "--seconds", str(seconds)]
    with recorded(setting, "workload.py", *words, options=OPTIONS) as run:
        found = run.done.json
        with Reader(run.run) as reader:
            starts = np.sort(reader.arrays("spans", ["start_ns"])["start_ns"])
            (told,) = reader.query(
                "SELECT count(args) AS told, count(DISTINCT args) AS different FROM spans"
            ).to_pylist()
    if not told["told"]:
        raise BenchmarkError("no shapes were recorded")
    on, off = split(found["blocks"])
    windows = np.array([block["window_ns"] for block in found["blocks"] if block["on"]])
    inside = np.searchsorted(starts, windows[:, 1]) - np.searchsorted(starts, windows[:, 0])
    operators = float(inside.mean()) / found["block"]
    ratio = mean_increase(on.sum(1), off.sum(1))
    operator_ns = mean_difference(on.sum(1), off.sum(1)).scaled(1 / found["block"] / operators)
    target = at_most(ratio.high, TARGETS[name], f"<= {TARGETS[name]:.2f}")
    shown = (
        f"{operators:.0f}",
        interval(ratio, 4),
        interval(operator_ns, 0),
        str(told["different"]),
        target,
    )
    table.add(name, str(len(on)), *shown)
    report.data[f"{name}, inside"] = {
        "ratio": ratio,
        "operator_ns": operator_ns,
        "different": told["different"],
    }


def compare_other(setting: Setting, switch: str, what: str, table: Table, report: Report) -> None:
    """The same with something else than layerscope."""
    seconds = QUICK_SECONDS if setting.quick else SECONDS["tiny"]
    block = PROFILED_BLOCK if switch.startswith("profiler") else BLOCKS["tiny"]
    words = ["tiny", "--toggle", switch, "--block", str(block), "--seconds", str(seconds)]
    on, off = split(plain(setting, "workload.py", *words).json["blocks"])
    ratio = mean_increase(on.sum(1), off.sum(1))
    table.add(f"{what}, tiny", str(len(on)), "", interval(ratio, 4), "", "", "")
    report.data[f"{switch}, inside"] = {"ratio": ratio}
