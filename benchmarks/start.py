"""What starting costs: importing layerscope, and the door into a Python program before its own
code.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from measuring.intervals import mean_difference
from measuring.report import Report, Table, at_most, interval
from measuring.runs import Setting, execute, interleave, last_words, recorded

from layerscope.capture import agent

IMPORT_MS, DOOR_MS = 40.0, 6.0
MANY = 2  # a start is short: twice the pairs of the other benchmarks
BUDGET_S = 40.0


def run(setting: Setting) -> Report:
    """Processes that do nothing, in turns."""
    report = Report("Start: CPU time before anything is done")
    table = report.table(
        "CPU of whole processes, in turns", "what", "pairs", "bare", "with", "added (ms)", "target"
    )
    ours = partial(python_cpu_ns, setting, setting.tool)
    theirs = partial(python_cpu_ns, setting, setting.program)
    door = str(agent.make_door(setting.folder / "door", "layerscope-bench-nobody-listens", True))
    compare(
        setting,
        report,
        table,
        "import layerscope",
        ours("pass"),
        ours("import layerscope"),
        IMPORT_MS,
    )
    compare(
        setting,
        report,
        table,
        "the door, python -c pass",
        theirs("pass"),
        theirs("pass", door),
        DOOR_MS,
    )
    compare(
        setting,
        report,
        table,
        "layerscope --version",
        ours("pass"),
        ours("--version", module=True),
        None,
    )
    inside = report.table(
        "Inside a program that imports torch (once a process)", "what", "runs", "median (ms)"
    )
    spent = [agent_ms(setting) for _ in range(2 if setting.quick else 5)]
    inside.add(
        "loading the agent and its two memories, finding torch's functions",
        str(len(spent)),
        f"{statistics.median(spent):.2f}",
    )
    report.data["agent_ms"] = spent
    report.remarks.append(
        "Added: trimmed mean of the differences within the pairs; the upper end counts."
    )
    return report


def python_cpu_ns(
    setting: Setting, python: str, code: str, door: str = "", module: bool = False
) -> Callable[[], int]:
    """A measurement of one Python process that runs `code`, or layerscope with `code` as its
    argument.
    """
    command = [python, "-m", "layerscope", code] if module else [python, "-c", code]
    environment = ["env", f"PYTHONPATH={door}"] if door else ["env"]
    return lambda: execute(setting, [*environment, *command])[0].cpu_ns


def compare(
    setting: Setting,
    report: Report,
    table: Table,
    what: str,
    bare: Callable[[], int],
    more: Callable[[], int],
    target_ms: float | None,
) -> None:
    """One row."""
    found = interleave({"bare": bare, "with": more}, setting.pairs * MANY, BUDGET_S)
    added = mean_difference(found["with"], found["bare"]).scaled(1e-6)
    medians = [f"{statistics.median(found[arm]) / 1e6:.1f} ms" for arm in ("bare", "with")]
    target = at_most(added.high, target_ms, f"<= {target_ms:g} ms") if target_ms else ""
    table.add(what, str(len(found["bare"])), *medians, interval(added, 2), target)
    report.data[what] = {"added_ms": added, **found}


def agent_ms(setting: Setting) -> float:
    """What the agent's own Python says that it took in a recorded program."""
    with recorded(setting, "workload.py", "tiny", "--steps", "10") as run:
        return float(last_words(run.run)["agent_cpu_ns"]) / 1e6
