"""Whether layerscope, py-spy and perf show the truth: programs whose times are known."""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measuring import judge, planted
from measuring.judge import OURS, Claim
from measuring.planted import PlantedProgram
from measuring.report import Report
from measuring.runs import BenchmarkError, Setting, computing, execute
from measuring.shown import TABLES, ShownTimes, read_layerscope, read_perf, read_py_spy

# 80 programs, 3 tools, 20 runs: hours.
ONLY_WHEN_NAMED = True
SECONDS = 3.0
HZ = 99
OTHERS_RUNS = 2  # of py-spy and perf: they state no intervals to be covered
TOOL_TIMEOUT_S = 120
LISTED_ROWS = 8
READER = Path(__file__).parent / "measuring" / "read_tables.py"


@dataclass(frozen=True)
class Judge:
    """What a whole measurement has: where, how long, and which other tools are here."""

    setting: Setting
    seconds: float
    py_spy: str | None
    perf: str | None
    said: list[str]  # what failed, a sentence each
    data: dict[str, Any]

    def execute(self, command: list[str]) -> str:
        """The output of a process, which has bounded time."""
        return execute(self.setting, command, timeout_s=self.timeout_s)[0].out

    @property
    def timeout_s(self) -> float:
        """Some programs compile before they begin."""
        return TOOL_TIMEOUT_S + 4 * self.seconds


def run(setting: Setting) -> Report:
    """Every program under every tool, in turns."""
    report = Report("Truth: what tools show of programs whose times are known")
    runs = 1 if setting.quick else setting.runs
    seconds = setting.seconds or (1.0 if setting.quick else SECONDS)
    spy, perf = shutil.which("py-spy"), shutil.which("perf")
    judged = Judge(setting, seconds, spy, perf, [], {})
    claims: list[Claim] = []
    with computing(setting.busy):
        for name in chosen(setting.programs):
            found = judge.merged(measure(judged, name, runs))
            claims += found
            print(line_of(name, found), file=sys.stderr, flush=True)
    add_tables(report, claims, runs)
    add_failures(report, judged)
    explain(report, judged, runs)
    report.data = judged.data | {"claims": [asdict(claim) for claim in claims]}
    return report


def chosen(wanted: tuple[str, ...]) -> list[str]:
    """The programs that are named, by patterns too; all if none is."""
    everything = planted.names()
    for pattern in wanted:
        if not fnmatch.filter(everything, pattern):
            raise BenchmarkError(
                f"there is no program {pattern}; there are {', '.join(everything)}"
            )
    return [
        name
        for name in everything
        if not wanted or any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
    ]


def measure(judged: Judge, name: str, runs: int) -> list[Claim]:
    """One program, all its runs."""
    try:
        program = planted.prepare(judged.setting, name, judged.seconds)
    except BenchmarkError as error:
        judged.said.append(f"{name}: {error}")
        return []
    claims: list[Claim] = []
    for number in range(runs):
        claims += under(judged, program, OURS, under_layerscope)
        if number >= OTHERS_RUNS:
            continue
        if judged.py_spy and program.is_python:
            claims += under(judged, program, "py-spy", under_py_spy)
        # Without names of Python it tells nothing of a program that has no others.
        if judged.perf and any(claim.kind.startswith("symbol") for claim in claims):
            claims += under(judged, program, "perf", under_perf)
    return claims


Runner = Callable[[Judge, PlantedProgram, Path], tuple[str, ShownTimes]]


def under(judged: Judge, program: PlantedProgram, tool: str, runner: Runner) -> list[Claim]:
    """One run under a tool; what fails is said."""
    with tempfile.TemporaryDirectory(dir=judged.setting.folder) as folder:
        try:
            output, readings = runner(judged, program, Path(folder))
            truth = planted.read_truth(output)
            if tool == "py-spy":
                # It counts pauses that it makes and threads that wait for a CPU: shares of the CPU.
                readings = readings.scaled(truth.process_cpu)
        except (BenchmarkError, OSError, ValueError) as error:
            last = [line for line in str(error).splitlines() if line.strip()][-1:]
            judged.said.append(f"{program.name} under {tool}: {''.join(last)[-160:]}")
            return []
    details = judged.data.setdefault(program.name, {}).setdefault(tool, [])
    details.append({"truth": asdict(truth), "shown": largest(readings)})
    if tool == OURS:
        details[-1]["not_known"] = readings.not_known
    return judge.claims_of(program.name, tool, truth, readings)


def largest(readings: ShownTimes) -> dict[str, dict[str, float]]:
    """The largest of each kind, to see what took the place of what is missing."""
    return {
        kind: {
            name: round(one.seconds, 4)
            for name, one in sorted(names.items(), key=lambda pair: -pair[1].seconds)[:LISTED_ROWS]
        }
        for kind, names in readings.by_kind.items()
    }


def under_layerscope(
    judged: Judge, program: PlantedProgram, folder: Path
) -> tuple[str, ShownTimes]:
    """Record it and read its tables."""
    path = folder / "a.layerscope"
    ours = [judged.setting.tool, "-m", "layerscope"]
    output = judged.execute([*ours, "run", "-q", "-o", str(path), "--", *program.command])
    asked = {
        name: words
        for name, words in TABLES.items()
        if program.is_python or name not in ("functions", "lines")
    }
    said = judged.execute([judged.setting.tool, str(READER), str(path), json.dumps(asked)])
    return output, read_layerscope(json.loads(said), program.file)


def under_py_spy(judged: Judge, program: PlantedProgram, folder: Path) -> tuple[str, ShownTimes]:
    """Its raw stacks, with native frames."""
    out = folder / "raw"
    words = ["record", "--native", "--subprocesses", "--rate", str(HZ), "--format", "raw"]
    output = judged.execute([str(judged.py_spy), *words, "-o", str(out), "--", *program.command])
    return output, read_py_spy(out.read_text(encoding="utf-8"), HZ, program.file)


