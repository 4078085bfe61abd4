"""What all layers that are recorded by default cost a program, stacks among them; how good the
stacks are; and what other tools that take stacks cost.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from measuring.intervals import median, median_ratio, ratio_of_medians
from measuring.report import Report, Table, at_least, at_most, interval
from measuring.runs import PROGRAMS, Setting, execute, interleave, plain, recorded

from layerscope.recording.run import Run
from layerscope.sources.raw.stacks import SampledFile

# A program, its arguments, its steps (a second or so of CPU).
WORKLOADS = {
    "CNN": ("workload.py", "cnn", 60),
    "transformer": ("workload.py", "transformer", 24),
    "many small operators": ("workload.py", "tiny", 300),
    "training and 2 DataLoader workers": ("processes.py", "loader", 120),
}
HZ = 99
TARGET, TARGET_UPPER = 1.05, 1.07
HANDLER_PERCENT, WATCH_PERCENT = 1.0, 1.0
# Percent of samples: whose stack begins where the thread begins, the same of those in code made at
# run time, and whose frames of Python lie exactly where the C frames of the interpreter are.
QUALITY = {"to_root": ("samples", 95.0), "jit_to_root": ("jit", 92.0), "spliced": ("python", 97.0)}
QUALITY_STEPS = 400
IDLE_THREADS, IDLE_S = 128, 15
BUDGET_S = 420.0
OTHERS_BUDGET_S = 300.0


@dataclass(frozen=True)
class Sample:
    """One run: the loop by the program's own account; everything, the tool included, by the
    kernel's.
    """

    loop_cpu_ns: int
    whole_cpu_ns: int
    all_cpu_ns: int


def run(setting: Setting) -> Report:
    """Pairs of runs, then one long one whose stacks are looked at, then threads that only wait."""
    report = Report("Stacks: all default layers together")
    table = report.table(
        "The program's own CPU time, processes in turns",
        "program",
        "recorded",
        "pairs",
        "ratio of medians",
        "median ratio",
        "whole program",
        "target",
    )
    for name in WORKLOADS:
        compare(setting, name, table, report)
    compare_tools(setting, report)
    look_at_stacks(setting, report)
    watch_idle_threads(setting, report)
    report.remarks += [
        "Loop: the program's own CPU time over its steps, all threads (and workers). Whole "
        "program: wait4, with "
        "interpreter, imports and exit. Intervals are 95 %, by bootstrap over the pairs.",
        f"Target: {TARGET:.2f}, and {TARGET_UPPER:.2f} for the upper end.",
    ]
    return report


def words(setting: Setting, name: str, times: int = 1) -> tuple[str, ...]:
    """The program and its arguments."""
    program, which, steps = WORKLOADS[name]
    return program, which, "--steps", str(times * steps // (3 if setting.quick else 1))


def run_plain(setting: Setting, name: str) -> Sample:
    """Without layerscope."""
    done = plain(setting, *words(setting, name))
    return Sample(done.json["cpu_ns"], done.cpu_ns, done.cpu_ns)


def run_recorded(setting: Setting, name: str, options: tuple[str, ...]) -> Sample:
    """With layerscope."""
    with recorded(setting, *words(setting, name), options=options) as run:
        return Sample(run.done.json["cpu_ns"], run.program_cpu_ns, run.done.cpu_ns)


def compare(setting: Setting, name: str, table: Table, report: Report) -> None:
    """One program without us, and with all layers that are recorded by default."""
    arms = {
        "without": partial(run_plain, setting, name),
        "all": partial(run_recorded, setting, name, ()),
    }
    found = interleave(arms, setting.pairs, BUDGET_S)
    bare = found.pop("without")
    for arm, samples in found.items():
        loops = [one.loop_cpu_ns for one in samples], [one.loop_cpu_ns for one in bare]
        paired = median_ratio(*loops)
        whole = ratio_of_medians(
            [one.whole_cpu_ns for one in samples], [one.whole_cpu_ns for one in bare]
        )
        good = paired.value <= TARGET and paired.high <= TARGET_UPPER
        verdict = at_most(0 if good else 1, 0, f"<= {TARGET:.2f}, {TARGET_UPPER:.2f}")
        table.add(
            name,
            arm,
            str(len(loops[0])),
            interval(ratio_of_medians(*loops)),
            interval(paired),
            interval(whole),
            verdict,
        )
        report.data[f"{name}, {arm}"] = {
            "with": [asdict(one) for one in samples],
            "without": [asdict(one) for one in bare],
        }


def compare_tools(setting: Setting, report: Report) -> None:
    """What each tool that takes stacks costs in all: the program, and the tool beside it until its
    file is there.
    """
    table = report.table(
        "CNN, processes in turns: CPU time of the program and of the tool",
        "tool",
        "runs",
        "program and tool over the program alone",
        "loop of the program",
    )
    tools = {
        "none": partial(run_plain, setting, "CNN"),
        "layerscope run": partial(run_recorded, setting, "CNN", ()),
    }
    tools |= {
        name: partial(run_other, setting, command)
        for name, command in others(setting, report).items()
    }
    found = interleave(tools, min(setting.pairs, 10), OTHERS_BUDGET_S)
    bare = found.pop("none")
    for name, samples in found.items():
        everything = median_ratio(
            [one.all_cpu_ns for one in samples], [one.all_cpu_ns for one in bare]
        )
        loop = median_ratio([one.loop_cpu_ns for one in samples], [one.loop_cpu_ns for one in bare])
        table.add(name, str(len(samples)), interval(everything), interval(loop))
        report.data[f"tool {name}"] = {
            "with": [asdict(one) for one in samples],
            "without": [asdict(one) for one in bare],
        }
    report.remarks.append(
        "Program and tool: from the command to the prompt, with start-up, the last conversion of "
        "ours, and the file of "
        "the others; of layerscope with all its other layers. perf's file is not yet unwound then, "
        "py-spy's has names."
    )


def others(setting: Setting, report: Report) -> dict[str, list[str]]:
    """The tools that are here, and how they are called; `{out}` is their file."""
    perf, spy = shutil.which("perf"), shutil.which("py-spy")
    found = {}
    if perf:
        found["perf record --call-graph dwarf"] = [
            perf,
            "record",
            "-q",
            "-e",
            "cpu-clock:u",
            "-F",
            str(HZ),
            "--call-graph",
            "dwarf,16384",
            "-o",
            "{out}",
            "--",
        ]
    if spy:
        found["py-spy record --native"] = [
            spy,
            "record",
            "--native",
            "--threads",
            "--rate",
            str(HZ),
            "--format",
            "raw",
            "-o",
            "{out}",
            "--",
        ]
    report.remarks += [
        f"{name} is not here." for name, path in {"perf": perf, "py-spy": spy}.items() if not path
    ]
    return found


def run_other(setting: Setting, command: list[str]) -> Sample:
    """Under another tool, until its file is written. Every process is counted, reaped by its parent
    or not.
    """
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        filled = [word.format(out=f"{folder}/out") for word in command]
        program, *rest = words(setting, "CNN")
        reaper = str(Path(__file__).parent / "measuring" / "reaper.py")
        done, _ = execute(
            setting,
            [sys.executable, reaper, *filled, setting.program, str(PROGRAMS / program), *rest],
        )
    said: dict[str, int] = {}
    for line in done.out.splitlines():
        if line.startswith("{"):
            said |= json.loads(line)
    return Sample(said["cpu_ns"], 0, said["all_cpu_ns"])


def look_at_stacks(setting: Setting, report: Report) -> None:
    """How many stacks are whole, and what taking them cost, by the sampler's own count."""
    table = report.table("Stacks of a CNN, two threads", "what", "of", "percent", "target")
    steps = QUALITY_STEPS // (4 if setting.quick else 1)
    with recorded(setting, "workload.py", "cnn", "--steps", str(steps), "--threads", "2") as run:
        quality, problems = quality_of(run.run)
        cpu_ns = run.program_cpu_ns
    for name, (whole, target) in QUALITY.items():
        share = 100 * quality[name] / max(quality[whole], 1)
        table.add(
            name,
            f"{quality[whole]:,} {whole}",
            f"{share:.2f}",
            at_least(share, target, f">= {target:.0f}"),
        )
    handler = 100 * quality["handler_ns"] / cpu_ns
    table.add(
        "time in the handler",
        "CPU of the program",
        f"{handler:.2f}",
        at_most(handler, HANDLER_PERCENT),
    )
    table.add(
        "a handler", "us", f"{quality['handler_ns'] / max(quality['samples'], 1) / 1e3:.1f}", ""
    )
    report.data["quality"] = quality | {"cpu_ns": cpu_ns}
    report.remarks += [f"Problem of the recording: {problem}" for problem in problems]


