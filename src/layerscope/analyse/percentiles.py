"""Durations of calls for the tables: percentiles in SQL, and what is said of calls that have
none.
"""

from __future__ import annotations

# quantile_disc knows no weights; it is faster where there are none.
_PERCENTILES = """
    SELECT {keys}, quantile_disc(dur_ns, 0.5) AS p50_ns, quantile_disc(dur_ns, 0.99) AS p99_ns
    FROM calls WHERE NOT unfinished GROUP BY {keys}"""
_WEIGHTED = """
    SELECT {keys}, min(dur_ns) FILTER (upto >= 0.5 * whole) AS p50_ns,
           min(dur_ns) FILTER (upto >= 0.99 * whole) AS p99_ns
    FROM (
        SELECT {keys}, dur_ns, sum(weight) OVER (PARTITION BY {keys}) AS whole,
               sum(weight) OVER (PARTITION BY {keys} ORDER BY dur_ns ROWS UNBOUNDED PRECEDING)
                 AS upto
        FROM calls WHERE NOT unfinished
    ) GROUP BY {keys}"""


def percentiles(keys: str, weight: int) -> str:
    """The question for p50_ns and p99_ns of each `keys` of `calls`, one of which stands for
    `weight` calls at most.
    """
    return (_PERCENTILES if weight <= 1 else _WEIGHTED).format(keys=keys)


def note_of_open(noun: str, unfinished: int) -> tuple[str, ...]:
    """What is said of `unfinished` calls that had not ended; `noun` is what one of them is
    called.
    """
    if not unfinished:
        return ()
    calls = f"1 {noun}" if unfinished == 1 else f"{unfinished:,} {noun}s"
    return (
        f"{calls} had not ended when the recording of the process did: in count, total_ns and "
        "self_ns, left out of avg_ns, min_ns, p50_ns, p99_ns and max_ns.",
    )
