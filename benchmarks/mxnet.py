"""What recording adds to the CPU time of small operators of MXNet, beside its own profiler, and how
much either writes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from measuring.intervals import median_ratio
from measuring.report import Report, at_most, interval
from measuring.runs import PROGRAMS, BenchmarkError, Setting, execute, interleave, recorded
from measuring.watch import folder_bytes

# MXNet has an environment of its own, which not every machine has.
ONLY_WHEN_NAMED = True
PROGRAM = "mxnet_additions.py"
BUDGET_S = 400.0
OPERATORS, CALLS = "operators", "operators and calls"
BARE, EVERYTHING, OWN = "bare", "all default layers", "MXNet's profiler"
WITHOUT = {OPERATORS: ("api", "stacks"), CALLS: ("stacks",), EVERYTHING: ()}
TARGETS = {OPERATORS: 1.05, CALLS: 1.15}
MOST_OF_JSON = 0.1


@dataclass(frozen=True)
class Sample:
    """CPU time of the loop, and the bytes that were written."""

    cpu_ns: int
    bytes: int


def run(setting: Setting) -> Report:
    """All versions of MXNet that there is an environment of."""
    report = Report("MXNet: 30,000 small additions recorded, over without")
    table = report.table(
        "Processes in turns", "MXNet", "what is recorded", "runs", "CPU (s)", "over bare", "target",
        "MB", "of its JSON",
    )  # fmt: skip
    pythons = {version: python_of(version) for version in ("1", "2")}
    for version, python in pythons.items():
        if python:
            found = turns(replace(setting, program=python))
            add_rows(table.add, version, found)
            report.data[version] = {
                arm: {"cpu_ns": [one.cpu_ns for one in runs], "bytes": [one.bytes for one in runs]}
                for arm, runs in found.items()
            }
    if not any(pythons.values()):
        raise BenchmarkError("there is no environment with MXNet: python3 dev.py test makes them")
    report.remarks.append(
        "CPU: of the process in the loop. Intervals are 95 %, by bootstrap over the turns; targets "
        "are for their upper ends. MB: raw files, and the file of MXNet's profiler."
    )
    return report


def python_of(version: str) -> str:
    """The Python with this version of MXNet; empty: there is none."""
    named = os.environ.get(f"LAYERSCOPE_TEST_MXNET{version}_PYTHON", "")
    python = named or str(Path(".envs") / f"mxnet{version}" / "bin" / "python")
    return str(Path(python).absolute()) if Path(python).exists() else ""


def turns(setting: Setting) -> dict[str, list[Sample]]:
    """Bare, recorded in three ways, and under MXNet's own profiler."""
    arms = {BARE: partial(plain, setting), OWN: partial(profiled, setting)}
    arms |= {name: partial(with_us, setting, layers) for name, layers in WITHOUT.items()}
    for arm in arms.values():
        arm()
    return interleave(arms, setting.pairs, BUDGET_S)


def plain(setting: Setting) -> Sample:
    """The program alone."""
    done, _ = execute(setting, [setting.program, str(PROGRAMS / PROGRAM)])
    return Sample(done.json["cpu_ns"], 0)


def profiled(setting: Setting) -> Sample:
    """By MXNet's own profiler."""
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    file = folder / "profile.json"
    try:
        done, _ = execute(setting, [setting.program, str(PROGRAMS / PROGRAM), str(file)])
        return Sample(done.json["cpu_ns"], file.stat().st_size)
    finally:
        shutil.rmtree(folder)


def with_us(setting: Setting, without: tuple[str, ...]) -> Sample:
    """Under layerscope."""
    options = ("--without", ",".join(without)) if without else ()
    with recorded(setting, PROGRAM, options=options) as run:
        return Sample(run.done.json["cpu_ns"], folder_bytes(run.run.raw))


def add_rows(add: Callable[..., None], version: str, found: dict[str, list[Sample]]) -> None:
    """A row for each way."""
    bare = [one.cpu_ns for one in found[BARE]]
    json_bytes = statistics.median(one.bytes for one in found[OWN])
    for arm, runs in found.items():
        cpu = [one.cpu_ns for one in runs]
        size = statistics.median(one.bytes for one in runs)
        ratio = median_ratio(cpu, bare) if arm != BARE else None
        target = TARGETS.get(arm)
        share = size / json_bytes if size and arm != OWN else 0.0
        add(
            version,
            arm,
            str(len(runs)),
            f"{statistics.median(cpu) / 1e9:.2f}",
            interval(ratio) if ratio else "",
            at_most(ratio.high, target, f"<= {target:.2f}") if ratio and target else "",
            f"{size / 1e6:.1f}" if size else "",
            f"{share:.3f}, {at_most(share, MOST_OF_JSON)}" if share else "",
        )
