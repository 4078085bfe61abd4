"""From the end of the program to the prompt: how long one waits for the summary."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from measuring.report import Report, at_most
from measuring.runs import BenchmarkError, Setting, recorded

BASE_S, PER_MILLION_S = 0.7, 0.6
OPERATORS = {1_000: 5, 250_000: 3, 1_000_000: 3, 3_000_000: 2}  # and how often
QUICK_OPERATORS = {1_000: 1, 250_000: 1, 1_000_000: 1}
WATCH_S = 0.25


@dataclass(frozen=True)
class Ending:
    """One run: seconds from the end of the program to other ends, and the CPU that we used in
    them.
    """

    operators: int
    drained_s: float
    converted_s: float
    prompt_s: float
    cpu_s: float


def run(setting: Setting) -> Report:
    """Short to long runs of tiny operators, with the summary printed."""
    report = Report("End: from the program's end to the prompt, the summary printed")
    table = report.table(
        "Seconds after the program's end",
        "operators",
        "runs",
        "drainer ends",
        "converter ends",
        "prompt",
        "slowest",
        "CPU of ours",
        "target",
    )
    for operators, times in (QUICK_OPERATORS if setting.quick else OPERATORS).items():
        endings = [one(setting, operators) for _ in range(times)]
        columns = ("drained_s", "converted_s", "prompt_s")
        medians = [
            statistics.median(getattr(ending, name) for ending in endings) for name in columns
        ]
        target = BASE_S + PER_MILLION_S * operators / 1e6
        table.add(
            f"{operators:,}",
            str(times),
            *(f"{value:.2f}" for value in medians),
            f"{max(ending.prompt_s for ending in endings):.2f}",
            f"{statistics.median(ending.cpu_s for ending in endings):.2f}",
            at_most(medians[2], target, f"<= {target:.2f} s"),
        )
        report.data[str(operators)] = [vars(ending) for ending in endings]
    report.remarks.append(
        "Wall time: busy cores make it longer. The median counts. The CPU is that of all our "
        "processes."
    )
    return report


def one(setting: Setting, operators: int) -> Ending:
    """Record one run and watch its processes end."""
    words = ["--operators", str(operators)]
    with recorded(setting, "many_small_ops.py", *words, quiet=False, watch_every_s=WATCH_S) as run:
        watch = run.watch
        if watch is None or "program" not in watch.ended_ns:
            raise BenchmarkError("the program's end was not seen")
        end_ns = watch.ended_ns["program"]
        ends = [watch.ended_ns.get(role, end_ns) for role in ("drainer", "converter")]
        drained, converted, prompt = ((at_ns - end_ns) / 1e9 for at_ns in (*ends, run.done.end_ns))
        cpu_s = (run.done.cpu_ns - watch.cpu_at_program_end_ns) / 1e9
        return Ending(run.rows("spans"), drained, converted, prompt, cpu_s)
