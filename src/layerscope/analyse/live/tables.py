"""The tables of a program while it runs: the heaviest rows of the window, with what they have since
the start.

self_ns, total_ns, wait_ns and count mean what they mean in `analyse.tables`. A column whose name
begins with `window_` is of the last seconds, the others since the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.live.program import LiveProgram
from layerscope.analyse.result import COUNT, NS, SHARE, ResultColumn
from layerscope.model.live import (
    FUNCTIONS,
    IDLE,
    LABELS,
    OPERATORS,
    PRIMITIVES,
    SUMS,
    SYMBOLS,
    THREADS,
    WAITS,
)

# By table the sums that its rows are sorted by, the first first, and those that have a share.
SHARED = {
    FUNCTIONS: ("self_ns", "total_ns"),
    OPERATORS: ("self_ns", "total_ns"),
    PRIMITIVES: ("self_ns", "total_ns"),
    SYMBOLS: ("self_ns", "total_ns"),
    THREADS: ("cpu_ns",),
    WAITS: ("total_ns",),
}
MEANINGS = {
    FUNCTIONS: "functions of Python, by CPU time",
    OPERATORS: "operators, by the time in which none of their own operators ran",
    PRIMITIVES: "primitives of oneDNN and MKL, by the time on the thread that asked",
    SYMBOLS: "functions of native code, by CPU time",
    THREADS: "threads, by CPU time",
    WAITS: "what threads wait for, off the CPU",
}
_TEXTS = {
    "name": "what it is called",
    "file": "its source file",
    "object": "the library or program it lies in",
    "kind": "kind of span",
    "implementation": "the code that ran",
    "thread": "name and id of the thread",
    "process": "id of its process",
    "state": "what it waited for; idle: a thread of a pool without work",
    "function": "the function that it waited in",
}
_SUM_TEXTS = {
    "self_ns": "time of its own",
    "total_ns": "time of its own and of what it called",
    "wait_ns": "time it waited off the CPU; without idle waits",
    "samples": "samples of self_ns",
    "count": "how many",
    "cpu_ns": "CPU time",
    "ready_ns": "time in which it could run and had no CPU",
    "idle_ns": "time it waited for work, as a thread of a pool",
}
_WINDOW = "window_"
Rows = list[tuple[Any, ...]]


def columns(table: str) -> tuple[ResultColumn, ...]:
    """The columns of a table."""
    found = [ResultColumn(name, "string", "", _TEXTS[name]) for name in LABELS[table]]
    for prefix, when in ((_WINDOW, "in the window"), ("", "since the start")):
        for name in SUMS[table]:
            unit = NS if name.endswith("_ns") else COUNT
            found.append(
                ResultColumn(f"{prefix}{name}", "int64", unit, f"{_SUM_TEXTS[name]}, {when}")
            )
            if name in SHARED[table]:
                share = name.replace("_ns", "_share")
                meaning = f"{name} as a fraction of all of the table"
                found.append(ResultColumn(f"{prefix}{share}", "float64", SHARE, meaning))
    return tuple(found)


def rows(program: LiveProgram, table: str, top: int = 0) -> Rows:
    """The rows of a table, as `columns` has them, the heaviest of the window first; `top`: so many
    at most, 0: all.
    """
    sums = program.sums(table)
    recent, whole = sums.recent, sums.whole
    if not len(whole):
        return []
    labels = program.known.labels[table]
    order = _order(table, recent, whole, labels, top)
    of_recent, of_whole = program.whole(table)
    made = [[*labels[row]] for row in order.tolist()]
    for values, total in ((recent[order], of_recent), (whole[order], of_whole)):
        for column, name in enumerate(SUMS[table]):
            numbers = values[:, column].tolist()
            for row, number in zip(made, numbers, strict=True):
                row.append(number)
                if name in SHARED[table]:
                    row.append(number / total if total else 0.0)
    return [tuple(row) for row in made]


def _order(
    table: str,
    recent: NDArray[Any],
    whole: NDArray[Any],
    labels: list[tuple[str, ...]],
    top: int,
) -> NDArray[Any]:
    """The places of the rows to show: without those that have nothing; what is idle comes last."""
    sums = SUMS[table]
    by = [sums.index(name) for name in SHARED[table]]
    shown = np.flatnonzero(whole.any(axis=1))
    keys = [-whole[shown, column] for column in by[::-1]]
    keys += [-recent[shown, column] for column in by[::-1]]
    if table == WAITS:
        keys.append(np.array([labels[row][0] == IDLE for row in shown.tolist()], np.bool_))
    order = shown[np.lexsort(keys)]
    return order[:top] if top else order
