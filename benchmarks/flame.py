"""CPU time and memory of a flame graph of a million distinct stacks: from our tables, and from
folded text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, execute, interleave

from layerscope.ingest.open import mark_complete
from layerscope.model.layers import FRAME_LAYERS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.run import Run, RunInfo
from layerscope.recording.writer import write_columns

# Seconds of CPU, and bytes, where there is a promise.
TARGETS = {"tables": (2.0, None), "folded text": (8.0, 200 << 20)}
STACKS, QUICK_STACKS = 1_000_000, 50_000
# Frames of a stack, at most, and different ones. What PyTorch runs is about so deep.
DEPTH, FRAMES = 45, 20_000
RUNS, BUDGET_S = 7, 120
# Not ru_maxrss, which knows of the process that started it too.
_COMMAND = (
    "import sys; from layerscope.cli import main; status = main(sys.argv[1:]); "
    "print(next(int(line.split()[1]) for line in open('/proc/self/status') if "
    "line.startswith('VmHWM:')) * 1024); "
    "sys.exit(status)"
)


def run(setting: Setting) -> Report:
    """Draw the same stacks from both."""
    report = Report("Flame: a million distinct stacks to SVG")
    table = report.table(
        "A picture", "from", "stacks", "CPU s", "target", "memory", "target", "bytes of the input"
    )
    count = QUICK_STACKS if setting.quick else STACKS
    recording = written(setting.folder / "stacks.layerscope", count)
    text = setting.folder / "stacks.folded"
    drawn(setting, recording, text)
    size = {
        "tables": sum(file.stat().st_size for file in recording.rglob("*.parquet")),
        "folded text": text.stat().st_size,
    }
    sources = {"tables": recording, "folded text": text}
    memory: dict[str, int] = dict.fromkeys(sources, 0)

    def once(name: str) -> float:
        cpu_s, most_bytes = drawn(setting, sources[name], setting.folder / "picture.svg")
        memory[name] = max(memory[name], most_bytes)
        return cpu_s

    times = interleave(
        {name: lambda name=name: once(name) for name in sources}, min(setting.pairs, RUNS), BUDGET_S
    )
    for name, (cpu_s, most_bytes) in TARGETS.items():
        found = median(times[name])
        table.add(
            name,
            f"{count:,}",
            interval(found),
            at_most(found.high, cpu_s),
            f"{memory[name] / 2**20:.0f} MiB",
            ""
            if most_bytes is None
            else at_most(memory[name], most_bytes, f"<= {most_bytes >> 20} MiB"),
            f"{size[name]:,}",
        )
        report.data[name] = {"stacks": count, "memory": memory[name], "cpu_s": times[name]}
    report.remarks.append(
        f"Made-up stacks of up to {DEPTH} frames, of {FRAMES:,} different ones. Whole processes, "
        "from the start of "
        "Python on. Of folded text the conversion to tables is in it, which is done once for each "
        "file."
    )
    return report


def drawn(setting: Setting, source: Path, into: Path) -> tuple[float, int]:
    """Seconds of CPU and most bytes of memory of a process that makes the picture, of a text
    converted anew.
    """
    into.unlink(missing_ok=True)
    if source.is_file():
        source.touch()
    command = [setting.tool, "-c", _COMMAND, "flame", str(source), "-o", str(into), "-q"]
    done = execute(setting, command)[0]
    return done.cpu_ns / 1e9, int(done.out.split()[-1])


def written(path: Path, count: int) -> Path:
    """A recording with so many distinct stacks and a sample of each; a few branches are much
    heavier than others.
    """
    random = np.random.default_rng(1)
    parents, depth, first, total = [np.full(3, -1)], [np.zeros(3, np.int64)], 0, 3
    for level in range(1, DEPTH):
        above = total - first
        wide = min(int(3 * 1.7**level), count // 18)
        chosen = np.minimum((random.pareto(1.0, wide) * above / 20).astype(np.int64), above - 1)
        parents.append(first + chosen)
        depth.append(np.full(wide, level))
        first, total = total, total + wide
    stacks = {"parent": np.concatenate(parents), "depth": np.concatenate(depth)}
    info = RunInfo(
        SCHEMA_VERSION,
        "benchmark",
        path.stem,
        "finished",
        ["made", "up"],
        "/",
        {},
        {},
        "2026-01-01T00:00:00Z",
    )
    made = Run.create(path, info)
    rows = tables_of(stacks, min(count, total), random)
    for name, columns in rows.items():
        write_columns(path, name, columns)
    mark_complete(
        path, made.raw, {name: len(next(iter(columns.values()))) for name, columns in rows.items()}
    )
    return path


def tables_of(
    stacks: dict[str, Any], count: int, random: np.random.Generator
) -> dict[str, dict[str, Any]]:
    """The tables of a recording with these stacks, of which so many have a sample."""
    total = len(stacks["parent"])
    layers = np.array(FRAME_LAYERS, object)[random.integers(0, len(FRAME_LAYERS), FRAMES)]
    ends = np.sort(random.permutation(total)[:count])
    return {
        "frames": {
            "frame": np.arange(FRAMES),
            "layer": layers.tolist(),
            "name": [f"function_{n // 4}" for n in range(FRAMES)],
            "file": [f"/project/file{n % 97}.py" for n in range(FRAMES)],
            "line": np.arange(FRAMES) % 4 + 1,
            "object": ["/lib/library.so"] * FRAMES,
        },
        "stacks": {
            "stack": np.arange(total),
            "parent": pa.array(stacks["parent"], pa.int32(), mask=stacks["parent"] < 0),
            "frame": random.integers(0, FRAMES, total),
            "depth": stacks["depth"],
        },
        "samples": {
            "at_ns": np.arange(count) * 10_000_000,
            "track": np.zeros(count, np.int64),
            "stack": ends,
            "weight_ns": random.integers(9_000_000, 12_000_000, count),
            "count": np.ones(count, np.int64),
            "kind": ["cpu"] * count,
            "state": ["user"] * count,
            "idle": np.zeros(count, bool),
            "exact": np.zeros(count, bool),
        },
    }
