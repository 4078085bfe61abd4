"""What one side of a comparison says: the time of its steps, phases, operators and modules, step by step.

Where several processes have steps, only those by the strongest rule are compared, and a step is the mean over the
processes that have at least half as many as the one with the most: the ranks of a distributed program. What is not in a
step, or in a warm-up step, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layerscope.analyse.diff.intervals import Estimates, Floats, estimate, joined
from layerscope.analyse.step_times import RULES
from layerscope.model.layers import PHASES

if TYPE_CHECKING:
    from layerscope.store.reader import Reader

STEP, PHASE, RUN, OPERATOR, MODULE = "step", "phase", "run", "operator", "module"
# So many values are looked at at once: names times steps.
_CELLS = 4_000_000

_PHASE_COLUMNS = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
MEASURED = f"""
    ruled AS (SELECT *, nullif(list_position({list(RULES)}, rule), 0) AS place_of_rule FROM steps),
    counted AS (
        SELECT process, count(*) AS number FROM ruled
        WHERE NOT warmup AND place_of_rule IS NOT DISTINCT FROM (SELECT min(place_of_rule) FROM ruled)
        GROUP BY process
    ),
    measured AS (
        SELECT steps.*, dense_rank() OVER (ORDER BY step) - 1 AS place, 1.0 / count(*) OVER (PARTITION BY step) AS share
        FROM steps JOIN counted USING (process)
        WHERE NOT warmup AND 2 * number >= (SELECT max(number) FROM counted)
    )"""
# Every span with the place of its step (0: the run as a whole) and how much of it counts.
_CALLS_OF_STEPS = """
    calls AS (
        SELECT spans.name, layer, module, place, self_ns * weight * share AS value, weight * share AS calls
        FROM spans JOIN tracks USING (track) JOIN measured USING (process, step)
        WHERE layer IN ('operators', 'modules')
    )"""
_CALLS_OF_RUN = """
    calls AS (
        SELECT name, layer, module, 0 AS place, (self_ns * weight)::DOUBLE AS value, weight::DOUBLE AS calls
        FROM spans WHERE layer IN ('operators', 'modules')
    )"""
_OPERATORS = """
    SELECT name, place, sum(value) AS value, sum(calls) AS calls
    FROM calls WHERE layer = 'operators' GROUP BY name, place"""
# A module holds what runs in the modules that it holds. The span of its call is called by its path.
_MODULES = """,
    own AS (
        SELECT module, place, sum(value) AS value
        FROM calls WHERE layer = 'operators' AND module IS NOT NULL GROUP BY module, place
    ),
    held AS (
        SELECT module, module AS holder FROM modules
        UNION
        SELECT held.module, modules.parent FROM held JOIN modules ON modules.module = held.holder
        WHERE modules.parent IS NOT NULL
    ),
    found AS (
        SELECT path AS name, place, value, 0.0 AS calls
        FROM own JOIN held USING (module) JOIN modules ON modules.module = held.holder
        UNION ALL
        SELECT name, place, 0.0 AS value, calls FROM calls WHERE layer = 'modules'
    )
    SELECT name, place, sum(value) AS value, sum(calls) AS calls FROM found GROUP BY name, place"""


@dataclass(slots=True)
class Steps:
    """The steps of one side that are compared, and how many are not."""

    measured: int
    warmup: int
    processes: int
    left_out: int
    rules: tuple[str, ...]


@dataclass(slots=True)
class Quantities:
    """One kind of quantity of one side: names, their time, and how often they are called in a step."""

    names: NDArray[Any]
    estimates: Estimates
    calls: Floats


def find_steps(reader: Reader) -> Steps:
    """The steps of a recording."""
    rows = reader.connection().sql(
        f"""WITH {MEASURED}
        SELECT (SELECT count(DISTINCT step) FROM measured),
               (SELECT count(DISTINCT step) FROM steps JOIN counted USING (process) WHERE warmup),
               (SELECT count(DISTINCT process) FROM measured), (SELECT count(DISTINCT process) FROM steps),
               (SELECT list(DISTINCT rule ORDER BY rule) FROM measured)"""
    )
    measured, warmup, processes, all_processes, rules = rows.fetchall()[0]
    return Steps(measured, warmup, processes, all_processes - processes, tuple(rules or ()))


def step_times(reader: Reader, statistic: str) -> dict[str, Quantities]:
    """The duration of a step, and of its phases."""
    columns = ", ".join(f"avg({name})::DOUBLE AS {name}" for name in ("dur_ns", *_PHASE_COLUMNS))
    query = f"WITH {MEASURED} SELECT {columns} FROM measured GROUP BY place ORDER BY place"
    answer = reader.connection().sql(query).fetchnumpy()
    whole = np.ma.filled(np.stack([answer["dur_ns"]]), 0.0)
    parts = np.ma.filled(np.stack([answer[name] for name in _PHASE_COLUMNS]), 0.0)
    return {
        STEP: _quantities([STEP], whole, statistic),
        PHASE: _quantities([f"phase.{name}" for name in PHASES], parts, statistic),
    }


def run_time(reader: Reader) -> dict[str, Quantities]:
    """The duration of the whole program."""
    return {RUN: _quantities([RUN], np.array([[float(reader.run.info.program.wall_ns)]]), "mean")}


def by_name(reader: Reader, what: str, steps: int, statistic: str) -> Quantities:
    """The time of every operator or module in a step, or in the run when `steps` is 0."""
    source = f"{MEASURED},{_CALLS_OF_STEPS}" if steps else _CALLS_OF_RUN
    query = f"WITH RECURSIVE {source} {_OPERATORS if what == OPERATOR else _MODULES}"
    answer = reader.connection().sql(query).to_arrow_table()
    names = answer["name"].combine_chunks()
    coded = (names if isinstance(names, pa.Array) else pa.array([], pa.string())).dictionary_encode()
    code = coded.indices.to_numpy(zero_copy_only=False)
    place, value = (answer[name].to_numpy() for name in ("place", "value"))
    columns = max(1, steps)
    order = np.argsort(code, kind="stable")
    found = [estimate(part, statistic) for part in _dense(code[order], place[order], value[order], columns)]
    estimates = joined(found, columns)
    counted = answer["calls"].to_numpy(zero_copy_only=False).astype(np.float64)
    calls = np.bincount(code, weights=counted, minlength=len(estimates.value)) / columns
    return Quantities(coded.dictionary.to_numpy(zero_copy_only=False), estimates, calls)


def _dense(code: NDArray[Any], place: NDArray[Any], value: Floats, columns: int) -> Iterator[Floats]:
    """Rows of names and columns of steps, some names at a time; a step without a name has zero of it."""
    count = int(code[-1]) + 1 if len(code) else 0
    together = max(1, _CELLS // columns)
    for first in range(0, count, together):
        last = min(first + together, count)
        start, end = np.searchsorted(code, (first, last))
        part = np.zeros((last - first, columns))
        part[code[start:end] - first, place[start:end]] = value[start:end]
        yield part


def _quantities(names: list[str], values: Floats, statistic: str) -> Quantities:
    return Quantities(np.array(names, object), estimate(values, statistic), np.full(len(names), np.nan))
