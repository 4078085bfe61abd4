"""The functions that took most CPU time, for recordings in which no operators ran: of the program's
own files; where most of the time is in none of them, all of Python; else those of native code.

Of native code those outside of the C and C++ libraries say most, with what they called: that time
ends in the parts of `scanf` or `malloc` is no news.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from layerscope.analyse.stacks.innermost import C_LIBRARY
from layerscope.analyse.tables import functions, symbols

if TYPE_CHECKING:
    from layerscope.analyse.result import Result
    from layerscope.recording.reader import Reader

MOST = 10
Rows = list[dict[str, Any]]
# The interpreter, and the rows that stand for no function.
_NO_FUNCTION = re.compile(r"/python3[\d.]*$|/libpython3|^outside ")
# Where code starts.
_START = "_start"
# Of all CPU time: when more of it is in no function of Python, those of native code say more.
_OUTSIDE_MOST = 0.5


class FunctionRow(Struct, frozen=True):
    """A function, or what has none. `self_ns`: CPU time in it alone; its share lies between `low`
    and `high`. `total_ns`: with what it called.
    """

    name: str
    self_ns: int
    self_share: float
    low: float
    high: float
    total_ns: int
    total_share: float


class TopFunctions(Struct, frozen=True):
    """The heaviest first; `table` is the one that has them all. `is_total`: by the time with what
    they called, else by that in them alone.
    """

    rows: tuple[FunctionRow, ...]
    table: str
    is_total: bool = False


def top_functions(reader: Reader) -> TopFunctions | None:
    """None where nothing was sampled on a CPU."""
    for build, name in (
        (functions.build_mine, "functions --mine"),
        (functions.build, "functions"),
    ):
        rows = _rows(build(reader))
        if not rows:
            return None
        of_python_share = sum(row["self_share"] for row in rows if row["file"] is not None)
        if of_python_share > _OUTSIDE_MOST:
            return TopFunctions(_heaviest(rows), name)
    every = symbols.build(reader).data.to_pylist()
    own = [row for row in every if _is_own(row)]
    if own:
        own.sort(key=lambda row: (-row["total_ns"], row["name"]))
        return TopFunctions(_heaviest(own), "symbols", is_total=True)
    with_own_time = [row for row in every if row["self_ns"]]
    return TopFunctions(_heaviest(with_own_time), "symbols")


def _rows(result: Result) -> Rows:
    """Those with time of their own."""
    rows = result.data.to_pylist()
    return [row for row in rows if row["self_ns"]]


def _is_own(row: Mapping[str, Any]) -> bool:
    """Whether it is a function of the program, or of a library that it chose."""
    where = row["object"]
    if where is None or not row["total_ns"] or row["name"] == _START:
        return False
    is_of_system = C_LIBRARY.search(where) or _NO_FUNCTION.search(where)
    return not is_of_system


def _heaviest(rows: Rows) -> tuple[FunctionRow, ...]:
    heaviest = rows[:MOST]
    return tuple(map(_row, heaviest))


def _row(row: Mapping[str, Any]) -> FunctionRow:
    return FunctionRow(
        row["name"],
        row["self_ns"],
        row["self_share"],
        row["self_share_low"],
        row["self_share_high"],
        row["total_ns"],
        row["total_share"],
    )
