"""CPU time of reading a `perf.data`, against `perf script` and reading its text: the same samples
from both.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from measuring.intervals import median
from measuring.report import Report, at_least, interval
from measuring.runs import EXAMPLES, BenchmarkError, Setting, execute, interleave

# How much faster our own reader has to be.
TARGET = 15.0
HZ, QUICK_HZ = 4999, 199
RUNS, BUDGET_S = 5, 240
_LONG_S = 600
AS_IT_IS, WITHOUT_INLINED = (
    "perf script and reading its text",
    "perf script --no-inline and reading its text",
)
FIELDS = "comm,pid,tid,time,event,period,ip,sym,dso"
_READ = """
import sys
from pathlib import Path
from layerscope.sources import perf_data, perf_script
read = {"data": perf_data.read, "text": perf_script.read}[sys.argv[1]]
print(len(read(Path(sys.argv[2])).stacks.samples["at_ns"]))
"""


def run(setting: Setting) -> Report:
    """Record the CNN with perf, and read that in both ways."""
    report = Report("perf.data: our reader against perf script")
    perf = shutil.which("perf")
    if perf is None:
        report.remarks.append("Not measured: there is no perf here.")
        return report
    data = _recorded(setting, perf)
    text, names = setting.folder / "script.txt", setting.folder / "cache" / "layerscope" / "symbols"
    counts: dict[str, set[int]] = {}

    def read(kind: str, path: Path, is_cold: bool = False) -> float:
        if is_cold:
            shutil.rmtree(names, ignore_errors=True)
        done = execute(setting, [setting.tool, "-c", _READ, kind, str(path)])[0]
        counts.setdefault(kind, set()).add(int(done.out))
        return done.cpu_ns / 1e9

    def scripted(options: str = "") -> float:
        command = f'"{perf}" script {options} -F {FIELDS} -i "{data}" > "{text}"'
        return execute(setting, ["sh", "-c", command], timeout_s=_LONG_S)[0].cpu_ns / 1e9 + read(
            "text", text
        )

    ways = {
        "layerscope, names for the first time": lambda: read("data", data, is_cold=True),
        "layerscope, libraries known": lambda: read("data", data),
        WITHOUT_INLINED: lambda: scripted("--no-inline"),
    }
    times = interleave(ways, min(setting.pairs, RUNS), BUDGET_S)
    # Once: of libraries with debug information it asks addr2line about each address, which takes
    # minutes.
    times[AS_IT_IS] = [scripted()]
    columns = ("way", "CPU s", "perf script takes times", "target", "--no-inline takes times")
    table = report.table("One file with frame pointers, all names", *columns)
    theirs, without = median(times[AS_IT_IS]), median(times[WITHOUT_INLINED])
    for name, values in times.items():
        found = median(values)
        faster, than_without = theirs.value / found.value, without.value / found.value
        is_ours = name.startswith("layerscope")
        words = (
            (f"{faster:.1f}", at_least(faster, TARGET), f"{than_without:.1f}")
            if is_ours
            else ("", "", "")
        )
        table.add(name, interval(found), *words)
    if len(set.union(*counts.values())) != 1:
        raise BenchmarkError(f"not the same samples from both: {counts}")
    (count,) = counts["data"]
    report.remarks.append(
        f"{count:,} samples from both, {data.stat().st_size:,} bytes. Whole processes, from the "
        "start of Python on. "
        "Ours tells source lines where libraries have them, but no inlined functions; perf script "
        "tells those alone."
    )
    report.data = {"samples": count, "bytes": data.stat().st_size, "cpu_s": times}
    return report


def _recorded(setting: Setting, perf: str) -> Path:
    """A file of a run of the CNN, with call chains by frame pointers."""
    path = setting.folder / "cnn.data"
    hz = QUICK_HZ if setting.quick else HZ
    clock = ["-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(hz), "-g"]
    command = [
        perf,
        "record",
        *clock,
        "-o",
        str(path),
        setting.program,
        str(EXAMPLES / "mnist_cnn.py"),
    ]
    execute(setting, command, timeout_s=_LONG_S)
    return path
