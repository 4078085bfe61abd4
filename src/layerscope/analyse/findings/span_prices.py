"""Prices by the durations of spans, which hold the time too in which the thread had no CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from layerscope.analyse.findings.workload import AFTER_EFFECTS

if TYPE_CHECKING:
    from layerscope.analyse.findings.finding import Price
    from layerscope.analyse.findings.workload import Workload


def price_of_spans(
    workload: Workload, sql: str, least: float = 1.0, beside: float = AFTER_EFFECTS
) -> Price:
    """The price of what costs `ns` in each `step` by `sql`. On a busy machine only the part counts
    in which the thread had a CPU. `least`, `beside`: as in `Workload.price`.
    """
    price = workload.price(sql, least, beside)
    contention = workload.contention
    if contention is None or not workload.is_busy:
        return price
    part = 1 - contention.preempted_share
    return replace(
        price,
        value_ns=price.value_ns * part,
        low_ns=price.low_ns * part,
        high_ns=price.high_ns * part,
        share=price.share * part,
        cost_share=price.cost_share * part,
    )
