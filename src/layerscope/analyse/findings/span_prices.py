"""Prices by the durations of spans, which hold the time too in which the thread had no CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerscope.analyse.findings.finding import Price
    from layerscope.analyse.findings.workload import Workload


def price_of_spans(workload: Workload, sql: str) -> Price:
    """The price of what costs `ns` in each `step` by `sql`; on a busy machine without the share of
    it in which others had the CPU.
    """
    contention = workload.contention
    if contention is None or not workload.is_busy:
        return workload.price(sql)
    part = 1 - contention.preempted_share
    return workload.price(f"SELECT step, ns * {part} AS ns FROM ({sql})")
