"""CPU time and memory of reading traces of Kineto with all their arguments, to the printed table of
operators, against `json.load` of the same file without the garbage collector: of one file, packed
and not, of five times as many events, and of a folder with a file for each of eight ranks.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, execute, interleave

# Of `json.load`, what .gz may take of it on top, and memory.
TARGET, PACKED_MORE = 0.36, 0.1
TARGET_MB, TARGET_BYTES_EACH = 200, 25
AGAIN_S = 0.6
RANKS, RANK_EVENTS, RANKS_S = 8, 216_000, 2.2
HTA_S = 21.7
EVENTS, MANY_EVENTS = 1_000_000, 5_000_000
QUICK_SHARE = 20
RUNS, BUDGET_S = 5, 240
# Of the large file.
LARGE_RUNS = 2
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
_LOADED, _FIRST, _PACKED = "json.load", "table operators", "table operators of .gz"
_AGAIN = "the same again"


@dataclass
class Ways:
    """How a file is read, with what each took."""

    setting: Setting
    path: Path
    peaks_mb: list[float] = field(default_factory=list)
    again_wall_s: list[float] = field(default_factory=list)
    _is_opened: bool = False

    def load(self) -> float:
        """CPU s of `json.load`."""
        command = [self.setting.tool, "-c", _LOAD, str(self.path)]
        return execute(self.setting, command)[0].cpu_ns / 1e9

    def first(self) -> float:
        """CPU s of the table, nothing of it kept from before."""
        return self._fresh(self.path)

    def packed(self) -> float:
        """The same of the file packed with gzip."""
        return self._fresh(self.path.with_name(f"{self.path.name}.gz"))

    def again(self) -> float:
        """CPU s of the table of a file that was opened before."""
        if not self._is_opened:
            self.first()
        cpu_s, wall_s = self._table(self.path)
        self.again_wall_s.append(wall_s)
        return cpu_s

    def _fresh(self, path: Path) -> float:
        shutil.rmtree(self.setting.folder / "cache" / "layerscope", ignore_errors=True)
        self._is_opened = path == self.path
        return self._table(path)[0]

    def _table(self, path: Path) -> tuple[float, float]:
        done = execute(self.setting, [self.setting.tool, "-c", _TABLE, str(path)])[0]
        self.peaks_mb.append(int(done.out.splitlines()[-1]) / 1e6)
        return done.cpu_ns / 1e9, done.wall_ns / 1e9


def run(setting: Setting) -> Report:
    """Write traces, and read them in all ways."""
    report = Report("Traces: a table of operators against json.load")
    share = QUICK_SHARE if setting.quick else 1
    one = _one_file(report, setting, EVENTS // share, RUNS, is_packed=True)
    many = _one_file(report, setting, MANY_EVENTS // share, LARGE_RUNS, is_packed=False)
    ranks = _ranks(report, setting, RANK_EVENTS // share)
    report.remarks.append(
        "Whole processes, from the start of Python on; all arguments. json.load without the "
        f"garbage collector. HTA 0.5.0 takes {HTA_S} CPU s for the eight ranks."
    )
    report.data = {"one": one, "many": many, "ranks": ranks}
    return report


def _one_file(
    report: Report, setting: Setting, events: int, runs: int, is_packed: bool
) -> dict[str, object]:
    """Of one file with so many events; `is_packed`: packed too."""
    path = setting.folder / "trace.json"
    written = write(path, events)
    ways = Ways(setting, path)
    arms: dict[str, Callable[[], float]] = {_LOADED: ways.load, _FIRST: ways.first}
    arms[_AGAIN] = ways.again
    if is_packed:
        _pack(path)
        arms[_PACKED] = ways.packed
    times = interleave(arms, min(setting.pairs, runs), BUDGET_S)
    _show(report, ways, times, written)
    path.unlink()
    return {"events": written, "cpu_s": times, "peaks_mb": ways.peaks_mb}


def _pack(path: Path) -> None:
    packed = path.with_name(f"{path.name}.gz")
    with path.open("rb") as plain, gzip.open(packed, "wb", 6) as file:
        shutil.copyfileobj(plain, file, 1 << 20)


def _show(report: Report, ways: Ways, times: dict[str, list[float]], written: int) -> None:
    base = median(times[_LOADED]).value
    title = f"{written:,} events, {ways.path.stat().st_size / 1e6:,.0f} MB"
    shown = report.table(title, "way", "CPU s", "of json.load", "target")
    first = median(times[_FIRST]).value / base
    targets = {_FIRST: at_most(first, TARGET)}
    targets[_AGAIN] = at_most(median(times[_AGAIN]).value, AGAIN_S, f"<= {AGAIN_S} s")
    if _PACKED in times:
        more = median(times[_PACKED]).value / base - first
        targets[_PACKED] = at_most(more, PACKED_MORE, f"<= {PACKED_MORE} more ({more:+.2f})")
    for name, values in times.items():
        found = median(values)
        shown.add(name, interval(found), f"{found.value / base:.2f}", targets.get(name, ""))
    wall_s = median(ways.again_wall_s)
    wall = at_most(wall_s.value, AGAIN_S, f"<= {AGAIN_S} s")
    shown.add(f"{_AGAIN}, on the clock", interval(wall_s), "", wall)
    most_mb = TARGET_MB + TARGET_BYTES_EACH * written / 1e6
    peak_mb = max(ways.peaks_mb)
    memory = report.table(f"Memory, {written:,} events", "way", "peak MB", "target")
    memory.add(_FIRST, f"{peak_mb:,.0f}", at_most(peak_mb, most_mb, f"<= {most_mb:,.0f} MB"))


def _ranks(report: Report, setting: Setting, events: int) -> dict[str, object]:
    """Of a folder with a file for each rank, all of the same events."""
    folder = setting.folder / "ranks"
    folder.mkdir()
    first = folder / "rank-0.json"
    written = write(first, events)
    for rank in range(1, RANKS):
        shutil.copyfile(first, folder / f"rank-{rank}.json")
    ways = Ways(setting, folder)
    times = interleave({_FIRST: ways.first}, min(setting.pairs, RUNS), BUDGET_S)
    found = median(times[_FIRST])
    title = f"{RANKS} ranks of {written:,} events, all processes"
    shown = report.table(title, "way", "CPU s", "of HTA 0.5.0", "target")
    target = at_most(found.value, RANKS_S, f"<= {RANKS_S} s")
    shown.add(_FIRST, interval(found), f"{found.value / HTA_S:.2f}", target)
    return {"events": written, "cpu_s": times}


def write(path: Path, count: int) -> int:
    """A trace of operators that launch kernels, with arrows; how many events it has."""
    chance = random.Random(1)
    texts = [json.dumps(event, indent=1) for event in _events()]
    # Words in brackets are places for what differs: made once, which is ten times as quick.
    template = ",\n".join(texts).replace("%", "%%")
    template = re.sub(r'"<([A-Z]+)>"|<([A-Z]+)>', r"%(\1\2)s", template)
    at_us, written = 1000.0, 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1730000000000000000,\n')
        file.write('"deviceProperties": [{"id": 0, "numSms": 132}], "traceEvents": [\n')
        while written < count:
            values = {"NUMBER": written, "NEXT": written + 1, "OP": chance.randrange(200)}
            values |= {"DUR": round(chance.uniform(10, 25), 3), "BEGIN": round(at_us, 3)}
            inner, call, later = (round(at_us + more, 3) for more in (1, 2, 40))
            values |= {"INNER": inner, "CALL": call, "LATER": later}
            file.write((",\n" if written else "") + template % values)
            written += len(texts)
            at_us += 30
        file.write('\n], "traceName": "trace.json"}\n')
    return written


def _events() -> list[dict[str, object]]:
    """An operator in another one that launches a kernel."""
    name = "aten::operator_<OP>"
    ids = {"External id": "<NEXT>", "Ev Idx": "<NUMBER>"}
    inputs = {"Input Dims": _SHAPES, "Input type": ["float", "float", ""]}
    thread = {"ph": "X", "pid": 4242, "tid": 4242}
    launch = {"External id": "<NEXT>", "cbid": 211, "correlation": "<NEXT>"}
    grid = {"grid": [1024, 1, 1], "block": [128, 1, 1], "registers per thread": 32}
    on_gpu = {"device": 0, "stream": 7, **launch, **grid, "est. achieved occupancy %": 48}
    arrow = {"cat": "ac2g", "name": "ac2g", "id": "<NEXT>"}
    outer = {"cat": "cpu_op", "name": name, "ts": "<BEGIN>", "dur": "<DUR>", "args": ids | inputs}
    within = {"cat": "cpu_op", "name": f"{name}_out", "ts": "<INNER>", "dur": 7.125, "args": ids}
    runtime = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": "<CALL>", "dur": 5}
    called = f"void {name}<float>(int, float)"
    kernel = {"cat": "kernel", "name": called, "ts": "<LATER>", "dur": 20.5}
    gpu = {"ph": "X", "pid": 0, "tid": 7}
    return [
        {**thread, **outer},
        {**thread, **within},
        {**thread, **runtime, "args": launch},
        {**arrow, "ph": "s", "pid": 4242, "tid": 4242, "ts": "<CALL>"},
        {**gpu, **kernel, "args": on_gpu},
        {**arrow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": "<LATER>"},
    ]
