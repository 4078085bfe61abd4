"""Two recordings compared: the step, its phases, the operators and the modules, with how sure each
change is.

Compared is what a step takes when both recordings have steps, else what the run takes. A verdict is

    added, gone               only one side has it in the compared steps
    slower, faster            the interval of the change leaves out zero
    no measurable difference  it does not
    not repeated              without repeated steps a change cannot be told from noise

The intervals hold with 95 % for all rows of one kind together, so that among a hundred operators
that did not change it is improbable that even one is called slower. They know how the steps of each
recording vary, and nothing of how one run of a program differs from its next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from layerscope.analyse.diff import quantities, sameness
from layerscope.analyse.diff.intervals import LEVEL, MEDIAN, Change, compare
from layerscope.analyse.diff.peaks import COLUMNS as MEMORY_COLUMNS
from layerscope.analyse.diff.peaks import Peaks, peaks_of
from layerscope.analyse.diff.quantities import (
    KERNEL,
    MODULE,
    NAMED,
    OPERATOR,
    PHASE,
    RUN,
    STEP,
    Quantities,
)
from layerscope.analyse.losses import problems
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_rows
from layerscope.model.events import Problem
from layerscope.recording.failures import unreadable

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

OVERVIEW = "overview"
MEMORY = "memory"
# What each view shows, in this order.
VIEWS = {
    OVERVIEW: (RUN, STEP, PHASE, OPERATOR, MODULE),
    "operators": (OPERATOR,),
    "modules": (MODULE,),
    "kernels": (KERNEL,),
    "steps": (STEP, PHASE),
    # Has columns of its own, see `peaks`.
    MEMORY: (),
}
TOPS = {OVERVIEW: 16, "operators": 20, "modules": 20, "kernels": 20, "steps": 0, MEMORY: 20}
ADDED, GONE, SLOWER, FASTER = "added", "gone", "slower", "faster"
SAME, NOT_REPEATED = "no measurable difference", "not repeated"
COLUMNS = (
    ResultColumn("what", "string", "", "run, step, phase, operator, module or kernel"),
    ResultColumn("name", "string", "", "its name", code=True),
    ResultColumn("a_ns", "int64", NS, "its time in A: of a step, or of the run"),
    ResultColumn("b_ns", "int64", NS, "its time in B"),
    ResultColumn("change_ns", "int64", NS, "b_ns - a_ns", signed=True),
    ResultColumn("change", "float64", SHARE, "change_ns as a fraction of a_ns", signed=True),
    ResultColumn(
        "change_low", "float64", SHARE, "the change lies with 95 % between this", signed=True
    ),
    ResultColumn("change_high", "float64", SHARE, "and this", signed=True),
    ResultColumn(
        "verdict",
        "string",
        "",
        "added, gone, slower, faster, no measurable difference or not repeated",
    ),
    ResultColumn("a_calls", "float64", COUNT, "calls in A: of a step, or of the run"),
    ResultColumn("b_calls", "float64", COUNT, "calls in B"),
    ResultColumn(
        "change_low_ns", "int64", NS, "change_ns lies with 95 % between this", signed=True
    ),
    ResultColumn("change_high_ns", "int64", NS, "and this", signed=True),
)
EMPTY = "There is nothing to compare."
NO_MEMORY = "No allocations were recorded in A and B: record both with run --layers=+memory."

Strings = NDArray[Any]


class Rows(Struct):
    """The rows of one kind: a name that one side lacks has no time there."""

    names: Strings
    change: Change
    in_a: NDArray[np.bool_]
    in_b: NDArray[np.bool_]
    a_calls: NDArray[np.float64]
    b_calls: NDArray[np.float64]

    def verdicts(self) -> Strings:
        """The verdict of each row."""
        verdict = np.full(len(self.names), SAME, object)
        verdict[np.isnan(self.change.error)] = NOT_REPEATED
        verdict[self.change.is_above()] = SLOWER
        verdict[self.change.is_below()] = FASTER
        verdict[~self.in_a] = ADDED
        verdict[~self.in_b] = GONE
        return verdict

    def place(self, name: str) -> int:
        """Where `name` is, -1 where nowhere."""
        found = np.flatnonzero(self.names == name)
        return int(found[0]) if len(found) else -1


class Diff(Struct):
    """A comparison: rows by kind, and what must be said beside them."""

    rows: dict[str, Rows]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    # What is live at their peaks, or why that is not compared.
    peaks: Peaks | str = ""

    def result(self, view: str, connection: Any) -> Result:
        """The rows of `view`, as a question to `connection`."""
        if view == MEMORY:
            return self._memory()
        parts = [(what, self.rows[what]) for what in VIEWS[view] if what in self.rows]
        table = (
            pa.concat_tables([_table(what, rows) for what, rows in parts])
            if parts
            else _table("", _nothing())
        )
        return Result(
            f"diff_{view}",
            COLUMNS,
            connection.from_arrow(table),
            order="rank, magnitude_ns DESC, what, name",
            notes=self.notes,
            problems=self.problems,
            empty=EMPTY,
        )

    def _memory(self) -> Result:
        """The rows of the peaks."""
        if isinstance(self.peaks, Peaks):
            return replace(self.peaks.result(), problems=self.problems)
        why = self.peaks or NO_MEMORY
        return of_rows("diff_memory", MEMORY_COLUMNS, [], problems=self.problems, empty=why)


def build(
    a: Reader, b: Reader, labels: tuple[str, str], views: Sequence[str], statistic: str = MEDIAN
) -> Diff:
    """Compare two recordings, called `labels`, in all that `views` show."""
    import duckdb

    wanted = {what for view in views for what in VIEWS[view]}
    reader = a
    try:
        found = [quantities.find_steps(reader := side) for side in (a, b)]
        per_step = all(steps.measured for steps in found)
        sides = [
            _side(reader := side, steps.measured if per_step else 0, wanted, statistic)
            for side, steps in zip((a, b), found, strict=True)
        ]
    except duckdb.Error as error:
        raise unreadable(reader.run.path, error) from error
    notes = sameness.sentences(labels, found, per_step, statistic, a.run.info, b.run.info)
    rows = {}
    for what in (RUN, STEP, PHASE, *NAMED):
        if all(what in side for side in sides):
            if what in NAMED and (missing := _missing(what, sides)):
                notes.append(missing)
            else:
                rows[what] = _rows(*(side[what] for side in sides))
    if per_step:
        notes += sameness.uneven((a, b), statistic)
        notes += _changed_findings(a, b)
    peaks = peaks_of(a, b) if {OVERVIEW, MEMORY}.intersection(views) else ""
    if peaks:
        notes.append(peaks.sentence() if isinstance(peaks, Peaks) else peaks)
    said = [
        _named(problem, letter)
        for letter, side in zip(sameness.SIDES, (a, b), strict=True)
        for problem in problems(side)
    ]
    return Diff(rows, tuple(notes), tuple(said), peaks)


def _changed_findings(a: Reader, b: Reader) -> list[str]:
    # Here, not at the top: the rules compare steps by the intervals of this package.
    from layerscope.analyse.diff import changed_findings

    return changed_findings.sentences((a, b))


def _side(reader: Reader, steps: int, wanted: set[str], statistic: str) -> dict[str, Quantities]:
    side = quantities.step_times(reader, statistic) if steps else quantities.run_time(reader)
    for what in NAMED:
        if what in wanted:
            side[what] = quantities.by_name(reader, what, steps, statistic)
    return side


def _missing(what: str, sides: Sequence[Mapping[str, Quantities]]) -> str:
    """Why nothing of this kind is compared: a layer that one side did not record is not a change of
    the program.
    """
    without = [
        letter
        for letter, side in zip(sameness.SIDES, sides, strict=True)
        if not len(side[what].names)
    ]
    if not without or (what == MODULE and len(without) == 2):
        return ""
    return (
        f"No {what}s are compared: {' and '.join(without)} "
        f"{'has' if len(without) == 1 else 'have'} none."
    )


def _rows(a: Quantities, b: Quantities) -> Rows:
    all_names = np.concatenate((a.names, b.names)).astype(object)
    names, first = np.unique(all_names, return_index=True)
    # In the order in which they first come, which for phases is that of the step.
    names = names[np.argsort(first, kind="stable")]
    a_places = _places(names, a.names)
    b_places = _places(names, b.names)
    a_estimates = a.estimates.at(a_places)
    b_estimates = b.estimates.at(b_places)
    return Rows(
        names,
        compare(a_estimates, b_estimates, LEVEL),
        a_places >= 0,
        b_places >= 0,
        _calls_at(a, a_places),
        _calls_at(b, b_places),
    )


def _calls_at(side: Quantities, places: NDArray[np.intp]) -> NDArray[np.float64]:
    """The number of calls of each name, 0 where this side does not have it."""
    if not len(side.calls):
        return np.zeros(len(places))
    calls: NDArray[np.float64] = np.where(places >= 0, side.calls[places], 0.0)
    return calls


def _places(names: Strings, known: Strings) -> NDArray[np.intp]:
    """For each of `names` its place in `known`, -1 where it has none."""
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], names), max(0, len(known) - 1))
    return (
        np.where(known[order][at] == names, order[at], -1)
        if len(known)
        else np.full(len(names), -1, np.intp)
    )


def _table(what: str, rows: Rows) -> pa.Table:
    change, verdicts = rows.change, rows.verdicts()
    (low, high), (low_ns, high_ns) = change.relative_limits(), change.limits()
    said = (verdicts != SAME) & (verdicts != NOT_REPEATED)
    ranks = {RUN: 0, STEP: 1, PHASE: 2}
    order = np.arange(len(rows.names))
    rank = (
        np.full(len(order), ranks[what] * 100) + order
        if what in ranks
        else np.where(said, 1000, 1001)
    )
    columns = {
        "what": pa.array([what] * len(order), pa.string()),
        "name": pa.array(rows.names, pa.string()),
        "a_ns": np.rint(change.a),
        "b_ns": np.rint(change.b),
        "change_ns": np.rint(change.difference),
        "change": change.relative(),
        "change_low": low,
        "change_high": high,
        "verdict": pa.array(verdicts, pa.string()),
        "a_calls": rows.a_calls,
        "b_calls": rows.b_calls,
        "change_low_ns": np.rint(low_ns),
        "change_high_ns": np.rint(high_ns),
        "rank": rank,
        "magnitude_ns": np.abs(change.difference),
    }
    # What is unknown is null in every output.
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})


def _nothing() -> Rows:
    none = np.zeros(0)
    return Rows(
        np.zeros(0, object),
        Change(none, none, none > 0, none, none, none),
        none > 0,
        none > 0,
        none,
        none,
    )


def _named(problem: Problem, letter: str) -> Problem:
    what = f"in {letter} {problem.what}"
    return replace(problem, what=what)
