"""Exact medians in expressions: of the values in order the one in the middle, or half of the sum of
the two in the middle. The medians of the engines themselves are doubles, or approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis


def with_middle(table: ibis.Table, columns: Sequence[str], keys: Sequence[str]) -> ibis.Table:
    """`table` with, for each of `columns`, the sum of the two values in the middle of the rows that
    are equal in `keys`, twice the one in the middle where there is one: `NAME_twice`.

    Every row needs a value.
    """
    import ibis

    group = ibis.window(group_by=list(keys))
    size = ibis._.count().over(group)
    places: dict[str, Any] = {"group_size": size}
    for name in columns:
        in_order = ibis.window(group_by=list(keys), order_by=name)
        places[f"{name}_place"] = ibis.row_number().over(in_order)
    placed = table.mutate(**places)
    sums = {f"{name}_twice": _twice(placed, name).over(group) for name in columns}
    return placed.mutate(**sums).drop(*places)


def _twice(placed: ibis.Table, name: str) -> Any:
    place = placed[f"{name}_place"]
    size = placed.group_size
    # Of an even number of rows both are true once, of an odd number for the same row.
    lower = (2 * place == size - 1) | (2 * place == size - 2)
    upper = (2 * place == size - 1) | (2 * place == size)
    value = placed[name]
    return (lower.ifelse(value, 0) + upper.ifelse(value, 0)).sum()
