"""Primitives from the lines of oneDNN's verbose log, where the library told of them in no other
way.

Clock: CLOCK_REALTIME in microseconds, where the lines have times; else a call ended when its line
arrived, and those whose lines came at once lie end to end. A line does not say which thread it is
about: a call belongs to the thread that had an operator open around it if there was just one such
thread, and else to none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.model.events import Problem
from layerscope.model.layers import PRIMITIVES
from layerscope.rawfile.log_files import ONEDNN_LOG, arrivals_of
from layerscope.sources import onednn_verbose, verbose_spans
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.open_operators import RecordedProcess, owners, spans_by_process

# Lines have microseconds, of a clock that is read at another moment than ours.
_ERROR_NS = 3_000
THE_LOG = "the verbose log of oneDNN"


def place(
    raw: Path, processes: list[RecordedProcess], main: int
) -> tuple[dict[int, LateSpans], list[Problem]]:
    """The late spans of each process by the log below `raw`, and what has to be said. `main`: the
    first process.

    What belongs to no thread comes onto tracks of its own of that one. Nothing where libraries told
    of primitives by themselves: with their thread, and with times that are ten times as exact.
    """
    log = raw / ONEDNN_LOG
    if not log.exists():
        return {}, []
    if any(process.has_primitives for process in processes):
        return {}, [] if any(process.has_problems_of_primitives for process in processes) else [
            _kinds_alone()
        ]
    calls, rejected, example = onednn_verbose.read_calls(log)
    columns = calls.columns()
    calls.add(**columns)
    if not len(columns["kind"]):
        return {}, [_nothing()]
    imported = verbose_spans.placed(calls, rejected, example)
    clock = _clock(processes)
    is_timed = (columns["start_ns"] >= 0) & (clock is not None)
    start_ns = _by_arrival(log, columns)
    if clock is not None:
        start_ns = np.where(is_timed, clock.to_run(columns["start_ns"]), start_ns)
    found = owners(processes, start_ns, start_ns + columns["dur_ns"], is_timed, _ERROR_NS)
    problems = [problem for problem in imported.problems if problem.code != "no_times"]
    # What lies outside of windows is left out by whoever reads the raw files.
    kept = (found.process >= 0) | processes[main].was_recorded(start_ns)
    unknown = int(np.count_nonzero(kept & (found.process < 0)))
    if unknown:
        problems.append(
            _unlinked(unknown, int(np.count_nonzero(kept & ~is_timed)), int(np.count_nonzero(kept)))
        )
    return spans_by_process(imported, found, main), problems


def _clock(processes: list[RecordedProcess]) -> Conversion | None:
    """From CLOCK_REALTIME to the run's clock, by what was read of both during the run. None where
    nothing was.
    """
    clock = Conversion()
    readings = max((process.decoder.readings for process in processes), key=len, default=[])
    for _, run_ns, realtime_ns, _ in readings:
        clock.add(realtime_ns, run_ns)
    return clock if readings else None


def _by_arrival(log: Path, columns: dict[str, np.ndarray]) -> np.ndarray:
    """When calls began that ended when their lines arrived; of lines that arrived together, one
    after the other.
    """
    position, dur_ns = columns["position"], columns["dur_ns"]
    path = arrivals_of(log)
    data = path.read_bytes() if path.exists() else b""
    whole_bytes = len(data) // 16 * 16
    arrivals = np.frombuffer(data[:whole_bytes], "<i8").reshape(-1, 2)
    if not len(arrivals):
        return np.zeros(len(position), np.int64)
    arrived_ns, written = arrivals.T
    batch = np.searchsorted(written, position, side="right")
    batch = np.minimum(batch, len(arrivals) - 1)
    spent_ns = np.cumsum(dur_ns)
    # How long the calls behind each one in its batch took, itself included.
    last = np.searchsorted(batch, batch, side="right") - 1
    until_last_ns = spent_ns[last] - spent_ns + dur_ns
    start_ns: np.ndarray = arrived_ns[batch] - until_last_ns
    return start_ns


def _nothing() -> Problem:
    what = f"{THE_LOG} has no line: nothing of the program used oneDNN, or set its verbosity itself"
    return Problem(PRIMITIVES, "no_verbose", what, "nothing to do if it uses no oneDNN", THE_LOG)


def _kinds_alone() -> Problem:
    """The spans of the library stay as they are: nothing says which line is which of them."""
    what = (
        "oneDNN reported only the kinds of its primitives to ITT, as before 3.12, and "
        f"{THE_LOG} was not read because of that"
    )
    remedy = (
        "to have its lines, and the time of each in microseconds, set ONEDNN_ITT_TASK_LEVEL=0 "
        "as well"
    )
    return Problem(
        PRIMITIVES, "kinds_alone", what, remedy, "shapes and implementations of primitives"
    )


def _unlinked(unknown: int, untimed: int, count: int) -> Problem:
    """Some calls belong to no operator."""
    why = "no operator or range was open around them, or those of several threads were"
    if untimed:
        why = f"{untimed:,} lines have no times, as before oneDNN 2.1"
    what = f"{unknown:,} of {count:,} calls in {THE_LOG} could not be given to one: {why}"
    remedy = "use an oneDNN that reports its primitives to ITT (2.3 or later, not switched off)"
    return Problem(PRIMITIVES, "verbose_unlinked", what, remedy, "the operators of some primitives")
