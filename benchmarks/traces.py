"""CPU time and memory of reading a trace of Kineto with all its arguments, to the printed table of
operators, against `json.load` of the same file without the garbage collector.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, execute, interleave

# Of `json.load`, and of memory.
TARGET = 0.36
TARGET_MB, TARGET_BYTES_EACH = 200, 25
EVENTS, QUICK_EVENTS = 1_000_000, 50_000
RUNS, BUDGET_S = 5, 240
_LOAD = """
import gc, json, sys
gc.disable()
with open(sys.argv[1]) as file:
    json.load(file)
"""
_TABLE = """
import resource, sys
from layerscope import cli
cli.main(["table", sys.argv[1], "operators"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
_SHAPES = [[32, 1024], [1024, 1024], []]
_LOADED, _FIRST, _AGAIN = "json.load", "table operators", "the same again"


def run(setting: Setting) -> Report:
    """Write a trace, and read it in both ways."""
    report = Report("Traces: a table of operators against json.load")
    path = setting.folder / "trace.json"
    written = write(path, QUICK_EVENTS if setting.quick else EVENTS)
    cache = setting.folder / "cache" / "layerscope"
    peaks_mb: list[float] = []

    def load() -> float:
        return execute(setting, [setting.tool, "-c", _LOAD, str(path)])[0].cpu_ns / 1e9

    def table() -> float:
        done = execute(setting, [setting.tool, "-c", _TABLE, str(path)])[0]
        peaks_mb.append(int(done.out.splitlines()[-1]) / 1e6)
        return done.cpu_ns / 1e9

    def first() -> float:
        shutil.rmtree(cache, ignore_errors=True)
        return table()

    ways = {_LOADED: load, _FIRST: first, _AGAIN: table}
    times = interleave(ways, min(setting.pairs, RUNS), BUDGET_S)
    base = median(times[_LOADED])
    title = f"{written:,} events, {path.stat().st_size / 1e6:,.0f} MB"
    shown = report.table(title, "way", "CPU s", "of json.load", "target")
    for name, values in times.items():
        share = median(values).value / base.value
        target = at_most(share, TARGET) if name == _FIRST else ""
        shown.add(name, interval(median(values)), f"{share:.2f}", target)
    most_mb = TARGET_MB + TARGET_BYTES_EACH * written / 1e6
    peak_mb = max(peaks_mb)
    memory = report.table("Memory", "way", "peak MB", "target")
    memory.add(_FIRST, f"{peak_mb:,.0f}", at_most(peak_mb, most_mb, f"<= {most_mb:,.0f} MB"))
    report.remarks.append(
        "Whole processes, from the start of Python on; all arguments. json.load without the "
        "garbage collector."
    )
    report.data = {"events": written, "cpu_s": times, "peaks_mb": peaks_mb}
    return report


def write(path: Path, count: int) -> int:
    """A trace of operators that launch kernels, with arrows; how many events it has."""
    chance = random.Random(1)
    at_us, written = 1000.0, 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1730000000000000000,\n')
        file.write('"deviceProperties": [{"id": 0, "numSms": 132}], "traceEvents": [\n')
        separator = ""
        while written < count:
            for one in operator(written, at_us, chance):
                file.write(separator + json.dumps(one, indent=1))
                separator = ",\n"
                written += 1
            at_us += 30
        file.write('\n], "traceName": "trace.json"}\n')
    return written


def operator(number: int, at_us: float, chance: random.Random) -> list[dict[str, object]]:
    """An operator in another one that launches a kernel."""
    name = f"aten::operator_{chance.randrange(200)}"
    dur_us = round(chance.uniform(10, 25), 3)
    ids = {"External id": number + 1, "Ev Idx": number}
    inputs = {"Input Dims": _SHAPES, "Input type": ["float", "float", ""]}
    thread = {"ph": "X", "pid": 4242, "tid": 4242}
    launch = {"External id": number + 1, "cbid": 211, "correlation": number + 1}
    grid = {"grid": [1024, 1, 1], "block": [128, 1, 1], "registers per thread": 32}
    on_gpu = {"device": 0, "stream": 7, **launch, **grid, "est. achieved occupancy %": 48}
    arrow = {"cat": "ac2g", "name": "ac2g", "id": number + 1}
    begin, later = round(at_us, 3), round(at_us + 40, 3)
    inner, call = round(at_us + 1, 3), round(at_us + 2, 3)
    outer = {"cat": "cpu_op", "name": name, "ts": begin, "dur": dur_us, "args": ids | inputs}
    within = {"cat": "cpu_op", "name": f"{name}_out", "ts": inner, "dur": 7.125, "args": ids}
    runtime = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": call, "dur": 5}
    kernel = {"cat": "kernel", "name": f"void {name}<float>(int, float)", "ts": later, "dur": 20.5}
    gpu = {"ph": "X", "pid": 0, "tid": 7}
    return [
        {**thread, **outer},
        {**thread, **within},
        {**thread, **runtime, "args": launch},
        {**arrow, "ph": "s", "pid": 4242, "tid": 4242, "ts": call},
        {**gpu, **kernel, "args": on_gpu},
        {**arrow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": later},
    ]
