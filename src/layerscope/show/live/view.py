"""What a screen of `layerscope top` shows: everything but its size."""

from __future__ import annotations

from msgspec import Struct

from layerscope.analyse.live.program import Facts
from layerscope.analyse.live.tables import Rows
from layerscope.analyse.result import ResultColumn


class LiveView(Struct, frozen=True):
    """One moment of a program.

    `title`: its command; `pid` 0: not known. `cpus`: how many it may use, None: not known.
    `running_ns`: since it began. `since`: since when, in words, the sums of `rows` are, which is
    `since_ns` ago. `note`: what else there is to say, such as that it has ended. `empty`: why there
    are no rows.
    """

    title: str
    pid: int
    cpus: float | None
    running_ns: int
    since: str
    since_ns: int
    facts: Facts
    table: str
    columns: tuple[ResultColumn, ...]
    rows: Rows
    note: str = ""
    empty: str = ""
