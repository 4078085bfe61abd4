"""Every nth step takes longer than the others, and does something that they do not.

**What it looks for.** Steps that take more than twice as long as the median; a constant number of
steps between them; and frames that are in the samples of these steps only.

**Why it matters.** A step of a second every hundred steps is 10 ms of each: averages do not show
where it goes.

**What to do.** Do what the named line does less often, cheaper, or on a thread of its own.

**When it is wrong.** An evaluation or a checkpoint every n steps may be wanted: then its price is
what it costs. Work that is put off, such as accumulated gradients, is not saved by spreading it.

Source: none; the thresholds are explained with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "samples")
THRESHOLDS = (
    Threshold("slower", 2.0, "times the median", "below it a step may be slow by chance"),
    Threshold("steps", 3.0, "slow steps", "of fewer nobody can tell how far they are apart"),
    Threshold(
        "regular",
        0.8,
        "of the slow steps",
        "are so far apart, and of the steps in these places so many are slow",
    ),
    Threshold(
        "explained",
        0.3,
        "of the excess",
        "the frame that only slow steps have has at least so much of it",
    ),
)
REMEDIES = (Remedy("do it less often, or on a thread of its own: look at the line named here"),)
_TIMES = """
    usual AS (SELECT median(dur_ns) AS usual_ns FROM measured_steps),
    slow AS (SELECT step FROM measured_steps, usual WHERE dur_ns > {slower} * usual_ns)"""
_PATTERN = f"""
    WITH {_TIMES},
    gaps AS (SELECT step - lag(step) OVER (ORDER BY step) AS gap FROM slow),
    every AS (SELECT mode(gap) AS gap FROM gaps),
    place AS (SELECT gap, mode(step % gap) AS rest FROM slow, every GROUP BY gap)
    SELECT *, greatest(1, steps - expected) AS others
    FROM (SELECT gap, rest, usual_ns,
        (SELECT count(*) FROM slow) AS slow,
        (SELECT count(*) FROM slow WHERE step % gap = rest) AS regular,
        (SELECT count(*) FROM measured_steps WHERE step % gap = rest) AS expected,
        (SELECT count(*) FROM measured_steps) AS steps
        FROM place, usual)
    WHERE gap > 1 AND regular >= {{steps}} AND regular >= {{regular}} * greatest(slow, expected)"""
# Without the part of these steps in which others had the CPU.
_PRICE = f"""
    WITH {_TIMES},
    here AS (
        SELECT coalesce(sum(weight_ns) FILTER (state IS DISTINCT FROM 'preempted'), 0)
            / greatest(1, sum(weight_ns)) AS part
        FROM step_samples WHERE is_critical AND step % {{gap}} = {{rest}})
    SELECT step, greatest(0, dur_ns - usual_ns) * part AS ns FROM measured_steps, usual, here
    WHERE step % {{gap}} = {{rest}}"""
# Frames of the critical threads that these steps have and the others nearly never; the outermost of
# those with the same time.
EVIDENCE = """
    WITH here AS (
        SELECT step % {gap} = {rest} AS is_slow, stack, sum(weight_ns) AS weight_ns
        FROM step_samples WHERE is_critical AND state NOT IN ('preempted', 'unknown')
        GROUP BY ALL),
    sums AS (
        SELECT frame, coalesce(sum(weight_ns) FILTER (is_slow), 0) AS slow_ns,
            coalesce(sum(weight_ns) FILTER (NOT is_slow), 0) AS other_ns
        FROM here JOIN (SELECT DISTINCT stack, frame FROM stack_frames) USING (stack)
        GROUP BY frame)
    SELECT layer, name, CASE WHEN line IS NULL THEN coalesce(file, '')
            ELSE concat(file, ':', line) END AS line,
        round(slow_ns / {expected})::BIGINT AS slow_step_ns,
        round(other_ns / {others})::BIGINT AS other_step_ns
    FROM sums JOIN frames USING (frame)
    WHERE slow_ns / {expected} > 20 * other_ns / {others} AND layer IN ('python', 'native')
    ORDER BY slow_step_ns DESC, layer = 'python' DESC, frame LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """Slow steps at regular distances."""
    slower = limits["slower"]
    least = {"steps": limits["steps"], "regular": limits["regular"]}
    rows = workload.rows(_PATTERN.format(slower=slower, **least))
    if not rows:
        return
    row = rows[0]
    gap = row["gap"]
    price = workload.price(_PRICE.format(slower=slower, **row))
    evidence = workload.evidence(EVIDENCE.format(**row))
    cost_ns = price.cost_share * workload.mean_ns
    excess_ns = cost_ns * row["steps"] / row["expected"]
    least_ns = limits["explained"] * excess_ns
    frames = evidence.rows.to_pylist()
    if not frames:
        return
    slowest = frames[0]
    if slowest["slow_step_ns"] < least_ns:
        return
    times = 1 + excess_ns / row["usual_ns"]
    yield Finding(
        rule="slow_every_nth_step",
        title=f"one of {gap} steps takes {times:.1f} times as long as the others",
        price=price,
        where=Where(line=slowest["line"] or slowest["name"]),
        remedies=REMEDIES,
        evidence=(evidence,),
        certainty=LIKELY,
    )
