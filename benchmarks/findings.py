"""Whether the findings of programs with one planted fault each are right: is the fault the first,
and does the twin without it save what the price says?

The pairs are those of tests/findings/pairs. Both programs run under layerscope in turns; what is
saved is the difference of their mean steps. With `--busy N` only the healthy programs run, beside N
processes that compute: none may get a finding that is certain.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from measuring.report import Report, Table, ms
from measuring.runs import HERE, Setting, computing, execute, interleave

from layerscope.analyse import findings
from layerscope.analyse.findings.finding import CERTAIN
from layerscope.analyse.findings.workload import Workload
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader

ONLY_WHEN_NAMED = True
PAIRS = HERE.parents[1] / "tests" / "findings" / "pairs"
BUDGET_S = 120.0
# Programs of which a recording in the tests is 0.1 s long run so many times longer.
LONGER = "LENGTH=5"
MOST_PAIRS = 5
# Of all pairs: the price's upper end is below what was saved in at most so many.
MOST_BEYOND = 1 / 20
FIRST_IN = 0.95
SAVED_OF_PRICE = (0.5, 1.0)


@dataclass(frozen=True)
class Seen:
    """One recording: its mean step, the rules that found something, and the price of the planted
    one.
    """

    step_ns: float
    rules: tuple[str, ...]
    price_ns: float = 0.0
    low_ns: float = 0.0
    high_ns: float = 0.0
    is_busy: bool = False
    certain: int = 0


def run(setting: Setting) -> Report:
    """Every pair, in turns."""
    if setting.busy:
        return beside_others(setting)
    report = Report("Findings: planted faults, and what the repaired twins save")
    table = report.table(
        "Pairs of programs (ms of a step; medians of the runs)",
        "planted",
        "runs",
        "first",
        "in the twin",
        "price",
        "saved",
        "saved / price",
    )
    for rule in chosen(setting):
        count = 1 if setting.quick else min(setting.pairs, MOST_PAIRS)
        arms = {twin: partial(seen, setting, rule, twin) for twin in ("sick", "healthy")}
        found = interleave(arms, count, BUDGET_S)
        add(table, report, rule, found)
    judge(report)
    return report


def beside_others(setting: Setting) -> Report:
    """The healthy programs alone, on a machine that others use."""
    report = Report(f"Findings of healthy programs beside {setting.busy} processes that compute")
    table = report.table("Programs", "of the pair", "findings", "certain", "qualified as busy")
    count = 1 if setting.quick else min(setting.pairs, MOST_PAIRS)
    with computing(setting.busy):
        for rule in chosen(setting):
            runs = [seen(setting, rule, "healthy") for _ in range(count)]
            found = sorted({name for one in runs for name in one.rules})
            certain = sum(one.certain for one in runs)
            busy = sum(one.is_busy for one in runs)
            table.add(rule, ", ".join(found) or "-", str(certain), f"{busy} of {count}")
            report.data[rule] = {"found": found, "certain": certain, "busy": busy, "runs": count}
    total = sum(row["certain"] for row in report.data.values() if isinstance(row, dict))
    report.remarks.append(f"Findings that are certain: {total} (target: 0).")
    return report


def chosen(setting: Setting) -> list[str]:
    """The rules that are asked for."""
    rules = sorted(file.stem for file in PAIRS.glob("*.py"))
    wanted = setting.programs or ("*",)
    return [rule for rule in rules if any(fnmatch(rule, one) for one in wanted)]


def seen(setting: Setting, rule: str, twin: str) -> Seen:
    """Record one program and ask for its findings."""
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    path = folder / "a.layerscope"
    words = [setting.tool, "-m", "layerscope", "run", "-q", "-o", str(path), "--"]
    kind = f"SICK={int(twin == 'sick')}"
    execute(setting, [*words, "env", kind, LONGER, setting.program, str(PAIRS / f"{rule}.py")])
    with Reader(open_run(path)) as reader:
        every = findings.find(reader)
        workload = Workload(reader)
        certain = sum(one.certainty == CERTAIN for one in every.found)
        rules = tuple(one.rule for one in every.found)
        made = Seen(workload.mean_ns, rules, certain=certain)
        planted = next((one for one in every.found if one.rule == rule), None)
        if planted is not None:
            price = planted.price
            ends = {"low_ns": price.low_ns, "high_ns": price.high_ns}
            made = replace(made, price_ns=price.value_ns, **ends)
        made = replace(made, is_busy=workload.is_busy)
    shutil.rmtree(folder)
    return made


def add(table: Table, report: Report, rule: str, found: dict[str, list[Seen]]) -> None:
    """One row. What one pair of runs saves has the noise of two runs, so it is the median of all
    that the price is compared with.
    """
    sick, healthy = found["sick"], found["healthy"]
    runs = len(sick)
    first = sum(one.rules[:1] == (rule,) for one in sick)
    false = sum(bool(one.rules) and not one.is_busy for one in healthy)
    priced = [one for one in sick if one.price_ns] or sick
    price_ns = statistics.median(one.price_ns for one in priced)
    low_ns = statistics.median(one.low_ns for one in priced)
    high_ns = statistics.median(one.high_ns for one in priced)
    each_ns = [a.step_ns - b.step_ns for a, b in zip(sick, healthy, strict=True)]
    saved_ns = statistics.median(each_ns)
    part = saved_ns / price_ns if price_ns else float("nan")
    price = f"{ms(price_ns)} [{ms(low_ns)}, {ms(high_ns)}]"
    saved = f"{ms(saved_ns)} ({ms(min(each_ns))} to {ms(max(each_ns))})"
    cells = (f"{first} of {runs}", f"{false} of {runs}", price, saved)
    table.add(rule, str(runs), *cells, f"{part:.2f}")
    report.data[rule] = {
        "runs": runs,
        "first": first,
        "false": false,
        "beyond": saved_ns > high_ns,
        "below": saved_ns < low_ns,
        "price_ns": price_ns,
        "saved_ns": saved_ns,
        "saved_of_price": part,
    }


def judge(report: Report) -> None:
    """What holds over all of them."""
    rows = [row for row in report.data.values() if isinstance(row, dict)]
    runs = sum(row["runs"] for row in rows)
    table = report.table("Over all", "figure", "found", "target")
    first = sum(row["first"] for row in rows)
    table.add("the planted fault is first", f"{first / runs:.0%}", f">= {FIRST_IN:.0%}")
    table.add("findings in healthy twins", f"{sum(row['false'] for row in rows)}", "0")
    parts = [row["saved_of_price"] for row in rows if row["price_ns"]]
    middle = statistics.median(parts) if parts else float("nan")
    low, high = SAVED_OF_PRICE
    table.add("median of saved / price", f"{middle:.2f}", f"{low} to {high}")
    pairs = len(rows)
    beyond = sum(row["beyond"] for row in rows)
    table.add("saved more than the upper end", f"{beyond} of {pairs}", f"<= {MOST_BEYOND:.0%}")
    below = sum(row["below"] for row in rows)
    table.add("saved less than the lower end", f"{below} of {pairs}", "none")
    report.remarks.append(
        f"Each program ran under layerscope, {os.cpu_count()} CPUs; a run on a busy machine is no "
        "finding in a healthy twin, since nothing is certain there."
    )
