"""What recording a program from outside costs, beside what py-spy costs: CPU time in the program
and beside it; and how many stacks are whole, and how many are wrong.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path

from measuring.intervals import median_ratio
from measuring.report import Report, at_most, interval
from measuring.runs import PROGRAMS, TIMEOUT_S, BenchmarkError, Setting, interleave

from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader

ONLY_WHEN_NAMED = True
BUDGET_S = 500.0
# Some ten seconds and forty: fixed costs (start, tables, summary) are a smaller share of more.
SHORT_WORK, LONG_WORK = 1, 4
BARE, OURS, PY_SPY, PY_SPY_NATIVE = "nothing", "layerscope attach", "py-spy", "py-spy --native"
RATE_HZ = 99
TRUTH_HZ = 999
TRUTH_S = 20.0
SETTLING_S = 1.0
LEFT_OUT = "[frames left out]"
# Functions of Python of each stack, from the outside in; "" where frames are left out.
CHAINS = f"""
    WITH RECURSIVE below(stack, names) AS (
        SELECT stack, CASE WHEN f.layer = 'python' THEN [f.name] ELSE [] END
        FROM stacks s JOIN frames f USING (frame) WHERE s.parent IS NULL
        UNION ALL
        SELECT s.stack, CASE WHEN f.layer = 'python' THEN list_append(b.names, f.name)
            WHEN f.name = '{LEFT_OUT}' THEN list_append(b.names, '') ELSE b.names END
        FROM below b JOIN stacks s ON s.parent = b.stack JOIN frames f USING (frame)
    )
    SELECT names, count(*) AS n FROM samples JOIN below USING (stack) WHERE kind = 'cpu'
    GROUP BY ALL"""


@dataclass(frozen=True)
class Sample:
    """CPU time in ns: of the work by the program's own account, and of all that stood beside it."""

    program_ns: int
    beside_ns: int


def run(setting: Setting) -> Report:
    """Two programs, each with all tools in turns; then the stacks of one that knows its own."""
    report = Report("Recording a program that runs already")
    table = report.table(
        "CPU time",
        "program",
        "recorded by",
        "runs",
        "of the program, over nothing",
        "beside it, of the program's",
        "beside it, over py-spy --native",
        "target",
    )
    for kind, times in product(("torch", "python"), (SHORT_WORK, LONG_WORK)):
        tools: dict[str, Callable[[], Sample]] = {BARE: partial(alone, setting, kind, times)}
        tools[OURS] = partial(attached, setting, kind, times)
        if shutil.which(str(py_spy(setting))):
            tools[PY_SPY] = partial(spied, setting, kind, times, ())
            tools[PY_SPY_NATIVE] = partial(spied, setting, kind, times, ("--native",))
        found = interleave(tools, setting.pairs, BUDGET_S)
        bare = [one.program_ns for one in found[BARE]]
        native = [one.beside_ns for one in found.get(PY_SPY_NATIVE, [])]
        for tool, samples in found.items():
            if tool == BARE:
                continue
            beside = [one.beside_ns for one in samples]
            over = median_ratio([one.program_ns for one in samples], bare)
            share = median_ratio(beside, bare)
            against = median_ratio(beside, native) if native and tool == OURS else None
            told = at_most(against.high, 0.5, "<= 0.5") if against else ""
            shown = interval(against) if against else ""
            work = f"{kind}, {'short' if times == SHORT_WORK else 'long'}"
            table.add(work, tool, str(len(samples)), interval(over), interval(share), shown, told)
            report.data[f"{work}, {tool}"] = {"program": over, "beside": share, "against": against}
    measure_truth(setting, report)
    report.remarks.append(
        "Every tool is attached before the work and stays to its end. Beside: all processes of the "
        "tool up to its end, the summary and the tables included. 99 samples a second each; "
        "py-spy samples wall time of threads of Python, layerscope CPU time of all threads and "
        "every wait."
    )
    return report


def py_spy(setting: Setting) -> Path:
    """Where it is, if it is installed beside the program's Python."""
    return Path(setting.program).with_name("py-spy")


def started(setting: Setting, kind: str, times: int) -> subprocess.Popen[str]:
    """The program, ready to work."""
    program = subprocess.Popen(
        [setting.program, str(PROGRAMS / "attached.py"), kind, str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=setting.environment,
    )
    assert program.stdout is not None
    if program.stdout.readline() != "ready\n":
        raise BenchmarkError("the program did not start")
    return program


def work(program: subprocess.Popen[str]) -> int:
    """Have it work to its end; the CPU time that this took."""
    out, _ = program.communicate("go\n", timeout=TIMEOUT_S)
    return int(out.partition(":")[2].rstrip("}\n"))


def alone(setting: Setting, kind: str, times: int) -> Sample:
    """Without anything."""
    return Sample(work(started(setting, kind, times)), 0)


def watched(setting: Setting, kind: str, times: int, command: Callable[[int], list[str]]) -> Sample:
    """With a tool that was started before the work and ends with the program."""
    program = started(setting, kind, times)
    tool = subprocess.Popen(
        command(program.pid), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(SETTLING_S)
    program_ns = work(program)
    _, status, used = os.wait4(tool.pid, 0)
    tool.returncode = status
    return Sample(program_ns, round((used.ru_utime + used.ru_stime) * 1e9))


def attached(setting: Setting, kind: str, times: int) -> Sample:
    """With layerscope."""
    path = setting.folder / "attached.layerscope"
    shutil.rmtree(path, ignore_errors=True)
    words = [setting.tool, "-m", "layerscope", "attach", "-q", "-o", str(path)]
    return watched(setting, kind, times, lambda pid: [*words, str(pid)])


def spied(setting: Setting, kind: str, times: int, options: tuple[str, ...]) -> Sample:
    """With py-spy."""
    output = str(setting.folder / "spied.raw")
    words = [str(py_spy(setting)), "record", "-r", str(RATE_HZ), "-f", "raw", "-o", output]
    return watched(setting, kind, times, lambda pid: [*words, *options, "--pid", str(pid)])


def measure_truth(setting: Setting, report: Report) -> None:
    """The stacks of a program that knows who calls whom."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "programs"))
    from calling import CALLS

    table = report.table("Stacks", "functions", "samples", "whole", "wrong", "target")
    program = subprocess.Popen(
        [setting.program, str(Path(sys.path[0]) / "calling.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    program.stdout.readline()
    path = setting.folder / "truth.layerscope"
    shutil.rmtree(path, ignore_errors=True)
    seconds = TRUTH_S / (5 if setting.quick else 1)
    words = ["attach", "-q", str(program.pid), "--for", str(seconds), "--rate", str(TRUTH_HZ)]
    command = [setting.tool, "-m", "layerscope", *words, "-o", str(path)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    program.communicate("", timeout=TIMEOUT_S)
    with Reader(open_run(path)) as reader:
        rows = reader.query(CHAINS).to_pylist()
    samples = sum(row["n"] for row in rows)
    whole = sum(row["n"] for row in rows if row["names"][:1] == ["<module>"])
    wrong = sum(row["n"] for row in rows if is_wrong(row["names"], CALLS))
    told = at_most(wrong / samples * 10_000, 0, "0 of 10,000")
    shares = f"{whole / samples:.1%}", f"{wrong:,}"
    table.add("of 5 to 100 µs", f"{samples:,}", *shares, told)
    report.data["stacks"] = {"samples": samples, "whole": whole, "wrong": wrong}


def is_wrong(names: list[str], calls: set[tuple[str, str]]) -> bool:
    """Whether one of these functions is called by one that does not call it."""
    return any(a and b and (a, b) not in calls for a, b in pairwise(names))
