"""Whether the cost that a recording states is the cost that it has."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from pathlib import Path

import numpy as np
from measuring.inside import Comparison, Part, compare
from measuring.intervals import Interval
from measuring.report import Report, Table, interval
from measuring.runs import Setting, execute, warm_up

from layerscope.capture.frameworks.torch import probe

WITHIN = 0.30
WORKLOADS = ("tiny", "mlp_loader", "cnn", "mlp")
ASKED = 5


def run(setting: Setting) -> Report:
    """Four programs, each compared with itself."""
    report = Report("Stated: what run.json says that recording cost, over what it cost")
    table = report.table(
        "A step with the callbacks, less the same step without",
        "program",
        "blocks",
        "operators a step",
        "measured (us)",
        "measured",
        "ns an operator",
        "stated (ns)",
        "stated / measured",
        "within 30 %",
    )
    found = {name: compare(setting, name) for name in WORKLOADS}
    for name, comparison in found.items():
        add(report, table, name, comparison)
    explain(report, found)
    asked = ask_again(setting)
    report.data["probe_ns"] = asked
    low, middle, high = min(asked), statistics.median(asked), max(asked)
    starts = ", ".join(
        f"{name} {comparison.stated_start_ns / 1e6:.1f} ms" for name, comparison in found.items()
    )
    report.remarks += [
        "The cost of an operator that is stated comes from the probe, once a machine; asked "
        f"{len(asked)} times now: "
        f"median {middle:.0f} ns, from {low:.0f} to {high:.0f}.",
        f"Besides, run.json counts the start inside the program: {starts}.",
        "An interval that lies on both sides of a limit answers nothing: then `within 30 %` says "
        "`open`.",
    ]
    return report


def add(report: Report, table: Table, name: str, found: Comparison) -> None:
    """The row of one program."""
    each, stated_ns = found.operator_ns, found.stated_operator_ns
    # A small measured cost makes a large ratio: the ends change places.
    ratios = Interval(
        *(
            stated_ns / value if value > 0 else math.inf
            for value in (each.value, each.high, each.low)
        )
    )
    share = Interval(*(ratio - 1 for ratio in found.ratio)).scaled(100)
    table.add(
        name,
        str(found.blocks),
        f"{found.operators:.0f}",
        interval(found.added_ns.scaled(1e-3), 1),
        f"{interval(share, 2)} %",
        interval(each, 0),
        f"{stated_ns:.0f}",
        interval(ratios, 2),
        verdict(ratios),
    )
    report.data[name] = {**asdict(found), "stated_over_measured": ratios}


def explain(report: Report, found: dict[str, Comparison]) -> None:
    """Two prices, of a backward record and of any other, fitted to all parts: do they explain what
    was measured?
    """
    parts = [(name, part) for name, comparison in found.items() for part in comparison.parts]
    function_ns, backward_ns = fitted([part for _, part in parts])
    table = report.table(
        f"Where it arises; a backward record at {backward_ns:.0f} ns and any other at "
        f"{function_ns:.0f} ns (fitted)",
        "part",
        "backward records",
        "others",
        "measured (us a step)",
        "at these prices (us)",
        "over measured",
    )
    for name, part in parts:
        backward, others = counts(part)
        priced = backward * backward_ns + others * function_ns
        table.add(
            f"{name}, {part.name}",
            str(backward),
            str(others),
            interval(part.added_ns.scaled(1e-3), 1),
            f"{priced / 1e3:.1f}",
            f"{priced / part.added_ns.value:.2f}",
        )
    report.data["fitted"] = {"function_ns": function_ns, "backward_ns": backward_ns}


def fitted(parts: list[Part]) -> tuple[float, float]:
    """Least squares; a part weighs as its interval relative to it is narrow, but none more than 5
    %.
    """
    weights = [
        1 / max((p.added_ns.high - p.added_ns.low) / 2, 0.05 * abs(p.added_ns.value)) for p in parts
    ]
    records = np.array([[others, backward] for backward, others in map(counts, parts)], float)
    measured = np.array([part.added_ns.value for part in parts])
    scale = np.array(weights)
    answer = np.linalg.lstsq(records * scale[:, None], measured * scale, rcond=None)[0]
    return float(answer[0]), float(answer[1])


def counts(part: Part) -> tuple[int, int]:
    """Backward records and all others."""
    backward = part.kinds.get("backward", 0)
    return backward, sum(part.kinds.values()) - backward


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
    script = (
        "import os, torch; print(os.path.join(os.path.dirname(torch.__file__), 'lib', "
        "'libtorch_cpu.so'))"
    )
    library = Path(execute(setting, [setting.program, "-c", script])[0].out.strip())
    return [
        probe.ask_with_python(setting.program, library, answer, True).operator_cost_ns
        for _ in range(2 if setting.quick else ASKED)
    ]
