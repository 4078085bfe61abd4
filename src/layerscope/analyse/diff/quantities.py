"""What one side of a comparison says: the time of its steps, phases, operators, modules and
kernels, step by step.

Where several processes have steps, only those by the strongest rule are compared, and a step is the
mean over the processes that have at least half as many as the one with the most: the ranks of a
distributed program. What is not in a step, or in a warm-up step, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.diff.intervals import Estimates, Floats, estimate, joined
from layerscope.analyse.step_times import RULES
from layerscope.model.layers import PHASES

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

STEP, PHASE, RUN, OPERATOR, MODULE = "step", "phase", "run", "operator", "module"
KERNEL = "kernel"
# What has a row for each name.
NAMED = (OPERATOR, MODULE, KERNEL)
# So many values are looked at at once: names times steps.
_CELLS = 4_000_000

_PHASE_COLUMNS = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
MEASURED = f"""
    ruled AS (SELECT *, nullif(list_position({list(RULES)}, rule), 0) AS place_of_rule FROM steps),
    counted AS (
        SELECT process, count(*) AS number FROM ruled
        WHERE NOT warmup AND place_of_rule IS NOT DISTINCT FROM (SELECT min(place_of_rule)
        FROM ruled)
        GROUP BY process
    ),
    measured AS (
        SELECT steps.*, dense_rank() OVER (ORDER BY step) - 1 AS place, 1.0 / count(*)
          OVER (PARTITION BY step) AS share
        FROM steps JOIN counted USING (process)
        -- Of a run that was thinned, the steps whose spans are still there.
        WHERE NOT warmup AND weight > 0 AND 2 * number >= (SELECT max(number) FROM counted)
    )"""
# Every span with the place of its step (0: the run as a whole) and how much of it counts.
_CALLS_OF_STEPS = """
    calls AS (
        SELECT spans.name, layer, module, place, self_ns * share AS value, share AS calls
        FROM spans JOIN tracks USING (track) JOIN measured USING (process, step)
        WHERE layer IN ('operators', 'modules', 'gpu')
    )"""
_CALLS_OF_RUN = """
    calls AS (
        SELECT name, layer, module, 0 AS place, (self_ns * weight)::DOUBLE AS value, weight::DOUBLE
          AS calls
        FROM spans WHERE layer IN ('operators', 'modules', 'gpu')
    )"""
_OPERATORS = """
    SELECT name, place, sum(value) AS value, sum(calls) AS calls
    FROM calls WHERE layer = 'operators' GROUP BY name, place"""
# Work of GPUs, by the steps that launched it.
_KERNELS = """
    SELECT name, place, sum(value) AS value, sum(calls) AS calls
    FROM calls WHERE layer = 'gpu' GROUP BY name, place"""
# The time of a module without that of the modules in it. The span of its call is called by its
# path.
_MODULES = """,
    found AS (
        SELECT path AS name, place, value, 0.0 AS calls
        FROM calls JOIN modules USING (module) WHERE layer = 'operators'
        UNION ALL
        SELECT name, place, 0.0 AS value, calls FROM calls WHERE layer = 'modules'
    )
    SELECT name, place, sum(value) AS value, sum(calls) AS calls FROM found GROUP BY name, place"""

_QUERIES = {OPERATOR: _OPERATORS, MODULE: _MODULES, KERNEL: _KERNELS}


class ComparedSteps(Struct):
    """The steps of one side that are compared, and how many are not."""

    measured: int
    warmup: int
    processes: int
    left_out: int
    rules: tuple[str, ...]


class Quantities(Struct):
    """One kind of quantity of one side: names, their time, and how often they are called in a
    step.
    """

    names: NDArray[Any]
    estimates: Estimates
    calls: Floats


def find_steps(reader: Reader) -> ComparedSteps:
    """The steps of a recording."""
    rows = reader.connection().sql(
        f"""WITH {MEASURED}
        SELECT (SELECT count(DISTINCT step) FROM measured),
               (SELECT count(DISTINCT step) FROM steps JOIN counted USING (process) WHERE warmup),
               (SELECT count(DISTINCT process) FROM measured), (SELECT count(DISTINCT process)
               FROM steps),
               (SELECT list(DISTINCT rule ORDER BY rule) FROM measured)"""
    )
    measured, warmup, processes, all_processes, rules = rows.fetchall()[0]
    return ComparedSteps(measured, warmup, processes, all_processes - processes, tuple(rules or ()))


def step_times(reader: Reader, statistic: str) -> dict[str, Quantities]:
    """The duration of a step, and of its phases."""
    names = ("dur_ns", *_PHASE_COLUMNS)
    columns = ", ".join(f"avg({name})::DOUBLE AS {name}" for name in names)
    query = f"WITH {MEASURED} SELECT {columns} FROM measured GROUP BY place ORDER BY place"
    answer = reader.connection().sql(query).fetchnumpy()
    means = np.stack([answer[name] for name in names])
    rows = np.ma.filled(means, 0.0)
    phases = [f"phase.{name}" for name in PHASES]
    return {
        STEP: _quantities([STEP], rows[:1], statistic),
        PHASE: _quantities(phases, rows[1:], statistic),
    }


def run_time(reader: Reader) -> dict[str, Quantities]:
    """The duration of the whole program; NaN where its end was not seen."""
    return {
        RUN: _quantities([RUN], np.array([[reader.run.info.program.wall_ns or np.nan]]), "mean")
    }


def by_name(reader: Reader, what: str, steps: int, statistic: str) -> Quantities:
    """The time of every operator, module or kernel in a step, or in the run when `steps` is 0."""
    source = f"{MEASURED},{_CALLS_OF_STEPS}" if steps else _CALLS_OF_RUN
    query = f"WITH {source} {_QUERIES[what]}"
    answer = reader.connection().sql(query).to_arrow_table()
    column = answer["name"].combine_chunks()
    coded = (
        column if isinstance(column, pa.Array) else pa.array([], pa.string())
    ).dictionary_encode()
    names, code = (
        coded.dictionary.to_numpy(zero_copy_only=False),
        coded.indices.to_numpy(zero_copy_only=False),
    )
    if what == MODULE:
        tree = _tree(reader, names)
        names, code = np.array(tree.names, object), tree.row_of[code]
    place, value = (answer[name].to_numpy() for name in ("place", "value"))
    columns = max(1, steps)
    order = np.argsort(code, kind="stable")
    parts = _dense(code[order], place[order], value[order], len(names), columns)
    if what == MODULE:
        parts = _with_held(parts, tree.parents)
    estimates = joined([estimate(part, statistic) for part in parts], columns)
    counted = answer["calls"].to_numpy(zero_copy_only=False).astype(np.float64)
    return Quantities(
        names, estimates, np.bincount(code, weights=counted, minlength=len(names)) / columns
    )


def _dense(
    code: NDArray[Any], place: NDArray[Any], value: Floats, names: int, columns: int
) -> Iterator[Floats]:
    """Rows of names and columns of steps, some names at a time; a step without a name has zero of
    it.
    """
    together = max(1, _CELLS // columns)
    for first in range(0, names, together):
        last = min(first + together, names)
        start, end = np.searchsorted(code, (first, last))
        part = np.zeros((last - first, columns))
        part[code[start:end] - first, place[start:end]] = value[start:end]
        yield part


class _Tree(Struct):
    """Modules by path, each behind all that it holds. `parents`: the row of what holds each,
    -1 for none.

    `row_of` has the row of each of the names that it was made of.
    """

    names: list[str]
    parents: list[int]
    row_of: NDArray[np.int64]


def _tree(reader: Reader, names: NDArray[Any]) -> _Tree:
    """The modules `names`, and those that hold them."""
    parent_of = _parent_paths(reader)
    wanted = names.tolist()
    found = set(wanted)
    for name in wanted:
        above = parent_of.get(name)
        while above is not None and above not in found:
            found.add(above)
            above = parent_of.get(above)
    listed = sorted(found, key=lambda path: path.split("."), reverse=True)
    row = {path: at for at, path in enumerate(listed)}
    parents = [row.get(parent_of.get(path) or "", -1) for path in listed]
    rows = np.array([row[name] for name in wanted], np.int64)
    return _Tree(listed, parents, rows)


def _parent_paths(reader: Reader) -> dict[str, str | None]:
    """By path of a module that of the module that holds it."""
    table = reader.arrays("modules", ["module", "parent", "path"])
    modules, parents = table["module"].tolist(), table["parent"].tolist()
    path_of = dict(zip(modules, table["path"].tolist(), strict=True))
    return {
        path_of[module]: path_of.get(parent)
        for module, parent in zip(path_of, parents, strict=True)
    }


def _with_held(parts: Iterator[Floats], parents: list[int]) -> Iterator[Floats]:
    """The rows, each with those of all that it holds added to it. They come before it."""
    waiting: dict[int, Floats] = {}
    at = 0
    for part in parts:
        for row in part:
            if at in waiting:
                row += waiting.pop(at)
            parent = parents[at]
            if parent in waiting:
                waiting[parent] += row
            elif parent >= 0:
                waiting[parent] = row.copy()
            at += 1
        yield part


def _quantities(names: list[str], values: Floats, statistic: str) -> Quantities:
    return Quantities(
        np.array(names, object), estimate(values, statistic), np.full(len(names), np.nan)
    )
