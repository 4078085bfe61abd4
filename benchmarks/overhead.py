"""What recording adds to a program's own CPU time, and what our processes use beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from measuring.inside import compare, compare_other
from measuring.intervals import median_ratio, ratio_of_medians
from measuring.report import Report, Table, at_most, interval
from measuring.runs import Done, Recorded, Setting, interleave, plain, recorded

# Steps of a run: more than half a second each; quick: a third of it.
STEPS = {"tiny": 200, "mlp": 100, "mlp_loader": 300, "cnn": 30, "transformer": 12, "modules": 400}
NO_TSC = "tiny, no TSC"
OTHERS = {"profiler": "torch.profiler", "empty": "a callback that does nothing"}
TARGETS = {
    "tiny": 1.10,
    NO_TSC: 1.17,
    "mlp": 1.03,
    "cnn": 1.03,
    "cnn, 2 threads": 1.03,
    "transformer": 1.03,
    "modules": 1.03,
}
BUDGET_S = {
    "tiny": 220.0,
    "mlp": 105.0,
    "mlp_loader": 105.0,
    "cnn": 110.0,
    "cnn, 2 threads": 110.0,
    "transformer": 130.0,
    "modules": 90.0,
}


@dataclass(frozen=True)
class Sample:
    """One run: the loop by the program's own account, the whole process by the kernel's, and ours
    beside it.
    """

    loop_cpu_ns: int
    loop_wall_ns: int
    whole_cpu_ns: int
    drainer_ns: int = 0
    converter_ns: int = 0
    ours_ns: int = 0


Arms = dict[str, Callable[[], Sample]]


def run(setting: Setting) -> Report:
    """Pairs of processes, then one process compared with itself."""
    report = Report("Overhead: the program's own CPU time with layerscope run -q, over without")
    processes = report.table(
        "Two processes, in turns",
        "workload",
        "pairs",
        "ratio of medians",
        "median ratio",
        "whole process",
        "target",
    )
    beside = report.table(
        "Beside it",
        "workload",
        "program (CPU s)",
        "drainer (s)",
        "converter (s)",
        "all of ours (s)",
        "loop's wall time",
    )
    for workload, arms in workloads(setting).items():
        found = interleave(arms, setting.pairs, BUDGET_S[workload])
        without = found.pop("without")
        for name, samples in found.items():
            compare_processes(processes, report, name, samples, without)
            if name != "torch.profiler":
                account(beside, name, samples, without)
    compare_inside(setting, report)
    report.remarks += [
        "Loop: process CPU time over the steps, printed by the program; whole process: wait4, with "
        "interpreter, "
        "imports and exit. Intervals are 95 %, by bootstrap over the pairs; targets are for the "
        "upper ends.",
        "All of ours: the whole of `layerscope run` by wait4 without the program: session, "
        "drainer, converter, "
        "from the command to the prompt, start-up and the last conversion included.",
        "One process compared with itself: callbacks taken away and put back every few "
        "milliseconds, with drainer and "
        "converter at work as usual. What they take from shared caches is in both sides of it.",
        "A callback that does nothing: what PyTorch itself takes for calling one, the least that a "
        "recorder can cost.",
    ]
    return report


def workloads(setting: Setting) -> dict[str, Arms]:
    """Per workload what runs in turns."""
    tiny = arguments(setting, "tiny")
    found: dict[str, Arms] = {
        "tiny": {
            "without": partial(run_plain, setting, tiny),
            "tiny": partial(run_recorded, setting, tiny),
            NO_TSC: partial(run_recorded, setting, tiny, tsc=False),
            "torch.profiler": partial(run_plain, setting, [*tiny, "--profiler"]),
        }
    }
    if setting.quick:
        del found["tiny"]["torch.profiler"]
    threads = {"cnn, 2 threads": ["--threads", "2"]}
    for name in [name for name in BUDGET_S if name != "tiny"]:
        if name.startswith("cnn") and setting.quick:
            continue
        words = [*arguments(setting, name.partition(",")[0]), *threads.get(name, [])]
        found[name] = {
            "without": partial(run_plain, setting, words),
            name: partial(run_recorded, setting, words),
        }
    return found


def arguments(setting: Setting, name: str) -> list[str]:
    """Of the workload program."""
    return [name, "--steps", str(STEPS[name] // (3 if setting.quick else 1))]


def run_plain(setting: Setting, words: list[str]) -> Sample:
    """Without layerscope."""
    return sample(plain(setting, "workload.py", *words))


def run_recorded(setting: Setting, words: list[str], tsc: bool = True) -> Sample:
    """With layerscope."""
    with recorded(setting, "workload.py", *words, tsc=tsc) as run:
        return sample(run.done, run)


def sample(done: Done, run: Recorded | None = None) -> Sample:
    """The figures of one run."""
    said = done.json
    if run is None:
        return Sample(said["cpu_ns"], said["wall_ns"], done.cpu_ns)
    cost = run.run.info.cost
    return Sample(
        said["cpu_ns"],
        said["wall_ns"],
        run.program_cpu_ns,
        cost.drainer_cpu_ns,
        cost.converter_cpu_ns,
        run.ours_cpu_ns,
    )


def compare_processes(
    table: Table, report: Report, name: str, samples: list[Sample], without: list[Sample]
) -> None:
    """One row: the loop in two estimates, the whole process in one."""
    loops = [s.loop_cpu_ns for s in samples], [s.loop_cpu_ns for s in without]
    ratio, paired = ratio_of_medians(*loops), median_ratio(*loops)
    whole = ratio_of_medians([s.whole_cpu_ns for s in samples], [s.whole_cpu_ns for s in without])
    target = (
        at_most(paired.high, TARGETS[name], f"<= {TARGETS[name]:.2f}") if name in TARGETS else ""
    )
    table.add(name, str(len(samples)), interval(ratio), interval(paired), interval(whole), target)
    report.data[name] = {
        "loop_cpu_ns": {"with": loops[0], "without": loops[1]},
        "whole_cpu_ns": {
            "with": [s.whole_cpu_ns for s in samples],
            "without": [s.whole_cpu_ns for s in without],
        },
        "ratio_of_medians": ratio,
        "median_ratio": paired,
        "whole_ratio": whole,
    }


def account(table: Table, name: str, samples: list[Sample], without: list[Sample]) -> None:
    """One row about our own processes, medians."""

    def seconds(field: str) -> str:
        return f"{statistics.median(getattr(s, field) for s in samples) / 1e9:.2f}"

    wall = median_ratio([s.loop_wall_ns for s in samples], [s.loop_wall_ns for s in without])
    names = ("whole_cpu_ns", "drainer_ns", "converter_ns", "ours_ns")
    table.add(name, *map(seconds, names), interval(wall))


def compare_inside(setting: Setting, report: Report) -> None:
    """The same questions with far less noise."""
    table = report.table(
        "One process, callbacks on and off in turns",
        "workload",
        "blocks",
        "step",
        "operators a step",
        "ratio",
        "ns an operator",
        "target",
    )
    for name in ("tiny", NO_TSC, "mlp", "mlp_loader", "cnn", "transformer", "modules"):
        if name == NO_TSC and setting.quick:
            continue
        found = compare(setting, "tiny" if name == NO_TSC else name, name != NO_TSC)
        target = f"<= {TARGETS[name]:.2f}" if name in TARGETS else ""
        table.add(
            name,
            str(found.blocks),
            f"{found.step_ns / 1e6:.3f} ms",
            f"{found.operators:.0f}",
            interval(found.ratio, 4),
            interval(found.operator_ns, 0),
            at_most(found.ratio.high, TARGETS[name], target) if target else "",
        )
        for part in found.parts if len(found.parts) > 1 else []:
            verdict = (
                at_most(part.ratio.high, TARGETS[name], target)
                if target and part.name == "learning"
                else ""
            )
            table.add(f"  its {part.name}", "", "", "", interval(part.ratio, 4), "", verdict)
        report.data[f"{name}, inside"] = asdict(found)
        if found.dropped:
            report.remarks.append(f"{name}: {found.dropped} records were dropped.")
    others = [("tiny", "profiler"), ("tiny", "empty"), ("mlp", "empty"), ("mlp_loader", "empty")]
    for name, switch in others[: 2 if setting.quick else None]:
        ratios = compare_other(setting, name, switch)
        for what, ratio in zip(
            (f"{OTHERS[switch]}, {name}", "  its loading", "  its learning"), ratios, strict=False
        ):
            table.add(what, "", "", "", interval(ratio, 4), "", "")
        report.data[f"{OTHERS[switch]}, {name}, inside"] = {"ratios": ratios}
