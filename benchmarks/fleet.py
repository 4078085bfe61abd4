"""CPU time and memory of asking which ranks of a job are late, of 10, 100 and 1,000 ranks of 20,000
events with clocks apart, whose answer is known; and whether Spark says what DuckDB does.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from measuring.report import Report, at_most
from measuring.runs import EXAMPLES, BenchmarkError, Done, Setting, execute

ONLY_WHEN_NAMED = True
RANKS, QUICK_RANKS = (10, 100, 1000), (4, 8)
STEPS, QUICK_STEPS = 294, 20
KERNELS = 20
# A rank of many may cost so much more than one of ten, and all of them take so much more memory.
LINEAR, SAME_BYTES = 1.15, 1.5
TIMEOUT_S = 1800
OFFSET_US, DRIFT = 5_000.0, 20e-6
# In this way every hundredth rank is late; of fewer ranks the last ones.
REASONS = (("loader", 3_000.0), ("compute", 2_000.0), ("host", 1_500.0), ("copy", 1_000.0))
# The Python with Spark has our libraries, not us.
_SOURCE = str(Path(__file__).resolve().parents[1] / "src")
_TABLE = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from layerscope import cli
status = cli.main(["table", *sys.argv[2:], "--json"])
own = resource.getrusage(resource.RUSAGE_SELF)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print()
print(json.dumps({
    "status": status,
    "cpu_s": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
    "opener": own.ru_maxrss * 1024,
    "converter": children.ru_maxrss * 1024,
}))
"""


@dataclass(frozen=True)
class Planted:
    """A rank that is late in every step, with `why` and by how much."""

    rank: int
    why: str
    more_us: float


def run(setting: Setting) -> Report:
    """Write jobs of more and more ranks, and ask for their stragglers twice."""
    report = Report("Fleet: which rank of a thousand is late")
    table = report.table(
        f"`table stragglers`, {STEPS:,} steps, about {STEPS * (3 * KERNELS + 8):,} events a rank",
        *("ranks", "CPU s", "CPU s a rank", "converter", "who asks"),
        *("CPU s again", "ms a rank again", "who asks again", "late ranks found"),
    )
    steps = QUICK_STEPS if setting.quick else STEPS
    found: dict[int, dict[str, Any]] = {}
    for count in QUICK_RANKS if setting.quick else RANKS:
        folder = setting.folder / f"job-{count}"
        late = planted(count)
        write(folder, count, steps, late)
        first, again = asked(setting, folder), asked(setting, folder)
        rows = again.pop("rows")
        first.pop("rows")
        found[count] = {"first": first, "again": again, "spark": _spark(setting, folder, rows)}
        table.add(
            f"{count:,}",
            f"{first['cpu_s']:.1f}",
            f"{first['cpu_s'] / count:.2f}",
            _mib(first["converter"]),
            _mib(first["opener"]),
            f"{again['cpu_s']:.1f}",
            f"{1e3 * again['cpu_s'] / count:.1f}",
            _mib(again["opener"]),
            f"{named(rows, late)} of {len(late)}",
        )
        shutil.rmtree(folder)
        shutil.rmtree(setting.folder / "cache", ignore_errors=True)
    _judge(report, found)
    report.data = {str(count): one for count, one in found.items()}
    return report


def _judge(report: Report, found: dict[int, dict[str, Any]]) -> None:
    few, most = min(found), max(found)
    for name, words in (("first", "opened for the first time"), ("again", "opened again")):
        growth = (found[most][name]["cpu_s"] / most) / (found[few][name]["cpu_s"] / few)
        report.remarks.append(
            f"A rank of {most:,} costs {growth:.2f} times what one of {few} does, {words}: "
            f"{at_most(growth, LINEAR)}."
        )
    bytes_of = {count: max(one["first"]["opener"], one["first"]["converter"])
                for count, one in found.items()}  # fmt: skip
    growth = bytes_of[most] / bytes_of[few]
    report.remarks.append(
        f"The largest process of {most:,} ranks takes {growth:.2f} times the memory of that of "
        f"{few}: {at_most(growth, SAME_BYTES)}."
    )
    same = [str(count) for count, one in found.items() if one["spark"]]
    report.remarks.append(
        f"Spark said the same as DuckDB, row for row, of {', '.join(same)} ranks."
        if same
        else "Spark was not asked: LAYERSCOPE_TEST_SPARK_PYTHON names no Python that has it."
    )
    report.remarks.append(
        "CPU of the command and its converters; memory: the largest resident size of one process. "
        "A late rank is found if it, and no other, came late to at least nine tenths of the "
        "collectives, within 5 us of what was planted and for the planted reason."
    )


