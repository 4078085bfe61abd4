"""CPU time of reading a log of oneDNN's verbose mode: calls that repeat, and calls that are all
different.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from measuring.intervals import mean_difference
from measuring.report import Report, at_most
from measuring.runs import Setting, execute, interleave

# Lines a second of CPU.
TARGETS = {"that repeat": 1_500_000, "all different": 250_000}
LINES, QUICK_LINES = 1_000_000, 200_000
RUNS, BUDGET_S = 10, 60
# Shapes of the primitives that a small network asks for again and again.
SHAPES = 40
_LINE = (
    "onednn_verbose,v1,{at_ms:.6f},primitive,exec,cpu,convolution,jit:avx512_core,forward_training,"
    "src:f32:a:blocked:aBcd16b::f0 wei:f32:a:blocked:ABcd16b16a::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,"
    "mb{batch}_ic32oc64_ih32oh16kh3sh2dh0ph1_iw32ow16kw3sw2dw0pw1,{ms:.6g}\n"
)
_READ = (
    "import sys; from pathlib import Path; from layerscope.sources import onednn_verbose; "
    "sys.exit(len(onednn_verbose.read(Path(sys.argv[1])).kind) != int(sys.argv[2]))"
)


def run(setting: Setting) -> Report:
    """Read a long and a tiny log in turns: what the lines cost is the difference."""
    report = Report("Parse: CPU time of reading a log of oneDNN's verbose mode")
    table = report.table(
        "Lines a second of CPU", "lines", "count", "read", "bytes a line", "target"
    )
    count = QUICK_LINES if setting.quick else LINES
    tiny = written(setting.folder / "tiny.log", 10, SHAPES)
    for kind, target in TARGETS.items():
        long = written(
            setting.folder / "long.log", count, SHAPES if kind == "that repeat" else count
        )
        arms = {"long": lambda: read(setting, long, count), "tiny": lambda: read(setting, tiny, 10)}  # noqa: B023
        times = interleave(arms, min(setting.pairs, RUNS), BUDGET_S)
        found = mean_difference(times["long"], times["tiny"])
        low, high = count / found.high, count / found.low
        table.add(
            kind,
            f"{count:,}",
            f"{count / found.value:,.0f} [{low:,.0f}, {high:,.0f}]",
            f"{long.stat().st_size / count:.0f}",
            at_most(target, low, f">= {target:,}"),
        )
        report.data[kind] = {"lines": count, **times}
        long.unlink()
    tiny.unlink()
    report.remarks.append(
        "From the file to columns with starts, durations, tracks and the texts of all calls; "
        "writing a recording of "
        "them is not in it. The reading of the long log less that of the tiny one, whole "
        "processes. Trimmed mean with "
        f"95 % interval. Those that repeat are of {SHAPES} different calls."
    )
    return report


def written(path: Path, count: int, shapes: int) -> Path:
    """A log of `count` calls, of `shapes` different ones."""
    with path.open("w") as file:
        for number, batch in zip(range(count), itertools.cycle(range(1, shapes + 1)), strict=False):
            file.write(
                _LINE.format(at_ms=1.795e12 + number, batch=batch, ms=(number % 997 + 1) / 1000)
            )
    return path


def read(setting: Setting, path: Path, count: int) -> float:
    """Seconds of CPU of a process that reads the log and nothing else."""
    return execute(setting, [setting.tool, "-c", _READ, str(path), str(count)])[0].cpu_ns / 1e9