def quality_of(run: Run) -> tuple[dict[str, int], list[str]]:
    """The sampler's own account of what it made."""
    file = SampledFile(run.raw / "stacks")
    file.advance()
    names = file.quality.dtype.names or ()
    return {name: int(file.quality[name]) for name in names}, [
        str(problem["what"]) for problem in file.problems
    ]


def watch_idle_threads(setting: Setting, report: Report) -> None:
    """What the sampler uses to watch threads that wait, and never do anything else."""
    table = report.table("Threads that only wait", "threads", "runs", "percent of a CPU", "target")
    seconds = IDLE_S // (3 if setting.quick else 1)
    program = f"""
import threading, time
for _ in range({IDLE_THREADS}):
    threading.Thread(target=time.sleep, args=({seconds},)).start()
"""
    shares = []
    for _ in range(1 if setting.quick else 5):
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            path = Path(folder) / "a.layerscope"
            ours = [setting.tool, "-m", "layerscope", "run", "-q", "-o", str(path)]
            command = [*ours, "--", setting.program, "-c", program]
            execute(setting, command)
            info = Run.open(path).info
            shares.append(100 * info.cost.sampler_cpu_ns / info.program.wall_ns)
    found = median(shares)
    table.add(
        str(IDLE_THREADS), str(len(shares)), interval(found), at_most(found.value, WATCH_PERCENT)
    )
    report.data["idle"] = shares
