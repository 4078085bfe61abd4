"""Exact figures of a run that was thinned: from `totals` and `histograms`, which know of every
span.

What they do not tell apart (threads, lines, shapes) is counted by weight instead; how far that is
off can be measured on the names, which both know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.analyse.columns import has_name
from layerscope.model.layers import OPERATORS

if TYPE_CHECKING:
    from pathlib import Path

    from layerscope.recording.reader import Reader

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
# Half of a bin: `from_ns` is its start, 1 % more its end.
_MIDDLE = 1.005

WEIGHTED_NOTE = (
    "The run was thinned: one kept call stands for up to {weight:,} calls. By name, where the "
    "exact sums are known, the shares are off by at most {error:.2f} points."
)
# What `analyse.tables.operators` asks of spans, asked of totals. Calls that never ended are in no
# total.
QUERY = f"""
    WITH known AS (
        SELECT totals.* EXCLUDE (module), coalesce(module, -1) AS module_key FROM totals
        WHERE layer = '{OPERATORS}'
    ),
    open AS (
        SELECT spans.* EXCLUDE (module), coalesce(module, -1) AS module_key
        FROM spans WHERE layer = '{OPERATORS}' AND unfinished
    ),
    sums AS (
        SELECT {{keys}}, sum(calls) AS count, sum(total_ns) AS total_ns, sum(self_ns) AS self_ns,
               sum(ended_ns) / sum(ended) AS mean_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns
        FROM (
            SELECT {{keys}}, count AS calls, total_ns, self_ns, total_ns AS ended_ns, count
              AS ended, min_ns, max_ns
            FROM known
            UNION ALL SELECT {{keys}}, 1, dur_ns, self_ns, NULL, NULL, NULL, NULL FROM open
        ) GROUP BY {{keys}}
    ),
    upto AS (
        SELECT {{keys}}, from_ns, sum(histograms.count) OVER (PARTITION BY {{keys}}) AS whole,
               sum(histograms.count) OVER (PARTITION BY {{keys}} ORDER BY from_ns) AS upto
        FROM histograms JOIN known USING (total)
    ),
    percentiles AS (
        SELECT {{keys}}, min(from_ns) FILTER (upto >= 0.5 * whole) * {_MIDDLE} AS p50,
               min(from_ns) FILTER (upto >= 0.99 * whole) * {_MIDDLE} AS p99
        FROM upto GROUP BY {{keys}}
    )
    SELECT *, round(mean_ns) AS avg_ns,
           round(greatest(least(p50, max_ns), min_ns)) AS p50_ns, round(greatest(least(p99,
             max_ns), min_ns)) AS p99_ns,
           self_ns / greatest(sum(self_ns) OVER (), 1) AS self_share,
           total_ns / greatest(sum(self_ns) OVER (), 1) AS total_share
    FROM sums LEFT JOIN percentiles USING ({{keys}}) {{join}}"""

_ERROR = f"""
    WITH exact AS (
        SELECT name, sum(self_ns) / greatest(sum(sum(self_ns)) OVER (), 1) AS share
        FROM totals WHERE layer = '{OPERATORS}' GROUP BY name
    ),
    weighted AS (
        SELECT name, sum(self_ns * weight) / greatest(sum(sum(self_ns * weight)) OVER (), 1)
          AS share
        FROM spans WHERE layer = '{OPERATORS}' GROUP BY name
    )
    SELECT max(abs(exact.share - coalesce(weighted.share, 0))) FROM exact LEFT
      JOIN weighted USING (name)"""


def is_thinned(reader: Reader) -> bool:
    """Whether some of its spans stand for others."""
    return reader.has("histograms")


def whole_and_outside(reader: Reader) -> tuple[float, float]:
    """Self time of all operators, and of those outside of steps, in ns."""
    columns = reader.arrays("totals", ["layer", "step_class", "self_ns"])
    is_operator = has_name(columns, "layer", OPERATORS)
    is_outside = has_name(columns, "step_class", "outside")
    self_ns = np.maximum(columns["self_ns"], 0)
    whole_ns = self_ns[is_operator].sum()
    outside_ns = self_ns[is_operator & is_outside].sum()
    return float(whole_ns), float(outside_ns)


class Thinned(Struct):
    """What was kept of a run: so many of its spans, and the spans of so many of its steps."""

    kept_spans: int
    spans: int
    kept_steps: int
    steps: int


def what_was_kept(reader: Reader) -> Thinned | None:
    """None where everything was."""
    if not is_thinned(reader):
        return None
    weight = reader.arrays("steps", ["weight"])["weight"]
    spans = int(reader.arrays("totals", ["count"])["count"].sum())
    return Thinned(reader.rows("spans"), spans, int(np.count_nonzero(weight)), len(weight))


def share_error(reader: Reader) -> float:
    """How far the share of self time of any name is off when it is counted by weight; a fraction of
    1.
    """
    return float(reader.connection().sql(_ERROR).fetchall()[0][0] or 0.0)


def notes(reader: Reader) -> tuple[str, ...]:
    """What is to be said of a table that counts by weight."""
    (most,) = reader.connection().sql("SELECT coalesce(max(weight), 1) FROM spans").fetchall()[0]
    if most <= 1:
        return ()
    return (WEIGHTED_NOTE.format(weight=most, error=max(100 * share_error(reader), 0.01)),)


def summed(one: NDArray[Any], other: NDArray[Any]) -> Floats:
    """The sum of two arrays, the shorter one filled up with zeros."""
    size = max(len(one), len(other))
    found = np.zeros(size)
    found[: len(one)] += one
    found[: len(other)] += other
    return found


class Corrections(Struct):
    """Makes sums over the operators of measured steps exact: `totals` less the spans of the steps
    that are not.

    These, the warm-up, lie at the start of the run, where every span was kept.
    """

    _self_by_name: Floats = field(default_factory=lambda: np.zeros(0))
    _calls_by_name: Floats = field(default_factory=lambda: np.zeros(0))
    _self_by_module: Floats = field(default_factory=lambda: np.zeros(0))
    _found_some: bool = False

    def files(self, reader: Reader) -> Iterator[Path]:
        """The files of spans of each rank from the first one on, as long as something in them is
        left out, and the last two.
        """
        for files in reader.files_of_ranks("spans"):
            for file in files[:-2]:
                self._found_some = False
                yield file
                if not self._found_some:
                    break
            yield from files[-2:]

    def leave_out(self, spans: Arrays, rows: NDArray[np.bool_]) -> None:
        """These spans are in `totals` and do not count."""
        self._found_some |= bool(rows.any())
        name = spans["name"][rows]
        calls = -spans["weight"][rows]
        self_ns = spans["self_ns"][rows] * calls
        name_ns = np.bincount(name, self_ns)
        self._self_by_name = summed(self._self_by_name, name_ns)
        self._calls_by_name = summed(self._calls_by_name, np.bincount(name, calls))
        if "module" in spans:
            module = spans["module"][rows] + 1
            module_ns = np.bincount(module, self_ns)
            self._self_by_module = summed(self._self_by_module, module_ns)

    def applied(
        self,
        reader: Reader,
        names: NDArray[np.object_],
        classes: tuple[str, ...],
        processes: list[int] | None,
    ) -> tuple[NDArray[np.object_], Floats, Floats, Floats]:
        """Names, self time and calls by name, and self time by 1 + key of the module: `classes` of
        `totals`, of some processes or of all.
        """
        columns = reader.arrays(
            "totals", ["process", "layer", "name", "module", "step_class", "count", "self_ns"]
        )
        chosen = columns["layer"] == np.flatnonzero(columns["layer.names"] == OPERATORS)[:1]
        chosen &= np.isin(
            columns["step_class"], np.flatnonzero(np.isin(columns["step_class.names"], classes))
        )
        if processes is not None:
            chosen &= np.isin(columns["process"], processes)
        rows = np.flatnonzero(chosen)
        place = {str(name): at for at, name in enumerate(names.tolist())}
        codes = [place.setdefault(str(name), len(place)) for name in columns["name.names"].tolist()]
        name = np.array(codes, np.intp)[columns["name"][rows]]
        self_ns = columns["self_ns"][rows]
        length = len(place)
        return (
            np.array(list(place), object),
            summed(np.bincount(name, self_ns, length), self._self_by_name),
            summed(np.bincount(name, columns["count"][rows], length), self._calls_by_name),
            summed(np.bincount(columns["module"][rows] + 1, self_ns), self._self_by_module),
        )
