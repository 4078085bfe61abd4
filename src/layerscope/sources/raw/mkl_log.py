"""Calls of MKL from the file that it writes while it is told to, and the operators that made them.

MKL says how long a call took, and neither when nor on which thread. So a call is given to an
operator by order: where the operators of a process that call a routine of some class are as many as
the calls of that class, do not overlap, and none is shorter than its call, the first call is the
first operator's, and so on. It is then put at the end of its operator, where the library returns.
Else the calls of that class belong to nobody, and lie end to end on a track of their own. The
classes are one product of two matrices, a batch of them, matrix times vector, and a product of
vectors. Of a process of which only windows were recorded no call is kept: it may have been made at
any other time.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from layerscope.model.distinct import distinct
from layerscope.model.events import Problem
from layerscope.model.frameworks import routines
from layerscope.model.layers import KINDS, PRIMITIVES
from layerscope.rawfile.log_files import MKL_LOGS
from layerscope.sources import onednn_verbose, verbose_spans
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.open_operators import (
    MARGIN_NS,
    Owners,
    RecordedProcess,
    spans_by_process,
)

# By class: the routines, and the operators that call one of them once.
_CLASSES = tuple((re.compile(routine), names) for routine, names in routines())
_FUNCTION, _EXECUTE = KINDS.index("function"), KINDS.index("execute")
# MKL writes 8.12ms: three digits, and its own clock begins outside of ours only by as much.
_ROUNDED = 1.01
_FILE = re.compile(r"mkl-([0-9]+)\.log")


def place(
    raw: Path, processes: list[RecordedProcess], main: int
) -> tuple[dict[int, LateSpans], list[Problem]]:
    """The late spans of each process by the files below `raw`, and what has to be said. `main`: the
    first process.
    """
    late: dict[int, LateSpans] = {}
    problems: list[Problem] = []
    calls_of_nobody: Counter[str] = Counter()
    calls_of_any_time = 0
    pids = [process.decoder.about.get("pid") for process in processes]
    for log in sorted(raw.glob(MKL_LOGS)):
        named = _FILE.fullmatch(log.name)
        if named is None:
            continue
        calls, rejected, example = onednn_verbose.read_calls(log)
        columns = calls.columns()
        calls.add(**columns)
        pid = int(named[1])
        # A process that executed another program in its place has two raw files.
        is_known = pids.count(pid) == 1
        number = pids.index(pid) if pid in pids else main
        if not len(columns["kind"]) or number in late:
            continue
        if processes[number].is_windowed:
            calls_of_any_time += len(columns["kind"])
            continue
        imported = verbose_spans.placed(calls, rejected, example)
        problems += [problem for problem in imported.problems if problem.code == "lines_rejected"]
        texts = [text for _, text in calls.texts]
        found = _owners(
            texts, columns, imported.start_ns, processes[number], number if is_known else -1
        )
        calls_of_nobody.update(
            _routine(texts[code]) for code in columns["text"][found.process < 0].tolist()
        )
        late |= spans_by_process(imported, found, number)
    if calls_of_nobody:
        problems.append(_unlinked(calls_of_nobody))
    if calls_of_any_time:
        what = (
            f"MKL's log has no times, so which of {calls_of_any_time:,} calls were made in the "
            "window is not known"
        )
        remedy = "record without a window (--steps, --for)"
        problems.append(Problem(PRIMITIVES, "mkl_untimed", what, remedy, "calls of MKL"))
    return late, problems


def _owners(
    texts: list[str],
    columns: dict[str, np.ndarray],
    laid_ns: np.ndarray,
    process: RecordedProcess,
    number: int,
) -> Owners:
    """Whose each call is. `laid_ns`: the starts of calls end to end, for those that are nobody's;
    `number`: -1: all.
    """
    dur_ns = columns["dur_ns"]
    spans = process.spans
    start_ns = laid_ns + int(
        spans["start"].min(initial=np.iinfo(np.int64).max) if len(spans) else 0
    )
    found = Owners.unknown(start_ns, start_ns + dur_ns)
    if number < 0:
        return found
    routine = np.array([_class_of(text) for text in texts], np.int8)[columns["text"]]
    code = {name: at for at, name in enumerate(process.decoder.names)}
    holds_primitive = _holding_primitives(process)
    for at, (_, names) in enumerate(_CLASSES):
        rows = np.flatnonzero((routine == at) & (columns["thread"] == 0))
        numbers = [code[name] for name in names if name in code]
        mine = np.flatnonzero(
            np.isin(spans["name"], numbers) & (spans["kind"] == _FUNCTION) & ~holds_primitive
        )
        mine = mine[np.argsort(spans["end"][mine], kind="stable")]
        if len(mine) != len(rows) or len(rows) < np.count_nonzero(routine == at) or not len(rows):
            continue
        start, end = spans["start"][mine], spans["end"][mine]
        if (start[1:] < end[:-1]).any() or (dur_ns[rows] > (end - start) * _ROUNDED).any():
            continue
        found.process[rows], found.track[rows], found.depth[rows] = (
            number,
            spans["track"][mine],
            spans["depth"][mine] + 1,
        )
        found.end_ns[rows] = end
        found.start_ns[rows] = np.maximum(end - dur_ns[rows], start + MARGIN_NS)
    return found


def _holding_primitives(process: RecordedProcess) -> np.ndarray:
    """Which operators asked oneDNN: they did not ask MKL."""
    spans = process.spans
    track, kind = spans["track"], spans["kind"]
    holds = np.zeros(len(spans), np.bool_)
    primitive = np.flatnonzero(kind >= _EXECUTE)
    for number in distinct(track[primitive]).tolist():
        inner = primitive[track[primitive] == number]
        starts = np.sort(spans["start"][inner])
        is_operator = (track == number) & (kind == _FUNCTION)
        operators = np.flatnonzero(is_operator)
        first = np.searchsorted(starts, spans["start"][operators])
        behind = np.searchsorted(starts, spans["end"][operators], side="right")
        holds[operators] = first < behind
    return holds


def _class_of(text: str) -> int:
    """The class of a call, -1: of none."""
    for at, (routine, _) in enumerate(_CLASSES):
        if routine.match(text):
            return at
    return -1


def _routine(text: str) -> str:
    return text.partition("(")[0]


def _unlinked(calls: Counter[str]) -> Problem:
    """Calls that could not be assigned to operators."""
    names = ", ".join(f"{count:,} {name}" for name, count in calls.most_common(3))
    more = f" and {len(calls) - 3} other routines" if len(calls) > 3 else ""
    what = (
        f"MKL's log has neither threads nor times, so {names}{more} could not be assigned to "
        "operators"
    )
    remedy = (
        "nothing to do: their durations are exact, and they lie end to end on a track of their own"
    )
    return Problem(
        PRIMITIVES, "mkl_unlinked", what, remedy, "the operators of these calls, and when they were"
    )
