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
    import ibis

    value = placed[name]
    behind_middle = 2 * placed[f"{name}_place"] - placed.group_size
    # One row is -1 where their number is odd; where it is even one is -2 and one 0.
    is_middle = behind_middle == -1
    is_beside = behind_middle.isin((-2, 0))
    counted = ibis.cases((is_middle, 2 * value), (is_beside, value))
    return counted.sum()
