"""One rank of a distributed job works longer than the others, and these wait for it in each step.

**What it looks for.** The rank whose steps without waiting take longest. Waiting is the time in a
collective from a rank's own arrival until the last rank arrives. The price is how long the rank
waits that waits most.

**Why it matters.** Ranks that average gradients all take as long as the slowest.

**What to do.** Look at what the slow rank does that the others do not: `layerscope diff` of two
ranks, `layerscope table ranks`. Give all ranks as much data, of the same lengths; have logging,
evaluation and checkpoints done by all, less often, or on another thread.

**When it is wrong.** Ranks on hosts that differ cannot all be equally fast: give the slow one less
data. If the work is divided more evenly instead of left out, it saves a part of the price only.

Source: TraceML's stragglers and HTA's.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.workload import Workload
from layerscope.analyse.ranks import SLOWER, RankTimes, SlowestRank, rank_times, slowest_rank
from layerscope.model.units import percent

NEEDS = ("steps", "several_ranks")
THRESHOLDS = (
    Threshold("slower", SLOWER, "of the others' work", "two runs of one loop differ by as much"),
    Threshold(
        "sampled",
        0.2,
        "of the other's CPU time",
        "on a busy machine: equal ranks differ by as much in few samples",
    ),
)

REMEDIES = (Remedy("look at what this rank does and the others do not: layerscope table ranks"),)
# Collectives that nobody leaves before all have arrived; the k-th on one rank is the k-th on all.
_WAITS = """
    WITH calls AS (
        SELECT rank, spans.name, step, spans.start_ns, spans.dur_ns, row_number() OVER (
            PARTITION BY rank, spans.name ORDER BY spans.start_ns) AS nth
        FROM spans JOIN tracks USING (track) JOIN processes USING (process)
        WHERE regexp_matches(spans.name,
            '^(gloo|nccl|mpi|ucc|xccl):_?(all_?reduce|all_?gather|reduce_?scatter|barrier)')),
    waits AS (
        SELECT rank, step, least(dur_ns,
            max(start_ns) OVER (PARTITION BY name, nth) - start_ns) AS wait_ns
        FROM calls)
    SELECT step, sum(wait_ns) * {part} AS ns FROM waits
    WHERE rank = {rank} AND step IN (SELECT step FROM measured_steps) GROUP BY step"""
# CPU time of a step on the first thread of each rank: what a busy machine does not change.
_CPU = """
    SELECT rank, sum(weight_ns) / count(DISTINCT samples.step) AS ns
    FROM samples JOIN tracks USING (track) JOIN processes USING (process)
    WHERE samples.kind = 'cpu' AND tid = pid AND rank IS NOT NULL
        AND step IN (SELECT step FROM measured_steps)
    GROUP BY rank"""
EVIDENCE = """
    SELECT * FROM (VALUES {rows}) AS ranks(rank, steps, step_ns, waits_ns, works_ns)
    ORDER BY rank"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The rank that the others wait for."""
    times = [
        one
        for one in rank_times(workload.reader)
        if one.wait_ns is not None
    ]  # fmt: skip
    slowest = slowest_rank(times)
    if slowest is None:
        return
    if slowest.over < limits["slower"]:
        return
    waiting = max(times, key=_waits_ns)
    part = 1.0
    if workload.is_busy:
        least = limits["sampled"]
        part = _part_of_work(workload, slowest, waiting, least)
    if part:
        yield _finding(workload, slowest, waiting, times, part)


def _part_of_work(
    workload: Workload, slowest: SlowestRank, waiting: RankTimes, least: float
) -> float:
    """The part of the wait in which the slow rank has more CPU time: all else may be others'."""
    cpu_ns = {}
    for row in workload.rows(_CPU):
        cpu_ns[row["rank"]] = float(row["ns"])
    of_slow_ns = cpu_ns.get(slowest.rank, 0.0)
    of_other_ns = cpu_ns.get(waiting.rank, 0.0)
    excess_ns = of_slow_ns - of_other_ns
    if excess_ns < least * of_other_ns:
        return 0.0
    waits_ns = max(_waits_ns(waiting), 1.0)
    return min(1.0, excess_ns / waits_ns)


def _finding(
    workload: Workload,
    slowest: SlowestRank,
    waiting: RankTimes,
    times: list[RankTimes],
    part: float,
) -> Finding:
    price = workload.price(_WAITS.format(rank=waiting.rank, part=part))
    rows = ", ".join(map(_row, times))
    evidence = workload.evidence(EVIDENCE.format(rows=rows))
    return Finding(
        rule="uneven_ranks",
        title=f"rank {slowest.rank} works {percent(slowest.over)} longer in a step than the others",
        price=price,
        where=Where(thread=f"rank {slowest.rank}"),
        remedies=REMEDIES,
        evidence=(evidence,),
        certainty=LIKELY,
        notes=(f"rank {waiting.rank} waits for it for {percent(price.cost_share)} of a step",),
    )


def _waits_ns(times: RankTimes) -> float:
    return times.wait_ns or 0.0


def _row(times: RankTimes) -> str:
    """One rank as a row of SQL."""
    step_ns = round(times.mean_ns or 0)
    waits_ns = round(times.wait_ns or 0)
    works_ns = round(times.work_ns or 0)
    return f"({times.rank}, {times.steps}, {step_ns}, {waits_ns}, {works_ns})"
