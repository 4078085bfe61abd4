"""What recording memory costs the program, beside what torch.profiler and memray cost; bytes of an
allocation on disk; and how long the peak of many allocations takes.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from measuring.inside import split
from measuring.intervals import mean_difference, mean_increase, median_ratio
from measuring.report import Report, Table, at_most, interval
from measuring.runs import PROGRAMS, Done, Setting, execute, interleave, plain, recorded
from measuring.watch import folder_bytes

from layerscope.recording.reader import Reader

ONLY_WHEN_NAMED = True
STEPS = {"tiny": 200, "cnn": 30, "transformer": 12}
BUDGET_S = 120.0
SECONDS = 60.0  # of the blocks of one workload
BLOCKS = {"tiny": 1, "cnn": 1, "transformer": 1}  # steps
OPTIONS = ("--layers=+memory",)
WITHOUT, WITH, BARE = "layerscope", "layerscope, with memory", "nothing"
PROFILER, PROFILER_MEMORY = "torch.profiler", "torch.profiler, with memory"
MEMRAY = "memray"
TARGETS = {"tiny": 1.10, "cnn": 1.02, "transformer": 1.02}
RECORD_BYTES = 8.0
MANY = 5_000_000
PEAK_CPU_S = 2.0


@dataclass(frozen=True)
class Sample:
    """CPU time of the steps by the program's own account; allocations that were recorded, and what
    they take on disk.
    """

    loop_cpu_ns: int
    allocations: int = 0
    table_bytes: int = 0


def run(setting: Setting) -> Report:
    """Each workload in turns."""
    report = Report("Memory: what recording every allocation of a tensor adds")
    inside = report.table(
        "One process: blocks of steps with and without memory, in turns",
        "workload",
        "pairs",
        "allocations a step",
        "CPU over without memory",
        "CPU of an allocation and its release (ns)",
        "target",
    )
    for name in STEPS:
        compare_inside(setting, name, inside, report)
    table = report.table(
        "CPU time of the steps, processes in turns",
        "workload",
        "recorded by",
        "runs",
        "over without memory",
        "over nothing",
    )
    sizes = report.table(
        "On disk", "workload", "allocations", "bytes of an allocation and its release", "target"
    )
    for name in STEPS:
        found = interleave(arms(setting, name), setting.pairs, BUDGET_S)
        compare(table, report, name, found)
        newest = found[WITH][-1]
        each = newest.table_bytes / max(newest.allocations, 1)
        told = at_most(each, 2 * RECORD_BYTES, f"<= {2 * RECORD_BYTES:g}")
        sizes.add(name, f"{newest.allocations:,}", f"{each:.1f}", told)
        report.data[f"{name}, bytes"] = each
    measure_peak(setting, report)
    report.remarks.append(
        "Process CPU time, printed by the program. Intervals are 95 %, by bootstrap over the "
        "pairs; targets are for the upper ends."
    )
    return report


def compare_inside(setting: Setting, name: str, table: Table, report: Report) -> None:
    """One workload with itself: only the allocator is switched."""
    seconds = SECONDS / (6 if setting.quick else 1)
    words = [name, "--toggle", "memory", "--block", str(BLOCKS[name]), "--seconds", str(seconds)]
    with recorded(setting, "workload.py", *words, options=OPTIONS) as run:
        blocks = run.done.json["blocks"]
        with Reader(run.run) as reader:
            at_ns = np.sort(reader.arrays("allocations", ["at_ns"])["at_ns"])
    on, off = split(blocks)
    windows = np.array([block["window_ns"] for block in blocks if block["on"]])
    inside = np.searchsorted(at_ns, windows[:, 1]) - np.searchsorted(at_ns, windows[:, 0])
    allocations = float(inside.mean()) / BLOCKS[name]
    ratio = mean_increase(on.sum(1), off.sum(1))
    each_ns = mean_difference(on.sum(1), off.sum(1)).scaled(1 / BLOCKS[name] / allocations)
    target = at_most(ratio.high, TARGETS[name], f"<= {TARGETS[name]:.2f}")
    shown = f"{allocations:.0f}", interval(ratio, 4), interval(each_ns, 0)
    table.add(name, str(len(on)), *shown, target)
    report.data[f"{name}, inside"] = {"ratio": ratio, "allocation_ns": each_ns}


def arms(setting: Setting, name: str) -> dict[str, Callable[[], Sample]]:
    """What runs in turns."""
    words = [name, "--steps", str(STEPS[name] // (3 if setting.quick else 1))]
    found: dict[str, Callable[[], Sample]] = {
        BARE: lambda: of_program(plain(setting, "workload.py", *words)),
        WITHOUT: partial(run_recorded, setting, words, ()),
        WITH: partial(run_recorded, setting, words, OPTIONS),
        PROFILER: lambda: of_program(plain(setting, "workload.py", *words, "--profiler")),
        PROFILER_MEMORY: lambda: of_program(
            plain(setting, "workload.py", *words, "--profiler", "--memory")
        ),
    }
    if has_memray(setting):
        found[MEMRAY] = partial(run_memray, setting, words)
    return found


def of_program(done: Done) -> Sample:
    """What the program says of its steps."""
    return Sample(done.json["cpu_ns"])


def run_recorded(setting: Setting, words: list[str], options: tuple[str, ...]) -> Sample:
    """Under layerscope."""
    with recorded(setting, "workload.py", *words, options=options) as run:
        folder = run.run.path / "allocations"
        size = folder_bytes(folder) if folder.exists() else 0
        return Sample(run.done.json["cpu_ns"], run.rows("allocations") if size else 0, size)


def has_memray(setting: Setting) -> bool:
    """Whether the program's Python has memray."""
    command = [setting.program, "-c", "import memray"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def run_memray(setting: Setting, words: list[str]) -> Sample:
    """Under memray, Python frames alone."""
    output = setting.folder / "memray.bin"
    output.unlink(missing_ok=True)
    command = [setting.program, "-m", "memray", "run", "-q", "-f", "-o", str(output)]
    done, _ = execute(setting, [*command, str(PROGRAMS / "workload.py"), *words])
    return of_program(done)


def compare(table: Table, report: Report, name: str, found: dict[str, list[Sample]]) -> None:
    """Memory against the same without it, and all against nothing."""
    cpu_ns = {arm: [one.loop_cpu_ns for one in samples] for arm, samples in found.items()}
    without = {WITH: WITHOUT, PROFILER_MEMORY: PROFILER}
    for arm, values in cpu_ns.items():
        if arm == BARE:
            continue
        over = median_ratio(values, cpu_ns[BARE])
        added = median_ratio(values, cpu_ns[without[arm]]) if arm in without else None
        table.add(
            name,
            arm,
            str(len(values)),
            interval(added) if added else "",
            interval(over),
        )
        report.data[f"{name}, {arm}"] = {"cpu_ns": values, "over": over, "added": added}


def measure_peak(setting: Setting, report: Report) -> None:
    """CPU time of `layerscope table peak` of a recording with many allocations."""
    table = report.table("Many allocations", "question", "allocations", "CPU s", "target")
    path = recording_of(setting, MANY // (10 if setting.quick else 1))
    for question in ("peak", "memory"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        execute(setting, [setting.tool, "-m", "layerscope", "table", str(path), question])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        told = at_most(cpu_s, PEAK_CPU_S, f"<= {PEAK_CPU_S:g}") if question == "peak" else ""
        table.add(f"table {question}", f"{MANY:,}", f"{cpu_s:.2f}", told)
        report.data[f"table {question}"] = cpu_s


def recording_of(setting: Setting, count: int) -> Path:
    """A short recording whose table of allocations is made larger: `count` blocks of random
    sizes and lifetimes over its length.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = setting.folder / "many.layerscope"
    command = [setting.tool, "-m", "layerscope", "run", "-q", "--layers=+memory", "-o", str(path)]
    workload = [setting.program, str(PROGRAMS / "workload.py"), "tiny", "--steps", "20"]
    execute(setting, [*command, "--", *workload])
    (file,) = (path / "allocations").glob("*.parquet")
    table = pq.read_table(file)
    random = np.random.default_rng(1)
    rows = random.integers(0, table.num_rows, count)
    first, last = np.min(table["at_ns"]), np.max(table["at_ns"])
    at_ns = np.sort(random.integers(int(first), int(last), count))
    many = table.take(pa.array(rows))
    for name, values in {
        "at_ns": at_ns,
        "dur_ns": random.exponential((int(last) - int(first)) / 100, count).astype(np.int64),
        "bytes": random.integers(1, 1 << 20, count),
    }.items():
        place = many.schema.get_field_index(name)
        many = many.set_column(place, many.schema.field(name), pa.array(values))
    pq.write_table(many, file, compression="lz4")
    return path
