"""What the rules look at: the measured steps of one process, and the threads that make them, as
views beside the tables of the recording.

Of several processes with steps it is the one whose steps take longest on average, since the others
wait for it. A program without steps is one step that is as long as the run. Of a run that was
thinned the steps are those that were kept.

    measured_steps    the steps without warm-up: step, start_ns, dur_ns, load_ns, forward_ns,
                      backward_ns, optimizer_ns, other_ns
    critical_tracks   the threads that make the steps: track
    step_samples      the samples in measured steps, of all threads of the process: step, track,
                      is_critical, at_ns, phase, kind, state, idle, exact, weight_ns, count, stack,
                      line, function, symbol, object, operator, module, waker
    step_spans        operators of the critical threads in measured steps: step, track, start_ns,
                      dur_ns, self_ns, kind, name, module (a path), phase, sequence (of autograd)
    operator_totals   the same added up over these steps: kind, name, module, phase, count, self_ns,
                      dur_ns. Ask it first: there are millions of spans and hundreds of these
    step_optimizers   the rows of step_spans that are calls of optimizers
    step_primitives   primitives of these operators: step, span, start_ns, dur_ns, kind,
                      primitive_kind, implementation, dtype, formats, problem, threads, cache_hit,
                      share_of, operator, operator_span, operator_ns, module, is_critical
    span_sums         spans in measured steps, of all threads, those that are alike
                      added up: track, layer, kind, name, module, phase, count, self_ns, dur_ns
    kept_spans        the spans that a primitive is, or called one, or that are calls of optimizers
    stack_frames      every frame of the stacks of these samples: stack, frame
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.diff.intervals import LEVEL, MEAN, block_count, estimate, t_quantile
from layerscope.analyse.findings.contention import contention
from layerscope.analyse.findings.finding import RUN, STEP, Evidence, Price
from layerscope.analyse.findings.sample_rows import frames_of_stacks, sample_rows
from layerscope.analyse.findings.span_pass import SpanPass
from layerscope.analyse.step_times import MeasuredSteps
from layerscope.model.layers import ANSWERING
from layerscope.recording.arrow_columns import arrow_array
from layerscope.recording.failures import unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

FEWEST_STEPS = 5
# What goes away with a cost and cannot be seen in it: after a wait, a copy or a page fault caches
# are cold and the operators that follow are slower. The repaired programs of `dev.py bench
# findings` saved up to 1.1 times what was measured.
AFTER_EFFECTS = 0.1
# The name of the only step of a program without any.
WHOLE_RUN = -1
# What a rule may need, and what is missing where it is not there.
NEEDS = {
    "steps": f"no steps were found, or fewer than {FEWEST_STEPS} beside the warm-up",
    "operators": "no operators were recorded",
    "samples": "no stacks were recorded",
    "modules": "no modules were recorded",
    "primitives": "no primitives were recorded",
    "counters": "no counters were recorded",
    "several_ranks": "there is one rank only",
}
_PHASES = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
# The kinds of spans that only the thread has that makes the steps, by the rule of the steps.
_MAKERS = {"served": ("module",), "request": ("module",), "mark": ("submit",)}
# The standard normal quantile of a two-sided interval of 95 %.
_Z = 1.959964

# Tracks are listed: the files skip what lies on others, which they do not for a question.
_SPANS = """
    SELECT {step} AS step, track, start_ns, dur_ns, self_ns, spans.kind, spans.name,
        coalesce(modules.path, '') AS module, phase{more}
    FROM {spans} spans LEFT JOIN modules USING (module)
    WHERE layer = 'operators' AND track IN ({tracks}) AND {in_steps}"""
# The rows of this one are not put into memory.
_OF_MILLIONS = "step_spans"
_OPTIMIZERS = "AND spans.kind = 'optimizer'"
_TOTALS = """
    SELECT kind, span_sums.name, coalesce(modules.path, '') AS module, phase,
        sum(count)::BIGINT AS count, sum(self_ns)::BIGINT AS self_ns, sum(dur_ns)::BIGINT AS dur_ns
    FROM span_sums LEFT JOIN modules USING (module)
    WHERE layer = 'operators' AND track IN ({tracks}) GROUP BY ALL"""
_PRIMITIVES = """
    SELECT {step} AS step, spans.span, spans.start_ns, spans.dur_ns, spans.kind, primitive_kind,
        implementation, dtype, formats, problem, threads, cache_hit, share_of,
        above.name AS operator, above.span AS operator_span, above.dur_ns AS operator_ns,
        coalesce(modules.path, '') AS module,
        coalesce(above.track, spans.track) IN ({tracks}) AS is_critical
    FROM primitives JOIN kept_spans spans USING (span)
        LEFT JOIN kept_spans above ON above.span = operator
        LEFT JOIN modules ON modules.module = spans.module
    WHERE spans.track IN (SELECT track FROM tracks WHERE process = {process}) AND {in_steps}"""


class Workload:
    """The measured steps of `reader`'s recording and what they did. Views are made when they are
    first asked for.
    """

    def __init__(self, reader: Reader, spans: SpanPass | None = None) -> None:
        """`spans`: a pass over the spans of the measured steps, that others make too."""
        self.reader = reader
        self._steps = steps = MeasuredSteps(reader)
        self.process, self.about = _slowest_process(reader, steps)
        mine = steps.measured & (steps.columns["process"] == self.process)
        mine &= _is_kept(reader, steps)
        self.has_steps = int(np.count_nonzero(mine)) >= FEWEST_STEPS
        self.per = STEP if self.has_steps else RUN
        self._span_pass = spans if self.has_steps else None
        columns = {name: steps.columns[name][mine] for name in ("step", "start_ns", "dur_ns")}
        columns |= {name: steps.columns[name][mine] for name in _PHASES}
        if not self.has_steps:
            columns = _one_step(reader)
        self.step: NDArray[np.int64] = columns["step"].astype(np.int64)
        self.dur_ns: NDArray[np.int64] = columns["dur_ns"].astype(np.int64)
        self._columns = columns
        self._there: dict[str, bool] = {}  # which needs are there
        # What makes a view: its rows, or a question.
        self._makers: dict[str, Callable[[], pa.Table | str]] = {
            "step_samples": lambda: sample_rows(self),
            "stack_frames": lambda: frames_of_stacks(self),
            "span_sums": lambda: self._spans_read().sums(),
            "kept_spans": lambda: self._spans_read().kept(),
            "operator_totals": lambda: _TOTALS.format(tracks=self._listed_tracks()),
            _OF_MILLIONS: lambda: self._span_rows("spans", ", sequence"),
            "step_optimizers": self._optimizers,
            "step_primitives": self._primitives,
        }
        self._add_steps()
        self.tracks = self._critical_tracks()
        self.contention = contention(self)

    @property
    def is_busy(self) -> bool:
        """Whether others had so much of the CPUs that only CPU time says something."""
        return self.contention is not None and self.contention.is_busy

    @property
    def mean_ns(self) -> float:
        """How long a step takes, on average."""
        if not len(self.dur_ns):
            return 0.0
        return float(self.dur_ns.mean())

    @property
    def granted_cpus(self) -> float:
        """CPUs that the program could use at once."""
        return self.reader.run.info.granted_cpus or 1.0

    def missing(self, needs: tuple[str, ...]) -> str:
        """The sentence about the first of `needs` that is not there; empty where all are."""
        for need in needs:
            if need not in self._there:
                self._there[need] = self._has(need)
            if not self._there[need]:
                return NEEDS[need]
        return ""

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to `sql`."""
        found: list[dict[str, Any]] = self.arrow(sql).to_pylist()
        return found

    def arrow(self, sql: str) -> pa.Table:
        """The answer to `sql` as an Arrow table. duckdb.Error where `sql` is wrong."""
        import duckdb

        self._prepare(sql)
        try:
            return self.reader.connection(sql).sql(sql).to_arrow_table()
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise unreadable(self.reader.run.path, error) from error

    def evidence(self, sql: str) -> Evidence:
        """The question and its answer, to be shown with a finding."""
        return Evidence(sql.strip(), self.arrow(sql))

    def price(self, sql: str, least: float = 1.0, beside: float = AFTER_EFFECTS) -> Price:
        """The price of what costs `ns` in each `step`, the columns of the answer to `sql`. Steps
        that are not among the rows cost nothing.

        A column `samples` says how many samples of CPU time each row is made of: of few samples the
        interval is Wilson's of their number among all of the critical threads.

        `least`: the part of the cost that is saved at least, where the remedy has a cost of its
        own; the lower end has it. `beside`: the part of it that goes away elsewhere.
        """
        answer = self.arrow(sql)
        cost_ns = np.zeros(len(self.step))
        step = answer["step"].to_numpy().astype(np.int64)
        places = np.searchsorted(self.step, step)
        np.add.at(cost_ns, places, answer["ns"].to_numpy().astype(float))
        samples = answer["samples"].to_numpy().sum() if "samples" in answer.schema.names else None
        return self._priced(cost_ns, None if samples is None else int(samples), least, beside)

    def _priced(
        self,
        cost_ns: NDArray[np.float64],
        samples: int | None,
        least: float,
        beside: float = AFTER_EFFECTS,
    ) -> Price:
        value_ns = float(cost_ns.mean()) if len(cost_ns) else 0.0
        error_ns = 0.0
        blocks = block_count(len(cost_ns))
        if blocks:
            tail = (1 - LEVEL) / 2
            variance = float(estimate(cost_ns[None, :], MEAN).variance[0])
            error_ns = t_quantile(tail, blocks - 1) * variance**0.5
        low_ns, high_ns = max(0.0, value_ns - error_ns), value_ns + error_ns
        cost_share = value_ns / self.mean_ns if self.mean_ns else 0.0
        if samples:
            low, high = wilson(samples, max(samples, self._critical_samples()))
            share = samples / max(samples, self._critical_samples())
            low_ns = min(low_ns, value_ns * low / share)
            high_ns = max(high_ns, value_ns * high / share)
        low_ns *= least
        value_ns = min(value_ns * (1 + beside), self.mean_ns)
        high_ns = min(high_ns * (1 + beside), self.mean_ns)
        share = value_ns / self.mean_ns if self.mean_ns else 0.0
        return Price(value_ns, low_ns, high_ns, share, cost_share, self.per, samples)

    def _critical_samples(self) -> int:
        sql = "SELECT count(*) AS n FROM step_samples WHERE is_critical AND kind = 'cpu'"
        return int(self.rows(sql)[0]["n"])

    # -- the views ---------------------------------------------------------------------------------

    def in_steps(self, table: str) -> str:
        """The condition that a row of `table` lies in a measured step of the process."""
        if not self.has_steps:
            return "true"
        return f"{table}.step IN (SELECT step FROM measured_steps)"

    def step_of(self, table: str) -> str:
        """The expression for the step of a row of `table`."""
        return f"{table}.step" if self.has_steps else f"{WHOLE_RUN}"

    def _prepare(self, sql: str) -> None:
        """Make the views that `sql` asks and that were not made yet."""
        words = set(re.findall(r"\w+", sql))
        for view in words.intersection(self._makers):
            if view in self._makers:  # else another needed it
                self._make(view)

    def _make(self, view: str) -> None:
        made = self._makers.pop(view)()
        if isinstance(made, str):
            self._prepare(made)
            connection = self.reader.connection(made)
            kind = "VIEW" if view == _OF_MILLIONS else "TABLE"
            connection.execute(f"CREATE OR REPLACE TEMP {kind} {view} AS {made}")
        else:
            self._register(view, made)

    def _register(self, view: str, data: pa.Table) -> None:
        connection = self.reader.connection("")
        connection.register(f"{view}_rows", data)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {view} AS SELECT * FROM {view}_rows")
        connection.unregister(f"{view}_rows")

    def _add_steps(self) -> None:
        import pyarrow as pa

        order = np.argsort(self.step)
        self.step, self.dur_ns = self.step[order], self.dur_ns[order]
        table = {
            name: arrow_array(values[order].astype(np.int64))
            for name, values in self._columns.items()
        }
        self._register("measured_steps", pa.table(table))

    def _critical_tracks(self) -> list[int]:
        import pyarrow as pa

        tracks: list[int] = []
        if self.has_steps:
            tracks = _makers_of_steps(self)
        if not tracks:
            tracks = _main_track(self)
        self._register("critical_tracks", pa.table({"track": pa.array(tracks, pa.int32())}))
        return tracks

    def _optimizers(self) -> str:
        return self._span_rows("kept_spans") + _OPTIMIZERS

    def _span_rows(self, table: str, more: str = "") -> str:
        """The question for operators of the critical threads in measured steps; `more`: further
        columns.
        """
        return _SPANS.format(
            spans=table,
            more=more,
            step=self.step_of("spans"),
            tracks=self._listed_tracks(),
            in_steps=self.in_steps("spans"),
        )

    def _spans_read(self) -> SpanPass:
        """The pass over the spans, made by now."""
        spans = self._span_pass
        if spans is None or not spans.is_read:
            self._span_pass = spans = SpanPass(self.reader)
            spans.read(self.step if self.has_steps else None)
        return spans

    def _primitives(self) -> str:
        return _PRIMITIVES.format(
            step=self.step_of("spans"),
            tracks=self._listed_tracks(),
            process=self.process,
            in_steps=self.in_steps("spans"),
        )

    def _listed_tracks(self) -> str:
        return ", ".join(map(str, self.tracks)) or "NULL"

    def _has(self, need: str) -> bool:
        if need == "steps":
            return self.has_steps
        if need == "operators":
            sql = "SELECT count(*) AS n FROM totals WHERE layer = 'operators'"
            return bool(self.rows(sql)[0]["n"])
        if need == "several_ranks":
            sql = "SELECT count(DISTINCT rank) AS n FROM processes"
            return int(self.rows(sql)[0]["n"]) > 1
        return self.reader.has(need)

    @property
    def rule_of_steps(self) -> str:
        """What a step was taken to be."""
        return self._steps.rule


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share by its successes (Wilson, 1927)."""
    share = successes / trials
    shift = _Z**2 / (2 * trials)
    variance = share * (1 - share) / trials
    spread = _Z * (variance + (shift / _Z) ** 2) ** 0.5
    scale = 1 + 2 * shift
    low = (share + shift - spread) / scale
    high = (share + shift + spread) / scale
    # Rounding must not put the share outside.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def _is_kept(reader: Reader, steps: MeasuredSteps) -> NDArray[np.bool_]:
    """Which steps have their spans and samples: of a run that was thinned, some."""
    every = reader.arrays("steps", ["process", "step", "weight"])
    has_weight = every["weight"] > 0
    return np.isin(_keys(steps.columns), _keys(every)[has_weight])


def _keys(steps: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """A number for each step of each process."""
    process = steps["process"].astype(np.int64)
    step = steps["step"]
    keys: NDArray[np.int64] = (process << 32) + step
    return keys


def _slowest_process(reader: Reader, steps: MeasuredSteps) -> tuple[int, str]:
    """The process whose measured steps take longest, and what is said of it if there are others."""
    of_steps = steps.columns["process"][steps.measured]
    if not len(of_steps):
        processes = reader.arrays("processes", ["process"])["process"]
        return int(processes.min(initial=0)), ""
    found, at = np.unique(of_steps, return_inverse=True)
    dur_ns = steps.columns["dur_ns"][steps.measured]
    mean_ns = np.bincount(at, dur_ns) / np.bincount(at)
    process = int(found[np.argmax(mean_ns)])
    if len(found) == 1:
        return process, ""
    sql = "SELECT pid, rank FROM processes WHERE process = ?"
    row = reader.query(sql, [process]).to_pylist()[0]
    name = f"process {row['pid']}" if row["rank"] is None else f"rank {row['rank']}"
    return process, f"These are findings of {name}, whose steps take longest of {len(found)}."


def _one_step(reader: Reader) -> dict[str, NDArray[Any]]:
    """The whole run as a step."""
    info = reader.run.info
    zero = np.zeros(1, np.int64)
    columns = dict.fromkeys(("start_ns", *_PHASES), zero)
    wall_ns = info.program.wall_ns or _length_ns(reader)
    return {"step": zero + WHOLE_RUN, "dur_ns": zero + max(wall_ns, 1), **columns}


def _length_ns(reader: Reader) -> int:
    """From the first to the last thing that was recorded."""
    sql = """
        SELECT max(until_ns) - min(at_ns) AS ns FROM (
            SELECT min(start_ns) AS at_ns, max(start_ns + dur_ns) AS until_ns FROM spans
            UNION ALL SELECT min(at_ns), max(at_ns + weight_ns) FROM samples
        )"""
    return int(reader.query(sql)["ns"][0].as_py() or 1)


def _makers_of_steps(workload: Workload) -> list[int]:
    """The threads that make the steps: of requests all that call modules, else the one with the
    most calls of optimizers and loaders, or that is busiest.
    """
    kinds = _MAKERS.get(workload.rule_of_steps, ("optimizer", "loader"))
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    makers = _tracks_with(workload, f"span_sums.kind IN ({listed})", "count")
    if workload.rule_of_steps in ANSWERING:
        return [row["track"] for row in makers]
    most = [row["track"] for row in makers if row["amount"] == makers[0]["amount"]]
    if len(most) == 1:
        return most
    busiest = _tracks_with(workload, "layer IN ('operators', 'modules')", "self_ns")
    tracks = [row["track"] for row in busiest]
    return [track for track in tracks if track in most or not most][:1]


def _tracks_with(workload: Workload, condition: str, amount: str) -> list[dict[str, Any]]:
    """The threads of the process that have such spans in the steps, most of the amount first."""
    return workload.rows(
        f"""
        SELECT track, sum({amount})::BIGINT AS amount FROM span_sums JOIN tracks USING (track)
        WHERE process = {workload.process} AND {condition}
        GROUP BY track ORDER BY amount DESC, track"""
    )


def _main_track(workload: Workload) -> list[int]:
    """The thread that the process began with."""
    sql = f"""
        SELECT track FROM tracks JOIN processes USING (process)
        WHERE process = {workload.process} AND tracks.kind = 'thread'
        ORDER BY tid IS DISTINCT FROM pid, track LIMIT 1"""
    return [row["track"] for row in workload.rows(sql)]
