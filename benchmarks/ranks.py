"""CPU time and memory of opening the recording of several ranks, of a million spans each."""

from __future__ import annotations

import shutil
from pathlib import Path

from measuring.report import Report, at_most
from measuring.runs import Recorded, Setting, execute, recorded

from layerscope.recording import ranks
from layerscope.recording.run import RunInfo

SPANS, QUICK_SPANS = 1_000_000, 100_000
RANKS, QUICK_RANKS = (1, 2, 4, 8), (1, 2)
MOST_BYTES = 400 << 20
# A rank of many may cost so much more than one of two: it grows with their number and no faster.
LINEAR = 1.15
TIMEOUT_S = 600
_OPEN = """
import json, resource, sys
from pathlib import Path
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
with Reader(open_run(Path(sys.argv[1]))) as reader:
    spans = reader.rows("spans")
    reader.query("SELECT name, sum(self_ns) FROM spans GROUP BY name")
own = resource.getrusage(resource.RUSAGE_SELF)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "spans": spans,
    "cpu_s": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
    "opener": own.ru_maxrss * 1024,
    "converter": children.ru_maxrss * 1024,
}))
"""


def run(setting: Setting) -> Report:
    """Open folders of copies of the raw files of one program, for the first time and again."""
    report = Report("Ranks: opening a recording of several ranks")
    table = report.table(
        "The first opening, and the next",
        "ranks",
        "spans",
        "CPU s",
        "CPU s a rank",
        "converter",
        "who opens",
        "target",
        "CPU s again",
        "who opens",
    )
    operators = str(QUICK_SPANS if setting.quick else SPANS)
    found: dict[int, dict[str, float]] = {}
    with recorded(setting, "many_small_ops.py", "--operators", operators) as one:
        for count in QUICK_RANKS if setting.quick else RANKS:
            folder = copied(setting.folder / "ranks.layerscope", one, count)
            first, again = opened(setting, folder), opened(setting, folder)
            found[count] = first
            most_bytes = max(first["opener"], first["converter"])
            table.add(
                str(count),
                f"{first['spans']:,.0f}",
                f"{first['cpu_s']:.2f}",
                f"{first['cpu_s'] / count:.2f}",
                f"{first['converter'] / 2**20:.0f} MiB",
                f"{first['opener'] / 2**20:.0f} MiB",
                at_most(most_bytes, MOST_BYTES, f"<= {MOST_BYTES >> 20} MiB"),
                f"{again['cpu_s']:.2f}",
                f"{again['opener'] / 2**20:.0f} MiB",
            )
            report.data[str(count)] = {"first": first, "again": again}
            shutil.rmtree(folder)
    most, few = max(found), sorted(found)[1]
    growth = (found[most]["cpu_s"] / most) / (found[few]["cpu_s"] / few)
    report.remarks.append(
        f"A rank of {most} costs {growth:.2f} times what one of {few} does: "
        f"{at_most(growth, LINEAR)}."
    )
    report.remarks.append(
        "Raw files of one program, copied; no rank has tables at the first opening. CPU of the "
        "command and of all converters, one sum over all spans in it. Memory: the largest "
        "resident size of one process."
    )
    return report


def copied(path: Path, one: Recorded, count: int) -> Path:
    """A recording of so many ranks at `path`, each with the raw files of `one`."""
    launch = ranks.LaunchInfo("benchmark", "benchmark", "1", count)
    for rank in range(count):
        info = RunInfo(**{name: getattr(one.run.info, name) for name in RunInfo.__struct_fields__})
        info.run_id = f"rank-{rank}"
        part = ranks.join(path, launch, rank, info)
        if part is None:
            raise FileExistsError(path)
        shutil.copytree(one.run.raw, part.raw, dirs_exist_ok=True)
    return path


def opened(setting: Setting, path: Path) -> dict[str, float]:
    """What opening the recording at `path` took."""
    done, _ = execute(setting, [setting.tool, "-c", _OPEN, str(path)], timeout_s=TIMEOUT_S)
    found: dict[str, float] = done.json
    return found
