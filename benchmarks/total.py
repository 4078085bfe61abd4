"""What a recording costs in all: the CPU time of the program and of all our processes from the
command to the prompt, over that of the program alone, and how much longer it takes. And whether the
recording says so itself, in the line "Overhead" of its summary.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from measuring.intervals import Interval, mean_difference, median_ratio
from measuring.report import Report, at_most, interval
from measuring.runs import EXAMPLES, Setting, execute, interleave
from measuring.runs import recorded as run_recorded

from layerscope.analyse.recording_cost import cost_of
from layerscope.recording.run import RunInfo

BUDGET_S = 480.0
# What a recording states of its cost may differ by so much from what was measured.
STATED_WITHIN = 0.2
# Short programs are run so many times as often.
MORE_PAIRS = 4
BUDGET = "5%"
ONE_LINE = "print(1)"
FEW_OPERATORS = "import torch\nx = torch.zeros(4)\nfor _ in range(100):\n    x = x + 1\n"


@dataclass(frozen=True)
class Work:
    """A program whose cost is compared as a ratio. Targets are for the upper ends."""

    name: str
    words: tuple[str, ...]
    most_cpu: float
    most_wall: float | None = None


@dataclass(frozen=True)
class Start:
    """A short program: what is added is CPU time, in seconds, at most `most_s`."""

    name: str
    code: str
    most_s: float


@dataclass(frozen=True)
class Whole:
    """A run to the prompt: what it took, what the recording states of its own CPU time, and which
    part of the run it recorded.
    """

    cpu_ns: int
    wall_ns: int
    stated_ns: int = 0
    recorded_share: float = 1.0


# Of 20 s of CPU time and more: what is paid once is in the short programs.
WORKS = (
    Work("CNN, 6 epochs", ("mnist_cnn.py", "--epochs", "6"), 1.05, 1.05),
    Work("transformer, 600 steps", ("transformer.py", "--steps", "600"), 1.05, 1.05),
    Work("CNN, 2 loader workers", ("mnist_cnn.py", "--epochs", "4", "--workers", "2"), 1.08),
)
STARTS = (
    Start("one line", ONE_LINE, 0.6),
    Start("import torch, 100 operators", FEW_OPERATORS, 0.8),
)


def run(setting: Setting) -> Report:
    """Whole processes, in turns."""
    report = Report("Total: CPU time and wall time with all default layers, over without")
    table = report.table(
        "Programs of some seconds",
        "program",
        "pairs",
        "bare (CPU s)",
        "CPU",
        "target",
        "wall",
        "target",
        "stated",
        "stated / measured",
        f"CPU with --budget {BUDGET}",
        "target",
        "wall",
        "recorded",
    )
    for work in WORKS[:1] if setting.quick else WORKS:
        script, *more = work.words
        found = turns(setting, [str(EXAMPLES / script), *more], setting.pairs, BUDGET)
        cpu = median_ratio(*of(found, cpu_ns))
        wall = median_ratio(*of(found, wall_ns))
        bare_s = statistics.median(one.cpu_ns for one in found["bare"]) / 1e9
        cpu_target = at_most(cpu.high, work.most_cpu, f"<= {work.most_cpu:.2f}")
        wall_target = ""
        if work.most_wall is not None:
            wall_target = at_most(wall.high, work.most_wall, f"<= {work.most_wall:.2f}")
        pairs = str(len(found["bare"]))
        cells = (work.name, pairs, f"{bare_s:.1f}", interval(cpu), cpu_target)
        added = median_difference(found)
        stated_ns = statistics.median(of(found, stated_ns_of)[0])
        cells += (interval(wall), wall_target, f"{1 + stated_ns / 1e9 / bare_s:.3f}")
        table.add(*cells, agreement(stated_ns, added), *budget_cells(found, work))
        report.data[work.name] = {"cpu": cpu, "wall": wall, **numbers(found)}
    starts = report.table(
        "Short programs",
        "program",
        "pairs",
        "added (CPU s)",
        "target",
        "stated",
        "stated / measured",
    )
    for start in STARTS:
        script = setting.folder / "short.py"
        script.write_text(start.code)
        found = turns(setting, [str(script)], MORE_PAIRS * setting.pairs)
        added = mean_difference(*of(found, cpu_ns)).scaled(1e-9)
        target = at_most(added.high, start.most_s, f"<= {start.most_s:g}")
        stated_ns = statistics.median(of(found, stated_ns_of)[0])
        cells = (start.name, str(len(found["bare"])), interval(added), target)
        starts.add(*cells, f"{stated_ns / 1e9:.3f}", agreement(stated_ns, added.scaled(1e9)))
        report.data[start.name] = {"added_s": added, **numbers(found)}
    report.remarks.append(
        "Whole process trees by wait4: the program, session, drainer, sampler and converter, the "
        "summary included. Intervals are 95 %, by bootstrap over the pairs."
    )
    return report


def budget_cells(found: dict[str, list[Whole]], work: Work) -> tuple[str, ...]:
    """What it costs with a budget, and how much of the program is recorded then."""
    cpu = median_ratio(*of(found, cpu_ns, "budget"))
    wall = median_ratio(*of(found, wall_ns, "budget"))
    target = at_most(cpu.high, work.most_cpu, f"<= {work.most_cpu:.2f}")
    part = statistics.median(one.recorded_share for one in found["budget"])
    return interval(cpu), target, interval(wall), f"{100 * part:.0f} %"


def turns(
    setting: Setting, words: list[str], pairs: int, budget: str = ""
) -> dict[str, list[Whole]]:
    """Runs of the program with these words, bare, recorded, and recorded with a budget where one is
    given; the first of each is left out.
    """

    def bare() -> Whole:
        done, _ = execute(setting, [setting.program, *words], timeout_s=300)
        return Whole(done.cpu_ns, done.wall_ns)

    def recorded(*options: str) -> Whole:
        with run_recorded(setting, *words, timeout_s=300, options=options) as run:
            info = run.run.info
            return Whole(run.done.cpu_ns, run.done.wall_ns, stated_by(info), part_of(info))

    arms = {"bare": bare, "with": recorded}
    if budget:
        arms["budget"] = lambda: recorded("--budget", budget)
    for one in arms.values():
        one()
    return interleave(arms, pairs, BUDGET_S)


def part_of(info: RunInfo) -> float:
    """Which part of its time a program was recorded."""
    found = re.match(r"([\d.]+) of ([\d.]+) s", info.window)
    return float(found[1]) / float(found[2]) if found else 1.0


def stated_by(info: RunInfo) -> int:
    """CPU time that a recording says it took, in the program and beside it."""
    cost = cost_of(info)
    program_ns = info.program.user_ns + info.program.system_ns
    inside_ns = (cost.inside or 0) * program_ns
    return round(inside_ns + sum(cost.beside_ns.values()))


def median_difference(found: dict[str, list[Whole]]) -> Interval:
    """CPU time that was added, in ns: the median ratio less one, of the median without."""
    bare_ns = statistics.median(one.cpu_ns for one in found["bare"])
    ratio = median_ratio(*of(found, cpu_ns))
    return Interval(*((end - 1) * bare_ns for end in ratio))


def agreement(stated_ns: float, measured_ns: Interval) -> str:
    """What is stated over what was measured. Where the interval lies on both sides of a limit it
    answers nothing.
    """
    if measured_ns.low <= 0:
        return "open"
    ratio = Interval(*(stated_ns / end for end in (measured_ns[0], *measured_ns[:0:-1])))
    low, high = 1 - STATED_WITHIN, 1 + STATED_WITHIN
    verdict = "open"
    if low <= ratio.low and ratio.high <= high:
        verdict = "within 20 %"
    elif ratio.high < low or ratio.low > high:
        verdict = "MISSED"
    return f"{interval(ratio, 2)}: {verdict}"


def cpu_ns(one: Whole) -> int:
    """CPU time of a process and of all that it waited for."""
    return one.cpu_ns


def wall_ns(one: Whole) -> int:
    """From its start to its end."""
    return one.wall_ns


def stated_ns_of(one: Whole) -> int:
    """What the recording says of its own cost."""
    return one.stated_ns


def of(
    found: dict[str, list[Whole]], what: Callable[[Whole], int], arm: str = "with"
) -> tuple[list[float], list[float]]:
    """A figure of the runs with and without, in pairs."""
    return [what(one) for one in found[arm]], [what(one) for one in found["bare"]]


def numbers(found: dict[str, list[Whole]]) -> dict[str, list[int]]:
    """All runs, to be kept."""
    return {
        f"{arm}_{name}": [what(one) for one in runs]
        for arm, runs in found.items()
        for name, what in (("cpu_ns", cpu_ns), ("wall_ns", wall_ns), ("stated_ns", stated_ns_of))
    }
