"""Whether the cost that a recording states is the cost that it has."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from measuring.inside import Comparison, compare
from measuring.intervals import Interval
from measuring.report import Report, Table, interval
from measuring.runs import Setting, execute, warm_up

from layerscope.collect import probe

WITHIN = 0.30
WORKLOADS = ("tiny", "mlp", "cnn")
ASKED = 5


def run(setting: Setting) -> Report:
    """Three programs, each compared with itself."""
    report = Report("Stated: what run.json says that recording cost, over what it cost")
    table = report.table(
        "A step with the callbacks, less the same step without",
        "program", "blocks", "operators a step", "measured (us)", "measured", "ns an operator", "stated (ns)",
        "stated / measured", "within 30 %",
    )  # fmt: skip
    parts = report.table("Where it arises (us a step)", "program", "all", "loading", "learning")
    for name in WORKLOADS:
        add(report, table, parts, name, compare(setting, name))
    asked = ask_again(setting)
    report.data["probe_ns"] = asked
    low, middle, high = min(asked), statistics.median(asked), max(asked)
    report.remarks += [
        f"The cost of an operator that is stated comes from the probe, once a machine; asked {len(asked)} times now: "
        f"median {middle:.0f} ns, from {low:.0f} to {high:.0f}.",
        "Besides, run.json counts the start inside the program: "
        + ", ".join(f"{name} {compare(setting, name).stated_start_ns / 1e6:.1f} ms" for name in WORKLOADS) + ".",
        "An interval that is wider than what is asked for answers nothing: then `within 30 %` says `open`.",
    ]  # fmt: skip
    return report


def add(report: Report, table: Table, parts: Table, name: str, found: Comparison) -> None:
    """The rows of one program."""
    each, stated_ns = found.operator_ns, found.stated_operator_ns
    # A small measured cost makes a large ratio: the ends change places.
    ratios = Interval(*(stated_ns / value if value > 0 else math.inf for value in (each.value, each.high, each.low)))
    share = Interval(*(ratio - 1 for ratio in found.ratio)).scaled(100)
    added = interval(found.added_ns.scaled(1e-3), 1)
    table.add(
        name, str(found.blocks), f"{found.operators:.0f}", added, f"{interval(share, 2)} %",
        interval(each, 0), f"{stated_ns:.0f}", interval(ratios, 2), verdict(ratios),
    )  # fmt: skip
    cells = [interval(part.scaled(1e-3), 1) for part in found.parts_ns]
    parts.add(name, added, *(cells if len(cells) == 2 else ["", *cells]))
    report.data[name] = {**vars(found), "stated_over_measured": ratios}


def verdict(ratio: Interval) -> str:
    """By the whole interval; by nothing if that lies on both sides of a limit."""
    if ratio.low >= 1 - WITHIN and ratio.high <= 1 + WITHIN:
        return "met"
    if ratio.high < 1 - WITHIN or ratio.low > 1 + WITHIN:
        return "MISSED"
    return f"open ({'within' if abs(ratio.value - 1) <= WITHIN else 'outside'})"


def ask_again(setting: Setting) -> list[float]:
    """What the probe says about an operator when it is asked anew."""
    answer = warm_up(setting)
    script = "import os, torch; print(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libtorch_cpu.so'))"
    library = Path(execute(setting, [setting.program, "-c", script])[0].out.strip())
    return [
        probe.ask_with_python(setting.program, library, answer, True).operator_cost_ns
        for _ in range(2 if setting.quick else ASKED)
    ]
