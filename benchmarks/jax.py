"""What recording adds to the CPU time of a JAX program, and how long after it the prompt comes."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from measuring.intervals import median_ratio
from measuring.report import Report, at_most, interval
from measuring.runs import BenchmarkError, Setting, interleave, plain, recorded

# JAX has an environment of its own, which not every machine has.
ONLY_WHEN_NAMED = True
PROGRAM = "jax_steps.py"
BUDGET_S = 400.0
BARE, EVERYTHING = "bare", "all default layers"
WITHOUT = {"without stacks": ("stacks",)}
# By program: how many steps, some 20 s of them, and the target of all default layers.
STEPS = {"train": (30_000, 1.06), "eager": (1_500_000, 1.35)}
MANY = 28_000
WATCH_S = 0.25
MOST_S = 1.0


@dataclass(frozen=True)
class Ending:
    """One run of many operators: how many there are, and seconds to the prompt behind its end."""

    spans: int
    prompt_s: float
    cpu_s: float


def run(setting: Setting) -> Report:
    """Programs in turns, then the ends of long ones."""
    setting = replace(setting, program=python_of_jax())
    report = Report("JAX on a CPU: recorded over without, and the prompt behind it")
    table = report.table(
        "Processes in turns", "program", "what is recorded", "runs", "CPU (s)", "wall (s)",
        "CPU over bare", "target",
    )  # fmt: skip
    for name, (steps, target) in STEPS.items():
        words = [name, str(steps // (4 if setting.quick else 1))]
        found = turns(setting, words)
        add_rows(table.add, name, found, target)
        report.data[name] = found
    add_ends(setting, report)
    report.remarks.append(
        "CPU: of the process in its loop, with all its threads. Intervals are 95 %, by bootstrap "
        "over the turns; targets are for their upper ends. Seconds after the program's end are "
        "wall time, and CPU of all our processes; the median counts. That program is recorded "
        "with --budget none, so all of its events are."
    )
    return report


def python_of_jax() -> str:
    """The Python with JAX."""
    named = os.environ.get("LAYERSCOPE_TEST_JAX_PYTHON", "")
    python = Path(named or ".envs/jax/bin/python").absolute()
    if not python.exists():
        raise BenchmarkError("there is no environment with JAX: python3 dev.py test makes it")
    return str(python)


def turns(setting: Setting, words: list[str]) -> dict[str, list[dict[str, int]]]:
    """Bare, and recorded in several ways."""
    arms: dict[str, Callable[[], dict[str, int]]] = {
        BARE: lambda: plain(setting, PROGRAM, *words).json,
        EVERYTHING: partial(with_us, setting, words, ()),
    }
    arms |= {name: partial(with_us, setting, words, layers) for name, layers in WITHOUT.items()}
    for arm in arms.values():
        arm()
    return interleave(arms, setting.pairs, BUDGET_S)


def with_us(setting: Setting, words: list[str], without: tuple[str, ...]) -> dict[str, int]:
    """Under layerscope."""
    options = ("--without", ",".join(without)) if without else ()
    with recorded(setting, PROGRAM, *words, options=options) as one:
        said: dict[str, int] = one.done.json
        return said


def add_rows(
    add: Callable[..., None], name: str, found: dict[str, list[dict[str, int]]], target: float
) -> None:
    """A row for each way."""
    bare = [one["cpu_ns"] for one in found[BARE]]
    for arm, runs in found.items():
        cpu = [one["cpu_ns"] for one in runs]
        wall_s = statistics.median(one["wall_ns"] for one in runs) / 1e9
        ratio = median_ratio(cpu, bare) if arm != BARE else None
        has_target = ratio is not None and arm == EVERYTHING
        add(
            name,
            arm,
            str(len(runs)),
            f"{statistics.median(cpu) / 1e9:.2f}",
            f"{wall_s:.2f}",
            interval(ratio) if ratio else "",
            at_most(ratio.high, target, f"<= {target:.2f}") if ratio and has_target else "",
        )


def add_ends(setting: Setting, report: Report) -> None:
    """What is left to do when a program with a million events has ended."""
    table = report.table(
        "After the program's end", "events", "runs", "prompt (s)", "CPU of ours (s)", "target"
    )
    count = MANY // (8 if setting.quick else 1)
    endings = [ending(setting, count) for _ in range(1 if setting.quick else 3)]
    prompt_s = statistics.median(one.prompt_s for one in endings)
    most_s = MOST_S * max(1.0, endings[0].spans / 1e6)
    table.add(
        f"{endings[0].spans:,}",
        str(len(endings)),
        f"{prompt_s:.2f}",
        f"{statistics.median(one.cpu_s for one in endings):.2f}",
        at_most(prompt_s, most_s, f"<= {most_s:.1f} s"),
    )
    report.data["ends"] = [vars(one) for one in endings]


def ending(setting: Setting, count: int) -> Ending:
    """Record one run and watch it end."""
    words = ["many", str(count)]
    told = {"quiet": False, "watch_every_s": WATCH_S, "options": ("--budget", "none")}
    with recorded(setting, PROGRAM, *words, **told) as one:
        watch = one.watch
        if watch is None or "program" not in watch.ended_ns:
            raise BenchmarkError("the program's end was not seen")
        prompt_s = (one.done.end_ns - watch.ended_ns["program"]) / 1e9
        cpu_s = (one.done.cpu_ns - watch.cpu_at_program_end_ns) / 1e9
        return Ending(one.rows("spans"), prompt_s, cpu_s)
