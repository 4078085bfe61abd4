"""Which rank came last to collectives, by how much, and what it did meanwhile that others did not.

Late: a rank that came behind the median of all ranks, by at least a microsecond and a fourth of
what the last one was behind. The median is the lower one (`across.medians`): of two ranks, and
where half of the ranks are late, the one that was not. The window of a rank is the time from
the end of the collective before, on any group, to the start of this one, on its own clock; its
parts are those of `rank_timeline`. The reason is the part in which the late rank has most more than
the median of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from layerscope.analyse.gpu.collective_questions import ONE, placed
from layerscope.analyse.gpu.rank_timeline import PARTS

if TYPE_CHECKING:
    import ibis

    from layerscope.analyse.gpu.collectives import Job

# Of less nobody is late: clocks and launches differ by as much.
LEAST_LATE_NS = 1_000
# And of less than the last one is behind, divided by this.
LEAST_LATE_PART = 4


class Straggler(Struct, frozen=True):
    """A rank that took part in `collectives`: how often it was `last`, how often `late`, by how
    much all together and at most, and how much more of each of PARTS it had then. `reason`: the
    part that it had most more of; None if it never was late.
    """

    rank: int
    collectives: int
    last: int
    late: int
    total_ns: int
    max_late_ns: int | None
    reason: str | None
    more_ns: tuple[int, ...]


def stragglers(job: Job) -> Iterator[Straggler]:
    """Each rank that took part in a collective; the one that cost most first."""
    found = job.answer(question(job.calls))
    names = [f"more_{part}_ns" for part in PARTS]
    for row in found.to_pylist():
        more_ns = tuple(row.pop(name) for name in names)
        yield Straggler(**row, more_ns=more_ns)


def question(calls: ibis.Table) -> ibis.Table:
    """One row for each rank."""
    import ibis

    from layerscope.analyse.across.medians import with_medians

    measured = with_medians(placed(calls), ("behind_ns", *PARTS), ONE)
    more = {f"more_{part}_ns": measured[part] - measured[f"{part}_median"] for part in PARTS}
    behind = measured.mutate(
        late_ns=measured.behind_ns - measured.behind_ns_median,
        most_late_ns=measured.skew_ns - measured.behind_ns_median,
        **more,
    )
    is_last = behind.behind_ns == behind.skew_ns
    window = ibis.window(group_by=list(ONE))
    last_rank = is_last.ifelse(behind.rank, ibis.null("int32")).min().over(window)
    behind = behind.mutate(last_rank=last_rank)
    is_late = (behind.late_ns >= LEAST_LATE_NS) & (
        LEAST_LATE_PART * behind.late_ns >= behind.most_late_ns
    )
    more = {name: _sum(behind[name], is_late) for name in more}
    ranks = behind.group_by("rank").agg(
        collectives=behind.count(),
        last=behind.count(where=is_late & (behind.rank == behind.last_rank)),
        late=behind.count(where=is_late),
        total_ns=_sum(behind.late_ns, is_late),
        max_late_ns=behind.late_ns.max(where=is_late),
        **more,
    )
    found = ranks.mutate(reason=_reason(ranks))
    return found.order_by(ibis.desc("total_ns"), "rank")


def _sum(values: Any, where: Any) -> Any:
    return values.sum(where=where).fill_null(0)


def _reason(ranks: ibis.Table) -> Any:
    """The part with the largest sum, of equal ones the first."""
    import ibis

    sums = {part: ranks[f"more_{part}_ns"] for part in PARTS}
    largest = ibis.greatest(*sums.values())
    cases = [(value == largest, part) for part, value in sums.items()]
    return ibis.cases((ranks.late == 0, ibis.null("string")), *cases)
