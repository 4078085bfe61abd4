"""Questions about the collectives of several ranks, as expressions over their calls
(`collective_calls`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis

# Nobody leaves these before everybody has come.
WAIT_FOR_ALL = ("all_reduce", "reduce_scatter", "all_gather")
ONE = ("group", "number")


def _window() -> Any:
    """The calls of one collective."""
    import ibis

    return ibis.window(group_by=list(ONE))


def _sizes(calls: ibis.Table) -> ibis.Table:
    """Of each group with several ranks, how many ranks, and how many calls they have."""
    counts = calls.group_by("group", "rank").agg(calls=calls.count())
    sizes = counts.group_by("group").agg(
        ranks=counts.count(), fewest=counts.calls.min(), most=counts.calls.max()
    )
    return sizes.filter(sizes.ranks > 1)


def matched(calls: ibis.Table) -> ibis.Table:
    """The calls that all ranks of their group have."""
    sizes = _sizes(calls)
    with_size = calls.join(sizes, "group")
    return with_size.filter(with_size.number < with_size.fewest).select(*calls.columns)


def uneven(calls: ibis.Table) -> ibis.Table:
    """The groups whose ranks have not all as many calls."""
    sizes = _sizes(calls)
    return sizes.filter(sizes.fewest < sizes.most).order_by("group")


def shared_ends(calls: ibis.Table) -> ibis.Table:
    """The ends of collectives that wait for all."""
    found = matched(calls)
    found = found.mutate(
        first_name=found.name.min().over(_window()), last_name=found.name.max().over(_window())
    )
    is_one = found.first_name == found.last_name
    chosen = found.filter(is_one & found.first_name.isin(WAIT_FOR_ALL))
    return chosen.select("group", "number", "rank", "end_ns").order_by("group", "number", "rank")


def collectives(calls: ibis.Table) -> ibis.Table:
    """One row for each collective, with what the first rank called; times are in ns."""
    behind = placed(calls)
    is_first = behind.rank == behind.first_rank
    is_last = behind.behind_ns == behind.skew_ns
    elements = behind.in_elements.fill_null(-1)
    told = {name: behind[name].max(where=is_first) for name in ("name", "dtype", "bytes")}
    return behind.group_by(*ONE).agg(
        **told,
        ranks=behind.count().cast("int32"),
        start_ns=behind.start_ns.min(),
        transfer_ns=(behind.end_ns - behind.start_ns).min(),
        skew_ns=behind.behind_ns.max(),
        wait_ns=(behind.skew_ns - behind.behind_ns).sum(),
        last_rank=behind.rank.min(where=is_last),
        is_same=(behind.name.min() == behind.name.max())
        & (behind.dtype.min() == behind.dtype.max())
        & (elements.min() == elements.max()),
    )


def placed(calls: ibis.Table) -> ibis.Table:
    """Each call with `behind_ns`, from the first start of its collective to its own, `skew_ns`, the
    largest of these, and `first_rank`, the lowest rank in it.
    """
    window = _window()
    begun = calls.mutate(
        behind_ns=calls.start_ns - calls.start_ns.min().over(window),
        first_rank=calls.rank.min().over(window),
    )
    return begun.mutate(skew_ns=begun.behind_ns.max().over(window))


def each(calls: ibis.Table) -> ibis.Table:
    """Every collective as a row of the table, in the order of time."""
    found = collectives(calls)
    one = found.mutate(
        count=1,
        max_skew_ns=found.skew_ns,
        transfer_sum_ns=found.transfer_ns,
        skew_sum_ns=found.skew_ns,
        last_count=1,
    )
    return _with_rates(one).order_by("start_ns", "group", "number")


def by_kind(calls: ibis.Table) -> ibis.Table:
    """The collectives of the same name, group, ranks, size and type together; those that ranks
    waited for most first.
    """
    import ibis

    found = collectives(calls)
    kind = ["name", "group", "ranks", "bytes", "dtype"]
    of_last = found.group_by(*kind, "last_rank").agg(
        count=found.count(),
        transfer_sum_ns=found.transfer_ns.sum(),
        skew_sum_ns=found.skew_ns.sum(),
        max_skew_ns=found.skew_ns.max(),
        wait_ns=found.wait_ns.sum(),
    )
    most_often = of_last["count"].max().over(ibis.window(group_by=kind))
    of_last = of_last.mutate(most_often=most_often)
    is_most_often = of_last["count"] == of_last.most_often
    kinds = of_last.group_by(*kind).agg(
        count=of_last["count"].sum(),
        transfer_sum_ns=of_last.transfer_sum_ns.sum(),
        skew_sum_ns=of_last.skew_sum_ns.sum(),
        max_skew_ns=of_last.max_skew_ns.max(),
        wait_ns=of_last.wait_ns.sum(),
        last_rank=of_last.last_rank.min(where=is_most_often),
        last_count=of_last.most_often.max(),
    )
    return _with_rates(kinds).order_by(ibis.desc("wait_ns"), *kind)


def _with_rates(sums: ibis.Table) -> ibis.Table:
    """With means in place of sums, and the bandwidths (nccl-tests, PERFORMANCE.md)."""
    transfer_ns = sums.transfer_sum_ns / sums["count"]
    means = sums.mutate(
        transfer_ns=transfer_ns,
        skew_ns=sums.skew_sum_ns / sums["count"],
        algorithm_rate=sums.bytes / transfer_ns.nullif(0),
    )
    return means.mutate(bus_rate=means.algorithm_rate * _bus_factor(means))


def _bus_factor(of: ibis.Table) -> Any:
    """What makes bus bandwidth of algorithm bandwidth; null: not defined."""
    import ibis

    one = of.ranks / of.ranks
    others = (of.ranks - 1) / of.ranks
    return ibis.cases(
        (of.name == "all_reduce", 2 * others),
        (of.name.isin(("all_gather", "reduce_scatter", "all_to_all")), others),
        (of.name.isin(("broadcast", "reduce")), one),
    )


def different(calls: ibis.Table) -> ibis.Table:
    """The calls of the first collective, in the order of time, in which ranks called different
    ones; each with how many of how many these are.
    """
    found = collectives(calls)
    sums = found.agg(collectives=found.count(), different=(~found.is_same).sum())
    wrong = found.filter(~found.is_same).order_by("start_ns", "group", "number").limit(1)
    told = calls.join(wrong.select(*ONE), list(ONE))
    told = told.select(*ONE, "rank", "name", "in_elements", "dtype")
    return told.cross_join(sums).order_by("rank")