def under_perf(judged: Judge, program: PlantedProgram, folder: Path) -> tuple[str, ShownTimes]:
    """By frame pointers, as `-g` does."""
    out = str(folder / "perf.data")
    words = ["record", "-q", "-e", "cpu-clock", "-F", str(HZ), "-g", "-o", out, "--"]
    output = judged.execute([str(judged.perf), *words, *program.command])
    columns = "comm,tid,period,event,ip,sym,dso"
    script = [str(judged.perf), "script", "-i", out, "--no-inline", "-F", columns]
    return output, read_perf(judged.execute(script), program.file)


def tools_of(claims: list[Claim]) -> list[str]:
    """The other tools that told something."""
    return [tool for tool in ("py-spy", "perf") if any(tool in claim.shown for claim in claims)]


def line_of(name: str, claims: list[Claim]) -> str:
    """While it goes on."""
    verdicts = [judge.verdict(claim, tools_of(claims)) for claim in claims]
    wrong = [
        f"{claim.kind} {claim.name}" for claim, said in zip(claims, verdicts, strict=True)
        if said not in ("met", "small")
    ]  # fmt: skip
    return f"{name}: {len(claims)} planted{''.join(f'; {one}' for one in wrong)}"


def add_tables(report: Report, claims: list[Claim], runs: int) -> None:
    """One row for each function, line and wait; then those beyond the limit, and the intervals."""
    others = ["py-spy", "perf"]
    table = report.table(
        f"Errors of {runs} runs: what is shown over the truth, less 1",
        "program",
        "kind",
        "name",
        "truth (s)",
        "of the program",
        "layerscope",
        "limit",
        "covered",
        *others,
        "verdict",
    )
    for claim in claims:
        table.add(*row_of(claim, others))
    wrong = [claim for claim in claims if judge.verdict(claim, others) not in ("met", "small")]
    worst = report.table(
        f"Beyond the limit: {len(wrong)} of {len(claims)}, the worst first",
        "program",
        "kind",
        "name",
        "truth (s)",
        "shown (s)",
        "error, of the program",
        "verdict",
    )
    for claim in sorted(wrong, key=severity, reverse=True):
        ours = claim.finding(OURS)
        figures = ["-", "-", "-"]
        if ours:
            share = f"{100 * ours.error / ours.whole:+.1f} %"
            figures = [f"{ours.truth:.3f}", f"{ours.shown:.3f}", share]
        worst.add(
            claim.program, claim.kind, short(claim.name), *figures, judge.verdict(claim, others)
        )
    covers = report.table(
        "Intervals that cover the truth", "kind", "covered", "of", "share", "target"
    )
    for kind, (inside, stated) in judge.coverage(claims).items():
        covered = inside / stated
        said = "met" if covered >= judge.COVERAGE else "MISSED"
        covers.add(
            kind,
            str(inside),
            str(stated),
            f"{100 * covered:.1f} %",
            f">= {100 * judge.COVERAGE:.0f} %: {said}",
        )


def severity(claim: Claim) -> float:
    """How much of its program is wrong; all of it where nothing was told."""
    ours = claim.finding(OURS)
    return ours.severity if ours else 1.0


def row_of(claim: Claim, others: list[str]) -> list[str]:
    """The cells of the first table."""
    ours = claim.finding(OURS)
    inside, stated = claim.covered()
    figures = ["-"] * 4
    if ours:
        figures = [
            f"{ours.truth:.3f}",
            f"{100 * ours.truth / ours.whole:.0f} %",
            percents(ours.relative),
            f"{100 * ours.limit / max(ours.truth, 1e-9):.0f} %",
        ]
    theirs = (claim.finding(tool) for tool in others)
    return [
        claim.program,
        claim.kind,
        short(claim.name),
        *figures,
        f"{inside}/{stated}" if stated else "-",
        *(percents(one.relative) if one else "-" for one in theirs),
        judge.verdict(claim, others),
    ]


def percents(share: float) -> str:
    """With its sign."""
    return f"{100 * share:+.1f} %"


def short(name: str) -> str:
    """The end of a long name."""
    return name if len(name) <= 44 else "..." + name[-41:]


def add_failures(report: Report, judged: Judge) -> None:
    """What told nothing."""
    table = report.table("What gave nothing", "what", "why")
    for sentence in judged.said:
        name, _, why = sentence.partition(": ")
        table.add(name, why)


def explain(report: Report, judged: Judge, runs: int) -> None:
    """How to read it."""
    report.remarks += [
        f"{runs} runs of {judged.seconds:g} s under layerscope, at most {OTHERS_RUNS} under the "
        "others; each run has its own truth, from the program's clocks of threads.",
        "Beyond the limit: 10 % of the program or more, and wrong by more than 5 % and by more "
        f"than {judge.SAMPLING_ERRORS} sampling errors at {judge.HZ} Hz.",
        "function, line and symbol are own time, with _total also that of what they called; "
        "symbol is a function of native code, wait_function and wait_line are where a wait is.",
        "py-spy counts threads that can run, on a CPU or not, while it makes them pause, too: its "
        "shares are taken of the program's CPU time. It knows no kinds of waits; perf knows no "
        "functions of Python.",
    ]
    for name, path in {"py-spy": judged.py_spy, "perf": judged.perf}.items():
        if not path:
            report.remarks.append(f"{name} is not here: it is not on PATH.")
    if judged.setting.busy:
        report.remarks.append(f"{judged.setting.busy} processes computed beside all of it.")
