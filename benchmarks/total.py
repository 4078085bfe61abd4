"""What a recording costs in all: the CPU time of the program and of all our processes from the
command to the prompt, over that of the program alone, and how much longer it takes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from measuring.intervals import mean_difference, median_ratio
from measuring.report import Report, at_most, interval
from measuring.runs import EXAMPLES, Done, Setting, execute, interleave

BUDGET_S = 480.0
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


WORKS = (
    Work("CNN, 6 epochs", ("mnist_cnn.py", "--epochs", "6"), 1.05, 1.05),
    Work("transformer, 600 steps", ("transformer.py", "--steps", "600"), 1.05, 1.05),
    Work("CNN, 2 loader workers", ("mnist_cnn.py", "--epochs", "1", "--workers", "2"), 1.08),
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
    )
    for work in WORKS[:1] if setting.quick else WORKS:
        script, *more = work.words
        found = turns(setting, [str(EXAMPLES / script), *more], setting.pairs)
        cpu = median_ratio(*of(found, cpu_ns))
        wall = median_ratio(*of(found, wall_ns))
        bare_s = statistics.median(one.cpu_ns for one in found["bare"]) / 1e9
        cpu_target = at_most(cpu.high, work.most_cpu, f"<= {work.most_cpu:.2f}")
        wall_target = ""
        if work.most_wall is not None:
            wall_target = at_most(wall.high, work.most_wall, f"<= {work.most_wall:.2f}")
        pairs = str(len(found["bare"]))
        cells = (work.name, pairs, f"{bare_s:.1f}", interval(cpu), cpu_target)
        table.add(*cells, interval(wall), wall_target)
        report.data[work.name] = {"cpu": cpu, "wall": wall, **numbers(found)}
    starts = report.table("Short programs", "program", "pairs", "added (CPU s)", "target")
    for start in STARTS:
        script = setting.folder / "short.py"
        script.write_text(start.code)
        found = turns(setting, [str(script)], setting.pairs)
        added = mean_difference(*of(found, cpu_ns)).scaled(1e-9)
        target = at_most(added.high, start.most_s, f"<= {start.most_s:g}")
        starts.add(start.name, str(len(found["bare"])), interval(added), target)
        report.data[start.name] = {"added_s": added, **numbers(found)}
    report.remarks.append(
        "Whole process trees by wait4: the program, session, drainer, sampler and converter, the "
        "summary included. Intervals are 95 %, by bootstrap over the pairs."
    )
    return report


def turns(setting: Setting, words: list[str], pairs: int) -> dict[str, list[Done]]:
    """Runs of the program with these words, bare and recorded; the first of each is left out."""
    program = [setting.program, *words]
    recorder = [setting.tool, "-m", "layerscope", "run", "-q"]

    def bare() -> Done:
        return execute(setting, program, timeout_s=300)[0]

    def recorded() -> Done:
        return execute(setting, [*recorder, "--", *program], timeout_s=300)[0]

    bare()
    recorded()
    return interleave({"bare": bare, "with": recorded}, pairs, BUDGET_S)


def cpu_ns(done: Done) -> int:
    """CPU time of a process and of all that it waited for."""
    return done.cpu_ns


def wall_ns(done: Done) -> int:
    """From its start to its end."""
    return done.wall_ns


def of(
    found: dict[str, list[Done]], what: Callable[[Done], int]
) -> tuple[list[float], list[float]]:
    """A figure of the runs with and without, in pairs."""
    return [what(one) for one in found["with"]], [what(one) for one in found["bare"]]


def numbers(found: dict[str, list[Done]]) -> dict[str, list[int]]:
    """All runs, to be kept."""
    return {
        f"{arm}_{name}": [what(one) for one in runs]
        for arm, runs in found.items()
        for name, what in (("cpu_ns", cpu_ns), ("wall_ns", wall_ns))
    }
