"""What a screen of `layerscope top` shows: everything but its size."""

from __future__ import annotations

from msgspec import Struct

from layerscope.analyse.live import tables
from layerscope.analyse.live.program import Facts, LiveProgram
from layerscope.analyse.live.tables import Rows
from layerscope.analyse.result import ResultColumn
from layerscope.model.live import FUNCTIONS, OPERATORS, PRIMITIVES, SYMBOLS, THREADS, WAITS

_EMPTY = {
    FUNCTIONS: "No stacks yet. They come a moment after the program's start; a recording made with "
    "--without stacks has none: press o for operators.",
    SYMBOLS: "No stacks yet. They come a moment after the program's start; a recording made with "
    "--without stacks has none: press o for operators.",
    THREADS: "No stacks yet, by which threads are known.",
    WAITS: "No waits yet. A recording made with --without stacks has none.",
    OPERATORS: "No operators yet. They come when the program calls a framework that layerscope "
    "records, or marks ranges.",
    PRIMITIVES: "No primitives yet: the program has asked nothing of oneDNN or MKL that layerscope "
    "could see.",
}


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


class Watching(Struct, frozen=True):
    """What a `LiveView` says of the program beside what was read of it."""

    title: str
    pid: int
    cpus: float | None
    running_ns: int
    since: str


def seen(program: LiveProgram, about: Watching, table: str, top: int, note: str = "") -> LiveView:
    """The program as it is now; `top`: so many rows at most, 0: all."""
    facts = program.facts()
    found = tables.rows(program, table, top)
    return LiveView(
        title=about.title,
        pid=about.pid,
        cpus=about.cpus,
        running_ns=about.running_ns,
        since=about.since,
        since_ns=max(facts.until_ns - program.since_ns, 0),
        facts=facts,
        table=table,
        columns=tables.columns(table),
        rows=found,
        note=note,
        empty="" if found else _EMPTY[table],
    )


def first_table(program: LiveProgram) -> str:
    """The one to begin with: operators where there are no stacks, and symbols where there is no
    Python on them.
    """
    if not program.known.has_samples:
        return OPERATORS if program.known.labels[OPERATORS] else FUNCTIONS
    has_python = any(file for _, file in program.known.labels[FUNCTIONS])
    has_native = any(library for _, library in program.known.labels[SYMBOLS])
    return SYMBOLS if has_native and not has_python else FUNCTIONS
