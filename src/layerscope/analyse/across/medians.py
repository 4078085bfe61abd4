"""Exact medians in expressions. The medians of the engines themselves are doubles, or approximate.

Of an even number of values it is the smaller of the two in the middle (the lower median): a value
that occurs, and one that half of the ranks have reached, also where the other half is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis


def with_medians(table: ibis.Table, columns: Sequence[str], keys: Sequence[str]) -> ibis.Table:
    """`table` with, for each of `columns`, the lower median of the rows that are equal in `keys`:
    `NAME_median`.

    Every row needs a value.
    """
    import ibis

    group = ibis.window(group_by=list(keys))
    places: dict[str, Any] = {"middle_place": (ibis._.count().over(group) - 1) // 2}
    for name in columns:
        in_order = ibis.window(group_by=list(keys), order_by=name)
        places[f"{name}_place"] = ibis.row_number().over(in_order)
    placed = table.mutate(**places)
    medians = {}
    for name in columns:
        is_middle = placed[f"{name}_place"] == placed.middle_place
        value = ibis.cases((is_middle, placed[name]))
        medians[f"{name}_median"] = value.max().over(group)
    return placed.mutate(**medians).drop(*places)
