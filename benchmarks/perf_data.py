"""CPU time of reading a `perf.data`, against `perf script` and reading its text: the same samples from both."""

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
_RECORDING_S = 600
# Without inlined functions: with them perf asks addr2line about each address, and takes minutes.
FIELDS = "comm,pid,tid,time,event,period,ip,sym,dso"
_READ = """
import sys
from pathlib import Path
from layerscope.collect.formats import perf_data, perf_script
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

    def scripted() -> float:
        command = f'exec "{perf}" script --no-inline -F {FIELDS} -i "{data}" > "{text}"'
        return execute(setting, ["sh", "-c", command])[0].cpu_ns / 1e9 + read("text", text)

    ways = {
        "layerscope, names for the first time": lambda: read("data", data, is_cold=True),
        "layerscope, libraries known": lambda: read("data", data),
        "perf script and reading its text": scripted,
    }
    times = interleave(ways, min(setting.pairs, RUNS), BUDGET_S)
    table = report.table("One file with frame pointers, all names", "way", "CPU s", "times faster", "target")
    theirs = median(times["perf script and reading its text"])
    for name, values in times.items():
        found = median(values)
        is_ours = name.startswith("layerscope")
        table.add(
            name, interval(found), f"{theirs.value / found.value:.1f}" if is_ours else "",
            at_least(theirs.value / found.value, TARGET) if is_ours else "",
        )  # fmt: skip
    if len(set.union(*counts.values())) != 1:
        raise BenchmarkError(f"not the same samples from both: {counts}")
    (count,) = counts["data"]
    report.remarks.append(
        f"{count:,} samples from both, {data.stat().st_size:,} bytes. Whole processes, from the start of Python on. "
        "Ours tells source lines too, where libraries have them; perf script does not."
    )
    report.data = {"samples": count, "bytes": data.stat().st_size, "cpu_s": times}
    return report


def _recorded(setting: Setting, perf: str) -> Path:
    """A file of a run of the CNN, with call chains by frame pointers."""
    path = setting.folder / "cnn.data"
    hz = QUICK_HZ if setting.quick else HZ
    clock = ["-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(hz), "-g"]
    command = [perf, "record", *clock, "-o", str(path), setting.program, str(EXAMPLES / "mnist_cnn.py")]
    execute(setting, command, timeout_s=_RECORDING_S)
    return path