def planted(count: int) -> list[Planted]:
    """Who is late: few enough that the median rank is not."""
    late = []
    for number, (why, more_us) in enumerate(REASONS[: max(1, min(4, count // 4))]):
        rank = count * (2 * number + 1) // 8
        late.append(Planted(rank, why, more_us))
    return late


def named(rows: list[dict[str, Any]], late: list[Planted]) -> int:
    """How many of the late ranks the table names, each with its reason; 0 if it names others."""
    told = {row["rank"]: row for row in rows if row["late"]}
    if told.keys() != {one.rank for one in late}:
        return 0
    found = 0
    for one in late:
        row = told[one.rank]
        is_often = row["late"] >= 0.9 * row["collectives"]
        is_near = abs(row["late_ns"] / 1e3 - one.more_us) < 5
        found += row["reason"] == one.why and is_often and is_near
    return found


def asked(setting: Setting, folder: Path, *more: str, python: str = "") -> dict[str, Any]:
    """The rows of the table, and what they took."""
    command = [python or setting.tool, "-c", _TABLE, _SOURCE]
    command += [str(folder), "stragglers", *more]
    done, _ = execute(setting, command, timeout_s=TIMEOUT_S)
    found = done.json
    if found["status"]:
        raise BenchmarkError(f"no table of {folder}")
    return {**found, "rows": _rows(done)}


def _rows(done: Done) -> list[dict[str, Any]]:
    text, _, _ = done.out.rstrip().rpartition("\n")
    told = json.loads(text)
    names = [column["name"] for column in told["columns"]]
    return [dict(zip(names, row, strict=True)) for row in told["rows"]]


def _spark(setting: Setting, folder: Path, rows: list[dict[str, Any]]) -> bool:
    """Whether Spark says the same; False where there is none."""
    python = os.environ.get("LAYERSCOPE_TEST_SPARK_PYTHON")
    if not python:
        return False
    said = asked(setting, folder, "--engine", "spark", python=python)["rows"]
    if said != rows:
        raise BenchmarkError(f"Spark says something else than DuckDB of {folder.name}")
    return True


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def write(folder: Path, count: int, steps: int, late: list[Planted]) -> None:
    """Traces of so many ranks, each with a clock of its own. Ranks that are late in the same way
    do the same at the same times, so their texts are made once, with places for the times.
    """
    made = _example()
    ways = [made.Late(number + 1, one.why, one.more_us) for number, one in enumerate(late)]
    usual, *delayed = made.job(len(ways) + 1, steps, KERNELS, ways, None)
    by_rank = {one.rank: Template(trace, count) for one, trace in zip(late, delayed, strict=True)}
    template = Template(usual, count)
    chance = random.Random(count)
    folder.mkdir(parents=True)
    for rank in range(count):
        clock = made.Clock(
            chance.uniform(-OFFSET_US, OFFSET_US) if rank else 0.0,
            chance.uniform(-DRIFT, DRIFT) if rank else 0.0,
        )
        text = by_rank.get(rank, template).filled(rank, clock)
        path = folder / f"rank-{rank}.json.gz"
        path.write_bytes(gzip.compress(text, 1, mtime=0))


class Template:
    """The text of a rank's trace with places for its number and for its times."""

    _RANK, _HOST = 7_654_321, 7_655_321

    def __init__(self, trace: Any, count: int) -> None:
        shift = self._RANK - trace.rank
        self.times_us = [event["ts"] for event in trace.events]
        for event in trace.events:
            event["ts"] = "TIME"
            event["pid"] += shift
            if "device" in event["args"]:
                event["args"]["device"] = self._RANK
        trace.rank = self._RANK
        self.text = json.dumps(trace.document(count)).replace("%", "%%").replace('"TIME"', "%.3f")

    def filled(self, rank: int, clock: Any) -> bytes:
        """The trace of this rank, whose clock is this one."""
        shown = tuple([clock.shown(time_us) for time_us in self.times_us])
        text = self.text % shown
        text = text.replace(str(self._HOST), str(1000 + rank)).replace(str(self._RANK), str(rank))
        return text.encode()


def _example() -> ModuleType:
    """The program that writes traces of ranks."""
    path = EXAMPLES / "traces_of_ranks.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
