"""Whether `layerscope tune` finds what an exhaustive search finds, in how many minutes, and whether
its line is faster.

The search and the check know nothing of tune's measurements: the program itself says what its steps
cost, by its own CPU clock, started by a shell with the lines that tune prints. CPU time is
compared: wall time of a shared machine is mostly somebody else's.
"""

from __future__ import annotations

import json
import random
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from measuring.intervals import median, median_ratio
from measuring.report import Report, Table, at_most, interval, ms
from measuring.runs import PROGRAMS, BenchmarkError, Setting, execute

ONLY_WHEN_NAMED = True
WORKLOADS = {"CNN training": "cnn", "MLP inference": "mlp", "many small operators": "small"}
SLEEPING = "sleep"
MOST_MIN = 10.0
# What it is given; two runs before it, and reading its libraries, come on top.
BUDGET_MIN = 5.0
# Three times the rounds that a race has at least.
ROUNDS = 9
WITHIN = 1.10
# A setting can be ten times slower than the defaults, and a run takes seconds.
RUN_S = 120.0


@dataclass(frozen=True)
class Answer:
    """What tune said: lines by the name of the setting, the winner's name or that of the defaults,
    how long it took.
    """

    lines: dict[str, str]
    chosen: str
    verdict: str
    took_s: float

    @property
    def default(self) -> str:
        """The line of the defaults."""
        return self.lines["default"]


def run(setting: Setting) -> Report:
    """Each workload: tune, all settings in rounds, and the winner against the defaults."""
    report = Report("Tuning: the settings that tune finds")
    table = report.table(
        "CPU time of a step, by the program's own clock",
        "program",
        "minutes",
        "tune says",
        "best of all settings",
        "tune's over the best",
        "target",
    )
    check = report.table(
        "The line that tune prints against the defaults, in turns",
        "program",
        "pairs",
        "CPU time",
        "wall time",
        "target",
    )
    for name, program in WORKLOADS.items():
        answer = ask(setting, program)
        every = {**plan(setting, program), **answer.lines}
        search(setting, name, answer, every, table, report)
        confirm(setting, name, answer, check, report)
    sleeping = ask(setting, SLEEPING)
    says = report.table("A program that only sleeps", "minutes", "tune says", "target")
    missed = (
        0
        if sleeping.chosen == "default" and sleeping.verdict.startswith("No measurable difference")
        else 1
    )
    says.add(f"{sleeping.took_s / 60:.1f}", sleeping.verdict, at_most(missed, 0, "no difference"))
    report.remarks += [
        "Best of all settings: of all that tune may try and all that it combined, "
        f"{rounds(setting)} shuffled rounds "
        "each, the smallest median.",
        f"Target: at most {WITHIN:g} of the best, or an interval that holds 1, within {MOST_MIN:g} "
        "minutes. Intervals "
        "are 95 %, by bootstrap over rounds.",
    ]
    return report


def rounds(setting: Setting) -> int:
    """Of the exhaustive search."""
    return 2 if setting.quick else ROUNDS


def words(setting: Setting, program: str) -> list[str]:
    """The program and its arguments."""
    return [setting.program, str(PROGRAMS / "tuned.py"), program]


def layerscope(setting: Setting, program: str, *options: str) -> tuple[dict[str, Any], float]:
    """What tune answers in JSON, and how long that took."""
    budget = 4 if setting.quick else BUDGET_MIN
    command = [
        setting.tool,
        "-m",
        "layerscope",
        "tune",
        "--objective",
        "cpu",
        "--budget",
        f"{budget:g}",
        "--json",
        "--no-why",
        "-q",
        *options,
        "--",
        *words(setting, program),
    ]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env=setting.environment,
        cwd=setting.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * MOST_MIN + 600,
    )
    if done.returncode not in (0, 1):
        raise BenchmarkError(f"tune ended with status {done.returncode}: {done.stderr[-1000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, time.monotonic() - begin


def ask(setting: Setting, program: str) -> Answer:
    """Tune the program."""
    answer, took_s = layerscope(setting, program)
    names = [column["name"] for column in answer["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    lines = {row["setting"]: row["command"] for row in rows if row["state"] != "disqualified"}
    lines.setdefault("default", shlex.join(words(setting, program)))
    winner = next((row["setting"] for row in rows if row["state"] == "winner"), "default")
    return Answer(lines, winner, answer["notes"][0], took_s)


def plan(setting: Setting, program: str) -> dict[str, str]:
    """The lines of all settings that may be tried."""
    answer, _ = layerscope(setting, program, "--dry-run")
    names = [column["name"] for column in answer["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    return {row["setting"]: row["command"] for row in rows}


def cost(setting: Setting, line: str) -> tuple[float, float]:
    """CPU time and wall time of a step, in ns, of the program as a shell starts it with this
    line.
    """
    done, _ = execute(setting, ["/bin/sh", "-c", f"exec {line}"], timeout_s=RUN_S)
    return done.json["cpu_ns"] / done.json["steps"], done.json["wall_ns"] / done.json["steps"]


def search(
    setting: Setting, name: str, answer: Answer, every: dict[str, str], table: Table, report: Report
) -> None:
    """All settings in shuffled rounds; what tune chose against the best of them."""
    chance = random.Random(2)
    found: dict[str, list[float]] = {one: [] for one in every}
    for _ in range(rounds(setting)):
        for one in chance.sample(list(every), len(every)):
            try:
                found[one].append(cost(setting, every[one])[0])
            except BenchmarkError as error:
                report.remarks.append(f"{name}, {one} is left out: {error}")
                del found[one], every[one]
    best = min(found, key=lambda one: median(found[one]).value)
    ratio = median_ratio(found[answer.chosen], found[best])
    is_good = ratio.value <= WITHIN or ratio.low <= 1
    in_time = answer.took_s <= 60 * MOST_MIN
    table.add(
        name,
        f"{answer.took_s / 60:.1f}",
        f"{answer.chosen} ({ms(median(found[answer.chosen]).value)})",
        f"{best} ({ms(median(found[best]).value)}) of {len(found)}",
        interval(ratio),
        at_most(
            0 if is_good and in_time else 1, 0, f"<= {WITHIN:g} or holds 1, <= {MOST_MIN:g} min"
        ),
    )
    report.remarks.append(f"{name}: {answer.verdict}")
    report.data[name] = {
        "chosen": answer.chosen,
        "verdict": answer.verdict,
        "took_s": answer.took_s,
        "cpu_ns": found,
    }


def confirm(setting: Setting, name: str, answer: Answer, table: Table, report: Report) -> None:
    """The winner's line and the defaults' in turns."""
    if answer.chosen == "default":
        table.add(name, "0", "-", "-", "it keeps the defaults")
        return
    pairs = max(2, setting.pairs // 2)
    both: dict[str, list[tuple[float, float]]] = {"default": [], answer.chosen: []}
    for pair in range(pairs):
        for one in list(both) if pair % 2 else reversed(both):
            both[one].append(cost(setting, answer.lines[one]))
    cpu, wall = (
        median_ratio([one[of] for one in both[answer.chosen]], [one[of] for one in both["default"]])
        for of in (0, 1)
    )
    table.add(
        name,
        str(pairs),
        interval(cpu),
        interval(wall),
        at_most(cpu.high, 1.0, "CPU time below 1, surely"),
    )
    report.data[f"{name}, in turns"] = both


if __name__ == "__main__":
    sys.exit("run it by: python3 dev.py bench tune --write")
