"""What LAYERSCOPE_AUTOSTART=standby costs a program that nobody records: CPU time of its start, and
of an operator.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from measuring.intervals import mean_difference, mean_increase
from measuring.report import Report, at_most, interval
from measuring.runs import PROGRAMS, Setting, execute, interleave

ROOT = Path(__file__).resolve().parents[1]
BARE, NOT_ASKED, STANDBY = "bare", "installed, variable not set", "standby"
MANY = 2  # a start is short: twice the pairs of the other benchmarks
BUDGET_S = 60.0
START_MS = 1.0
OPERATORS = 3000  # of a step of programs/workload.py tiny
STEPS = 400
NOTHING = 1.01


def run(setting: Setting) -> Report:
    """Starts, then operators, in turns."""
    report = Report("Standby: a door into a program that nobody records")
    starts = report.table(
        "CPU of whole processes, python -c pass, in turns",
        "what",
        "pairs",
        "bare",
        "with",
        "added (ms)",
        "target",
    )
    line = (ROOT / "src" / "layerscope_autostart.pth").read_text().strip()
    code = setting.folder / "standby.py"
    code.write_text(f"exec({line!r})\n")
    empty = setting.folder / "bare.py"
    empty.write_text("")
    arms = {
        BARE: python(setting, [str(empty)], ""),
        NOT_ASKED: python(setting, [str(code)], ""),
        STANDBY: python(setting, [str(code)], "standby"),
    }
    found = interleave(arms, setting.pairs * MANY, BUDGET_S)
    for what in (NOT_ASKED, STANDBY):
        added = mean_difference(found[what], found[BARE]).scaled(1e-6)
        medians = [f"{statistics.median(found[arm]) / 1e6:.1f} ms" for arm in (BARE, what)]
        target = at_most(added.high, START_MS, f"<= {START_MS:g} ms")
        starts.add(what, str(len(found[what])), *medians, interval(added, 2), target)
        report.data[what] = {"added_ms": added, **found}
    measure_operators(setting, report, line)
    report.remarks.append(
        "Trimmed means of the differences within the pairs; the upper end counts. The .pth file "
        "that an installation has is executed by the program's first line here."
    )
    return report


def measure_operators(setting: Setting, report: Report, line: str) -> None:
    """A loop of small operators with the door and without."""
    table = report.table(
        "CPU of a loop of small operators, in turns",
        "pairs",
        "over bare",
        "added to an operator (ns)",
        "target",
    )
    program = setting.folder / "loop.py"
    workload = str(PROGRAMS / "workload.py")
    call = f"runpy.run_path({workload!r}, run_name='__main__')"
    program.write_text(f"import runpy\nexec({line!r})\n{call}\n")
    steps = STEPS // (4 if setting.quick else 1)
    words = [str(program), "tiny", "--steps", str(steps)]
    arms = {BARE: loop(setting, words, ""), STANDBY: loop(setting, words, "standby")}
    found = interleave(arms, setting.pairs, 2 * BUDGET_S)
    ratio = mean_increase(found[STANDBY], found[BARE])
    each = mean_difference(found[STANDBY], found[BARE]).scaled(1 / (steps * OPERATORS))
    target = at_most(ratio.high, NOTHING, f"<= {NOTHING:g}")
    table.add(str(len(found[BARE])), interval(ratio, 4), interval(each, 1), target)
    report.data["operators"] = {"ratio": ratio, "each_ns": each, **found}


def command(setting: Setting, words: list[str], variable: str) -> list[str]:
    """The program's Python with the variable and where layerscope is."""
    path = f"PYTHONPATH={ROOT / 'src'}"
    asked = [f"LAYERSCOPE_AUTOSTART={variable}"] if variable else []
    return ["env", path, *asked, setting.program, *words]


def python(setting: Setting, words: list[str], variable: str) -> Callable[[], int]:
    """CPU time of a process."""
    return lambda: execute(setting, command(setting, words, variable))[0].cpu_ns


def loop(setting: Setting, words: list[str], variable: str) -> Callable[[], int]:
    """CPU time of the operators, by the program's own account."""

    def measured() -> int:
        done, _ = execute(setting, command(setting, words, variable))
        return int(done.json["cpu_ns"])

    return measured
