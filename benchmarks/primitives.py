"""What recording below the operators costs: a task of ITT, a pair of NVTX, the primitives of a CNN,
a call of MKL.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from measuring.intervals import mean_difference, median, median_ratio, ratio_of_medians
from measuring.report import Report, Table, at_most, interval
from measuring.runs import BenchmarkError, Setting, execute, interleave, plain, recorded
from overhead import Sample, arguments, run_plain, sample

from layerscope.recording.reader import Reader
from layerscope.recording.run import Run

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "tests" / "native"
# By what a client calls it: the client, what it is, and the most that it may take.
CALLS = {
    "plain": ("itt_client", "ITT: a task", 120.0),
    "told": ("itt_client", "ITT: a primitive of oneDNN with its text", 120.0),
    "push": ("nvtx_client", "NVTX: push and pop", 300.0),
    "domain": ("nvtx_client", "NVTX: the same in a domain, with a colour", 300.0),
    "start": ("nvtx_client", "NVTX: start and end", 300.0),
    "payload": ("nvtx_client", "NVTX: push and pop with a payload", 300.0),
}
ROUNDS, QUICK_ROUNDS = 40_000, 10_000  # a ring holds them
RUNS, QUICK_RUNS = 5, 1
TARGET = 1.04
BUDGET_S = 240.0
MKL = ("--layers", "+mkl")
WITHOUT = ("--without", "primitives,ranges")
# Products of matrices so small that the call itself is what they cost.
PRODUCTS = """
import json, sys, time
import torch

torch.set_num_threads(1)
a, b, count = torch.rand(16, 16), torch.rand(16, 16), int(sys.argv[1])
for _ in range(1000):
    torch.mm(a, b)
cpu_ns = time.process_time_ns()
for _ in range(count):
    torch.mm(a, b)
print(json.dumps({"call_ns": (time.process_time_ns() - cpu_ns) / count}))
"""


def run(setting: Setting) -> Report:
    """The price of one call, then a CNN with and without."""
    report = Report(
        "Below the operators: what ITT, NVTX, primitives and calls of MKL add to a program's own "
        "CPU time"
    )
    table = report.table("In a C program under layerscope run", "what", "runs", "ns each", "target")
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        for client in dict.fromkeys(client for client, _, _ in CALLS.values()):
            measure_client(setting, build(Path(folder), client), table, report)
    table = report.table(
        "A CNN, two processes in turns",
        "recorded",
        "pairs",
        "ratio of medians",
        "median ratio",
        "target",
    )
    compare_cnn(setting, table, report)
    table = report.table("A call of MKL, two processes in turns", "recorded", "pairs", "ns a call")
    compare_mkl(setting, table, report)
    report.remarks += [
        "In C: CPU time of the thread over the calls, that of the program's own loop included; the "
        "ring is emptied "
        "between the repetitions. Intervals are 95 %; targets are for their upper ends.",
        "CNN: the program's own CPU over its steps, all threads.",
        "MKL writes each call to a file, which it opens and closes for that: only on request "
        "(--layers +mkl).",
    ]
    return report


def build(folder: Path, client: str) -> Path:
    """The client of the tests, compiled."""
    compiler = next(
        (found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None
    )
    package = importlib.util.find_spec("nvidia")
    if compiler is None or package is None or not package.submodule_search_locations:
        raise BenchmarkError(
            "there is no C compiler, or not the package nvidia-nvtx-cu12: python3 dev.py test "
            "makes both"
        )
    header = Path(package.submodule_search_locations[0]) / "nvtx" / "include"
    command = [compiler, "-std=gnu11", "-O2", "-I", str(ROOT / "native"), "-isystem", str(header)]
    done = subprocess.run(
        [*command, "-o", str(folder / client), str(CLIENTS / f"{client}.c"), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"{client} does not compile: {done.stderr[-500:]}")
    return folder / client


def measure_client(setting: Setting, client: Path, table: Table, report: Report) -> None:
    """What each kind of call takes."""
    rounds = QUICK_ROUNDS if setting.quick else ROUNDS
    found: dict[str, list[float]] = {}
    for _ in range(QUICK_RUNS if setting.quick else RUNS):
        path = Path(tempfile.mkdtemp(dir=setting.folder)) / "a.layerscope"
        command = [
            setting.tool,
            "-m",
            "layerscope",
            "run",
            "-q",
            "-o",
            str(path),
            "--",
            str(client),
            "cost",
            str(rounds),
        ]
        done, _ = execute(setting, command)
        for line in done.out.splitlines():
            kind, ns = line.split()
            found.setdefault(kind, []).append(float(ns))
        with Reader(Run.open(path)) as reader:
            (row,) = reader.query("SELECT count(*) AS spans FROM spans").to_pylist()
        if row["spans"] < rounds:
            raise BenchmarkError(
                f"{client.name}: {row['spans']} spans were recorded of more than {rounds}"
            )
        shutil.rmtree(path.parent)
    for kind, values in found.items():
        _, what, target = CALLS[kind]
        each = median(values)
        table.add(
            what,
            str(len(values)),
            interval(each, 0),
            at_most(each.high, target, f"<= {target:.0f}"),
        )
        report.data[kind] = {"ns": values, "median": each}


def compare_cnn(setting: Setting, table: Table, report: Report) -> None:
    """Operators alone, and with the primitives below them."""
    words = arguments(setting, "cnn")
    arms = {
        "without": partial(run_plain, setting, words),
        "operators and modules": partial(run_recorded, setting, words, WITHOUT),
        "operators, modules and primitives": partial(run_recorded, setting, words, ()),
    }
    found = interleave(arms, setting.pairs, BUDGET_S)
    bare = [one.loop_cpu_ns for one in found.pop("without")]
    for name, samples in found.items():
        loops = [one.loop_cpu_ns for one in samples]
        ratios = ratio_of_medians(loops, bare), median_ratio(loops, bare)
        target = at_most(ratios[1].high, TARGET, f"<= {TARGET:.2f}")
        table.add(name, str(len(loops)), *map(interval, ratios), target)
        report.data[name] = {"with": loops, "without": bare, "ratios": ratios}


def run_recorded(setting: Setting, words: list[str], options: tuple[str, ...]) -> Sample:
    """With layerscope and `options`."""
    with recorded(setting, "workload.py", *words, options=options) as run:
        return sample(run.done, run)


def compare_mkl(setting: Setting, table: Table, report: Report) -> None:
    """A product of small matrices, with its call recorded and without."""
    program = setting.folder / "products.py"
    program.write_text(PRODUCTS)
    count = "2000" if setting.quick else "20000"

    def with_calls() -> float:
        with recorded(setting, str(program), count, options=MKL) as run:
            return float(run.done.json["call_ns"])

    def without() -> float:
        return float(plain(setting, str(program), count).json["call_ns"])

    found = interleave({"without": without, "with": with_calls}, min(setting.pairs, 8), BUDGET_S)
    added = mean_difference(found["with"], found["without"])
    table.add("operators and calls of MKL", str(len(found["with"])), interval(added, 0))
    report.data["mkl"] = {**found, "added_ns": added}
