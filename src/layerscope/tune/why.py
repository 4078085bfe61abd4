"""Why one setting is better than another: what two recordings of the program say its threads did,
side by side.

Read from the tables and the summary of each, per step that is not warm-up, or of the whole run
where there are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

from layerscope.analyse import tables
from layerscope.analyse.summary import Summary, summarise
from layerscope.model import units
from layerscope.recording.reader import Reader

# Runtimes of OpenMP. They compute nothing: a thread on a CPU in one of them waits for others there,
# or hands out work.
_OPENMP = re.compile(r"(?:^|/)lib(gomp|iomp5|omp)\b")
_YIELD = re.compile(r"sched_yield")
_REORDER = "reorder"
# Of the larger CPU time or duration, the least difference of a time that is told; and of counts the
# least ratio, and how many of them there must be in a step.
_TIME_SHARE, _COUNT_RATIO, _FEWEST = 0.03, 1.5, 5.0
WAITED_FOR = {
    "barrier": "at barriers of OpenMP",
    "lock": "for locks",
    "pool": "for work from a pool",
    "sleep": "asleep",
    "yield": "in yield",
    "preempted": "for a CPU that others had",
    "page_fault": "for pages",
    "file": "for files",
    "pipe": "for pipes",
    "socket": "for sockets",
    "event": "for events",
    "child": "for other processes",
    "join": "for threads to end",
    "backward": "for the backward pass on another thread",
    "gpu": "for the GPU",
    "stopped": "stopped by a signal",
    "gil": "for Python's lock (GIL)",
}


class Figures(Struct):
    """What a recording says, per step or per run; None: not told. `waits_ns`: of all threads, by
    what for.
    """

    per_step: bool
    dur_ns: float
    cpu_ns: float | None = None
    kernel_ns: float | None = None
    spin_ns: float | None = None
    yield_ns: float | None = None
    reorder_ns: float | None = None
    faults: float | None = None
    switches: float | None = None
    waits_ns: dict[str, float] = field(default_factory=dict)


def figures(reader: Reader) -> Figures:
    """The figures of one recording."""
    summary = summarise(reader)
    times = summary.steps
    measured = _measured_steps(reader) if times else set()
    count = len(measured) or 1
    found = Figures(times is not None, times.mean_ns if times else summary.info.program.wall_ns)
    _of_resources(found, summary)
    if reader.has("samples"):
        spins = [_row for _row in _rows(reader, "symbols") if not times or _row["step"] in measured]
        found.spin_ns = (
            sum(row["self_ns"] for row in spins if _OPENMP.search(row["object"] or "")) / count
        )
        found.yield_ns = (
            sum(row["self_ns"] for row in spins if _YIELD.search(row["name"] or "")) / count
        )
        for row in _rows(reader, "waits"):
            if row["state"] in WAITED_FOR and (not times or row["step"] in measured):
                found.waits_ns[row["state"]] = (
                    found.waits_ns.get(row["state"], 0.0) + row["total_ns"] / count
                )
    if reader.has("primitives"):
        rows = tables.build(reader, "primitives").data.to_pylist()
        # Those of warm-up are among them.
        found.reorder_ns = sum(row["total_ns"] for row in rows if row["name"] == _REORDER) / (
            times.count if times else 1
        )
    return found


def sentences(default: Figures, tuned: Figures) -> list[str]:
    """What differs so much that it matters, the largest first."""
    if default.per_step != tuned.per_step:
        return ["Only one of the two recordings has steps, so they cannot be compared."]
    of = "A step" if default.per_step else "The program"
    whole_ns = max(default.dur_ns, tuned.dur_ns, default.cpu_ns or 0.0, tuned.cpu_ns or 0.0, 1.0)
    told = sorted(
        (*_times(default, tuned, whole_ns, of), *_counts(default, tuned, of)),
        key=lambda pair: -pair[0],
    )
    found = [sentence for _, sentence in told]
    return found or [f"{of} does nothing that differs visibly: the recordings do not show why."]


def _of_resources(found: Figures, summary: Summary) -> None:
    used, switched = summary.resources, summary.switches
    if used is not None and used.per_step == found.per_step:
        found.cpu_ns = used.cpu_ns
        found.kernel_ns = used.kernel_ns
        if used.faults_minor is not None:
            major = used.faults_major or 0.0
            found.faults = used.faults_minor + major
    if switched is not None and switched.per_step == found.per_step:
        found.switches = switched.count


def _measured_steps(reader: Reader) -> set[int]:
    steps = reader.arrays("steps", ["step", "warmup"])
    is_measured = steps["warmup"] == 0
    numbers = steps["step"][is_measured]
    return set(numbers.tolist())


def _rows(reader: Reader, table: str) -> list[dict[str, Any]]:
    built = tables.build(reader, table, "step")
    rows: list[dict[str, Any]] = built.data.to_pylist()
    return rows


def _times(a: Figures, b: Figures, whole_ns: float, of: str) -> Iterator[tuple[float, str]]:
    """Sentences about times, with the difference as a part of the whole."""
    about: list[tuple[float | None, float | None, Callable[[str, str], str]]] = [
        (a.cpu_ns, b.cpu_ns, lambda x, y: f"{of} uses {x} of CPU time by default and {y} so."),
        (
            a.kernel_ns,
            b.kernel_ns,
            lambda x, y: f"{of} spends {x} of CPU time in the kernel by default and {y} so.",
        ),
        (
            a.spin_ns,
            b.spin_ns,
            lambda x, y: (
                f"{of} spends {x} of CPU time in the runtime of OpenMP, where threads spin until "
                f"others come, by default and {y} so."
            ),
        ),
        (
            a.yield_ns,
            b.yield_ns,
            lambda x, y: (
                f"{of} spends {x} of CPU time giving way to others (sched_yield) by "
                f"default and {y} so."
            ),
        ),
        (
            a.reorder_ns,
            b.reorder_ns,
            lambda x, y: f"{of} spends {x} in oneDNN's reorders by default and {y} so.",
        ),
    ]
    for state in sorted(a.waits_ns.keys() | b.waits_ns.keys()):
        words = WAITED_FOR[state]
        about.append(
            (
                a.waits_ns.get(state, 0.0),
                b.waits_ns.get(state, 0.0),
                lambda x, y, words=words: (
                    f"In {of.lower()} threads wait {x} {words} by default and {y} so."
                ),  # type: ignore[misc]
            )
        )
    for x, y, says in about:
        if x is not None and y is not None and abs(x - y) >= _TIME_SHARE * whole_ns:
            yield abs(x - y) / whole_ns, says(units.duration(x), units.duration(y))


def _counts(a: Figures, b: Figures, of: str) -> Iterator[tuple[float, str]]:
    """The same of counts; they come behind the times."""
    pairs = (
        (a.faults, b.faults, "has {} page faults"),
        (a.switches, b.switches, "leaves a CPU {} times"),
    )
    for x, y, words in pairs:
        if x is None or y is None:
            continue
        least = max(_FEWEST, _COUNT_RATIO * min(x, y))
        if max(x, y) < least:
            continue
        by_default = words.format(units.amount(x))
        so = units.amount(y)
        yield 0.0, f"{of} {by_default} by default and {so} so."
