"""The functions that took most CPU time, for recordings in which no operators ran: of the program's
own files; where most of the time is in none of them, all of Python; else those of native code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.analyse.tables import functions, symbols

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

MOST = 10
# Of all CPU time: when more of it is in no function of Python, those of native code say more.
_OUTSIDE_MOST = 0.5


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function, or what has none. `self_ns`: CPU time in it alone; its share lies between `low`
    and `high`.
    """

    name: str
    self_ns: int
    self_share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TopFunctions:
    """The heaviest first; `table` is the one that has them all."""

    rows: tuple[FunctionRow, ...]
    table: str


def top_functions(reader: Reader) -> TopFunctions | None:
    """None where nothing was sampled on a CPU."""
    tables = (
        (functions.build_mine, "functions --mine"),
        (functions.build, "functions"),
        (symbols.build, "symbols"),
    )
    for build, name in tables:
        rows = [row for row in build(reader).data.to_pylist() if row["self_ns"]]
        if not rows:
            return None
        named = rows if build is symbols.build else [row for row in rows if row["file"] is not None]
        if build is symbols.build or sum(row["self_share"] for row in named) > _OUTSIDE_MOST:
            return TopFunctions(tuple(_row(row) for row in rows[:MOST]), name)
    return None


def _row(row: Mapping[str, Any]) -> FunctionRow:
    return FunctionRow(
        row["name"],
        row["self_ns"],
        row["self_share"],
        row["self_share_low"],
        row["self_share_high"],
    )
