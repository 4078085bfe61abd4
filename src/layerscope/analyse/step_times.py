"""How long the steps of a recording take, and which of its spans lie in the steps that are
measured.

Steps that are warm-up are not measured, and neither are requests that failed: they took the time of
something else. Of a thinned recording these are, because the sums that are kept of it hold them
too. Where processes have steps by different rules, only those by the strongest one are: beside the
training, a process that only evaluates is another program.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.columns import has_name
from layerscope.analyse.failures import Failure, raised_marks
from layerscope.analyse.thinned import is_thinned
from layerscope.model.distinct import distinct
from layerscope.model.events import FIRST_RUNS
from layerscope.model.frameworks import launches, request_classes
from layerscope.model.layers import ANSWERING, PHASES
from layerscope.model.median import median
from layerscope.recording.reader import Reader

# Fewer steps than this say nothing about a trend.
FEWEST_FOR_DRIFT = 9
OUTLIER = 2.0
# Of steps that a profiler makes longer, those that warm up.
WARMUP = 0.02
# By so many steps it is seen what begins them.
_LOOKED_AT = 50
# Of calls that return before they are executed, the first ones wait for nothing.
FEWEST_LAUNCHES = 100
# How a range is called that is one request.
_REQUEST = re.compile("request", re.IGNORECASE)
# The strongest first.
RULES = ("mark", "optimizer", "loader", *ANSWERING)

_PHASE_COLUMNS = dict(
    zip(PHASES, ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns"), strict=True)
)

Array = NDArray[Any]
Arrays = dict[str, Array]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


class StepTimes(Struct):
    """How long the measured steps take. `drift` is the median of the last third over that of the
    first, in the median process.

    `per_second` counts the measured steps between the first one's start and the last one's end,
    `at_once` those that run at the same time, at most. `failed`: how many requests, beside the
    warm-up, an exception ended; `left_out`: whether they are not measured. `noun`: what one is
    called, a step, a call or a request. `detailed`: in how many of the measured ones operators were
    recorded, and `detailed_ns`: how long these take. `others_ns`: of requests that are marked, how
    long in one of them calls of others ran and none of its own. `launch`: the operator each call
    of which begins one, where these return before what they ask for is executed. `missing`: how
    many are not there, by the numbers that the program gave those around them.
    """

    rule: str
    count: int
    warmup: int
    processes: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    phases_ns: dict[str, float]
    outliers: int
    slowest_ns: int
    drift: float | None
    per_second: float
    at_once: int
    failed: int = 0
    left_out: bool = False
    noun: str = "step"
    detailed: int = 0
    detailed_ns: float = 0.0
    p90_ns: float = 0.0
    others_ns: float = 0.0
    launch: str = ""
    missing: int = 0

    @property
    def measured(self) -> int:
        """How many steps the figures are of."""
        return self.count - self.warmup - self.failed * self.left_out


class MeasuredSteps:
    """The table of the steps, and the moments between which they are measured."""

    def __init__(self, reader: Reader) -> None:
        names = [
            "step",
            "process",
            "rule",
            "start_ns",
            "dur_ns",
            "warmup",
            *_PHASE_COLUMNS.values(),
        ]
        columns = reader.arrays("steps", names)
        self.step_slots = int(columns["step"].max(initial=-1)) + 1
        self._all_processes: list[int] = distinct(columns["process"]).tolist()
        self.slot_count = self.step_slots * (max(self._all_processes, default=0) + 1)
        self.rule, chosen = _strongest(columns)
        self._serves = self.rule == "request" and _only_serves(reader)
        self._detailed_until_ns = _detailed_until_ns(reader)
        self._marked = reader.run.info.step_mark
        self._reader = reader
        self.columns = {
            name: values if name.endswith(".names") else values[chosen]
            for name, values in columns.items()
        }
        is_warmup = self.columns["warmup"].astype(np.bool_)
        raised = raised_marks(reader)
        ending = raised.ending(
            self.columns["start_ns"] + self.columns["dur_ns"], self.columns["process"]
        )
        failed = (ending >= 0) & (self.rule == "request")
        self.failures: list[Failure] = raised.summed(ending[failed])
        self.warmup, self.failed = (
            int(np.count_nonzero(is_warmup)),
            int(np.count_nonzero(failed & ~is_warmup)),
        )
        self.leaves_out = bool((~failed & ~is_warmup).any()) and not is_thinned(reader)
        self.measured = ~is_warmup & ~(failed & self.leaves_out)
        self._with_operators = self._steps_with_operators()
        self.processes: list[int] = distinct(self.columns["process"]).tolist()
        start = self.columns["start_ns"][self.measured]
        end = start + self.columns["dur_ns"][self.measured]
        self.begin_ns = int(start.min(initial=np.iinfo(np.int64).max))
        self.end_ns = int(end.max(initial=0))

    def _steps_with_operators(self) -> Bools:
        """Of which steps operators count: those that are measured, unless a profiler made the first
        ones so much longer that all of those with operators are warm-up. Then it is these.
        """
        has_operators = self.columns["start_ns"] < self._detailed_until_ns
        if not has_operators.any() or (has_operators & self.measured).any():
            return self.measured
        start_ns = self.columns["start_ns"]
        last = int(WARMUP * np.count_nonzero(has_operators))
        warm_ns = np.partition(start_ns, last)[last]
        chosen: Bools = has_operators & (start_ns > warm_ns)
        return chosen if chosen.any() else self.measured

    def times(self) -> StepTimes | None:
        """None when there are no steps."""
        order = np.argsort(self.columns["start_ns"][self.measured], kind="stable")
        start_ns = self.columns["start_ns"][self.measured][order]
        dur_ns = self.columns["dur_ns"][self.measured][order]
        if not len(dur_ns):
            return None
        p50_ns = median(dur_ns)
        launch = _launch(self._reader, start_ns) if self.rule == "mark" else ""
        fewest = FEWEST_LAUNCHES if launch else FEWEST_FOR_DRIFT
        detailed = int(np.searchsorted(start_ns, self._detailed_until_ns))
        detailed_ns = float(dur_ns[: detailed or None].mean())
        if self._with_operators is not self.measured:
            detailed = int(np.count_nonzero(self._with_operators))
            detailed_ns = float(self.columns["dur_ns"][self._with_operators].mean())
        phases_ns = {
            p: float(self.columns[c][self.measured].mean()) for p, c in _PHASE_COLUMNS.items()
        }
        return StepTimes(
            rule=self.rule,
            count=len(self.measured),
            warmup=self.warmup,
            failed=self.failed,
            left_out=self.leaves_out,
            processes=len(self.processes),
            mean_ns=float(dur_ns.mean()),
            p50_ns=p50_ns,
            p90_ns=float(percentile(dur_ns, 90)),
            p95_ns=float(percentile(dur_ns, 95)),
            p99_ns=float(percentile(dur_ns, 99)),
            phases_ns=phases_ns,
            outliers=int(np.count_nonzero(dur_ns > OUTLIER * p50_ns)),
            slowest_ns=int(dur_ns.max()),
            drift=_drift(dur_ns, self.columns["process"][self.measured][order], fewest),
            per_second=1e9 * len(dur_ns) / max(self.end_ns - self.begin_ns, 1),
            at_once=_at_once(start_ns, start_ns + dur_ns),
            noun=self._noun(phases_ns),
            detailed=detailed,
            detailed_ns=detailed_ns,
            launch=launch,
            missing=_missing(self._reader) if self.rule == "mark" else 0,
        )

    def _noun(self, phases_ns: dict[str, float]) -> str:
        """What one is called. Whoever trains by hand makes steps, though they are found like calls.
        A call is a request where the program, or what it calls, says so: a scheduler may answer
        several requests by one call, or one by many.
        """
        if self.rule == "served":
            return "request"
        if self.rule == "mark":
            return "request" if _REQUEST.search(self._marked) else "step"
        if self.rule != "request" or phases_ns["backward"]:
            return "step"
        return "request" if self._serves else "call"

    def slots(self) -> Int64s:
        """A number for each step of each process."""
        slots: Int64s = self.columns["process"] * self.step_slots + self.columns["step"]
        return slots

    def of_spans(self, spans: Arrays, process_of: Int64s) -> tuple[Bools, Bools]:
        """Which spans lie in a measured step, and which in any. `process_of` has the process of
        every track.
        """
        in_step = spans["step"] >= 0
        last = max(self._all_processes, default=0)
        if len(self._all_processes) == 1:
            slot = spans["step"] + last * self.step_slots
        else:
            # A process beyond the last one with steps has no span in a step: any slot will do.
            first_slots = np.minimum(process_of, last) * self.step_slots
            slot = first_slots[spans["track"]] + spans["step"]
        in_measured = self._is_measured[np.where(in_step, slot, 0)]
        return in_step & in_measured, in_step

    @cached_property
    def _is_measured(self) -> Bools:
        """A slot for each step of each process."""
        is_measured = np.zeros(self.slot_count, np.bool_)
        is_measured[self.slots()[self._with_operators]] = True
        return is_measured


def process_of_tracks(tracks: Arrays) -> Int64s:
    """The process of every track, by its key."""
    processes = np.zeros(int(tracks["track"].max(initial=-1)) + 1, np.int64)
    processes[tracks["track"]] = tracks["process"]
    return processes


def _detailed_until_ns(reader: Reader) -> int:
    """When the last operator began, where only those of the first steps were recorded."""
    always_ns = int(np.iinfo(np.int64).max)
    codes = reader.arrays("problems", ["code"])["code"]
    if FIRST_RUNS not in codes.tolist():
        return always_ns
    last_ns = 0
    for spans in reader.pieces("spans", ["start_ns", "kind"]):
        is_operator = has_name(spans, "kind", "function")
        last_ns = max(last_ns, int(spans["start_ns"][is_operator].max(initial=0)))
    return last_ns


def _only_serves(reader: Reader) -> bool:
    """Whether all modules that the program calls are of classes a call of which is a request."""
    modules = reader.arrays("modules", ["parent", "class"])
    called = {str(name) for name in modules["class"][modules["parent"] < 0].tolist()}
    return bool(called) and called <= request_classes()


def _launch(reader: Reader, start_ns: Int64s) -> str:
    """The call with which each of the steps begins that start at these moments, where what it asks
    for is executed later; empty: there is none.
    """
    moments = start_ns[:_LOOKED_AT].tolist()
    begun = reader.query(
        f"""SELECT name, count(DISTINCT start_ns) AS steps FROM spans
        WHERE kind = 'function' AND start_ns IN ({", ".join(map(str, moments))})
        GROUP BY name ORDER BY steps DESC, name"""
    )
    pattern = launches()
    for name, steps in zip(*begun.to_pydict().values(), strict=True):
        if pattern.fullmatch(name) and steps == len(set(moments)):
            return str(name)
    return ""


def _missing(reader: Reader) -> int:
    """How many numbers are missing among those that the program gave its steps, where a profiler
    did not record all the time.
    """
    if not has_name(reader.arrays("gaps", ["reason"]), "reason", "no_segment").any():
        return 0
    told = reader.query(
        """SELECT process, TRY_CAST(json_extract_string(json, '$.step_num') AS BIGINT) AS number
        FROM spans JOIN args USING (args) JOIN tracks USING (track)
        WHERE spans.kind = 'task' AND step IS NOT NULL AND number IS NOT NULL
        GROUP BY ALL ORDER BY ALL"""
    ).to_pydict()
    process, number = (np.array(told[name], np.int64) for name in ("process", "number"))
    missing = 0
    for one in distinct(process).tolist():
        apart = np.diff(number[process == one])
        if len(apart):
            values, counts = np.unique(apart, return_counts=True)
            missing += int((apart // values[counts.argmax()] - 1).clip(0).sum())
    return missing


def _strongest(columns: Arrays) -> tuple[str, Bools]:
    """The strongest rule among the steps, and which of them are by it."""
    for rule in RULES:
        chosen = has_name(columns, "rule", rule)
        if chosen.any():
            return rule, chosen
    steps = len(columns["step"])
    all_of_them = np.ones(steps, np.bool_)
    return "none", all_of_them


def percentile(values: Array, percent: int) -> int:
    """The smallest value that `percent` % of the values do not exceed."""
    at = -(-percent * len(values) // 100) - 1
    return int(np.partition(values, at)[at])


def _drift(dur_ns: Array, process: Array, fewest: int) -> float | None:
    """Of several processes the median: ranks differ, and need not begin together. None where all
    have fewer than `fewest` steps.
    """
    found = []
    for number in distinct(process).tolist():
        values = dur_ns[process == number]
        third = len(values) // 3
        if len(values) >= fewest:
            found.append(median(values[-third:]) / max(median(values[:third]), 1))
    return median(np.array(found)) if found else None


def _at_once(start_ns: Int64s, end_ns: Int64s) -> int:
    """The most stretches of time that are open at one moment; `start_ns` is sorted."""
    ended = np.searchsorted(np.sort(end_ns), start_ns, side="right")
    started = np.arange(1, len(start_ns) + 1)
    most = int((started - ended).max())
    return max(1, most)
