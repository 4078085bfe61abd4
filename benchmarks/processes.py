"""What recording adds to programs of several processes: the CPU time of all of them over that
without.
"""

from __future__ import annotations

from functools import partial

from measuring.intervals import median_ratio, ratio_of_medians
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, interleave, plain, recorded

STEPS = {"loader": 90, "ddp": 250}
NAMES = {
    "loader": "training and 2 DataLoader workers",
    "ddp": "2 ranks, DistributedDataParallel over gloo",
}
TARGET = 1.04
BUDGET_S = 150.0

# CPU time of the loop, and of the whole program with imports and exit.
Sample = tuple[int, int]


def run(setting: Setting) -> Report:
    """Pairs of runs, with and without, in turns."""
    report = Report("Several processes: their CPU time with layerscope run -q, over without")
    table = report.table(
        "Two runs, in turns",
        "program",
        "pairs",
        "ratio of medians",
        "median ratio",
        "whole program",
        "target",
    )
    for name, what in NAMES.items():
        words = [name, "--steps", str(STEPS[name] // (3 if setting.quick else 1))]
        arms = {
            "without": partial(run_plain, setting, words),
            "with": partial(run_recorded, setting, words),
        }
        found = interleave(arms, setting.pairs, BUDGET_S)
        loops = [one[0] for one in found["with"]], [one[0] for one in found["without"]]
        wholes = [one[1] for one in found["with"]], [one[1] for one in found["without"]]
        paired = median_ratio(*loops)
        table.add(
            what,
            str(len(loops[0])),
            interval(ratio_of_medians(*loops)),
            interval(paired),
            interval(ratio_of_medians(*wholes)),
            at_most(paired.high, TARGET, f"<= {TARGET:.2f}"),
        )
        report.data[name] = {
            "loop_cpu_ns": {"with": loops[0], "without": loops[1]},
            "whole_cpu_ns": {"with": wholes[0], "without": wholes[1]},
            "median_ratio": paired,
        }
    report.remarks.append(
        "Loop: CPU time of the training process and its workers, or of both ranks, by their own "
        "account; the processes "
        "are forked after `import torch`. Whole program: wait4, with interpreter and imports. "
        "Intervals are 95 %."
    )
    return report


def run_plain(setting: Setting, words: list[str]) -> Sample:
    """Without layerscope."""
    done = plain(setting, "processes.py", *words)
    return done.json["cpu_ns"], done.cpu_ns


def run_recorded(setting: Setting, words: list[str]) -> Sample:
    """With layerscope."""
    with recorded(setting, "processes.py", *words) as run:
        return run.done.json["cpu_ns"], run.program_cpu_ns
