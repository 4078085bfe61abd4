"""How long ranks waited for each other, as expressions over their calls of collectives and their
steps (`ranks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.analyse.across.answers import ibis_table
from layerscope.analyse.across.medians import with_medians

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa


def call_columns() -> pa.Schema:
    """Of each call of a collective: which one of its name on its rank, and whether it counts, 1 or
    0.
    """
    import pyarrow as pa

    numbers = ("number", "start_ns", "dur_ns", "measured")
    fields = [pa.field("rank", pa.int32()), pa.field("name", pa.string())]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in numbers)])


def rank_columns() -> pa.Schema:
    """Of each rank: how many steps are measured, and how long they are on average."""
    import pyarrow as pa

    fields = [("rank", pa.int32()), ("measured", pa.int64()), ("mean_ns", pa.float64())]
    return pa.schema(fields)


def compared() -> ibis.Table:
    """One row for each of `ranks`, in order: `wait_ns`, of a step, null where not known, and
    `of_median`, its work divided by that of the median rank.
    """
    import ibis

    waits = _waits(ibis_table("calls", call_columns()))
    own = ibis_table("ranks", rank_columns())
    with_waits = own.left_join(waits, "rank").drop("rank_right")
    timed = with_waits.mutate(wait_ns=with_waits.waits_ns / with_waits.measured.nullif(0))
    work_ns = ibis.greatest(timed.mean_ns - ibis.coalesce(timed.wait_ns, 0), 0)
    working = timed.mutate(work_ns=timed.mean_ns.isnull().ifelse(ibis.null("float64"), work_ns))
    known = working.filter(working.work_ns.notnull()).mutate(all=1)
    beside = with_medians(known, ["work_ns"], ["all"])
    typical = beside.agg(typical_ns=beside.work_ns_median.max())
    found = working.cross_join(typical)
    found = found.mutate(of_median=found.work_ns / found.typical_ns.nullif(0))
    return found.select("rank", "wait_ns", "of_median").order_by("rank")


def _waits(calls: ibis.Table) -> ibis.Table:
    """How long each rank waited for others in all its calls; no row where the calls of the ranks do
    not match.
    """
    import ibis

    together = ibis.window(group_by=["name", "number"])
    until_last_ns = calls.start_ns.max().over(together) - calls.start_ns
    waited = calls.mutate(wait_ns=ibis.least(until_last_ns, calls.dur_ns) * calls.measured)
    sums = waited.group_by("rank").agg(waits_ns=waited.wait_ns.sum())
    crossed = sums.cross_join(_unmatched(calls))
    return crossed.filter(crossed.unmatched == 0).select("rank", "waits_ns")


def _unmatched(calls: ibis.Table) -> Any:
    """How many names not all ranks called as often."""
    counts = calls.group_by("name", "rank").agg(calls=calls.count())
    by_name = counts.group_by("name").agg(
        ranks=counts.count(), fewest=counts.calls.min(), most=counts.calls.max()
    )
    everyone = calls.agg(everyone=calls["rank"].nunique())
    compared = by_name.cross_join(everyone)
    is_wrong = (compared.fewest < compared.most) | (compared.ranks < compared.everyone)
    return compared.agg(unmatched=compared.count(where=is_wrong))
