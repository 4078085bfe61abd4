"""Print a table of a recording: operators, modules, steps, threads, counters and others.

RUN is a folder made by `layerscope run`, with or without its suffix, a trace of the profiler of
PyTorch or MXNet, a log of the verbose modes of oneDNN and MKL, a perf.data, the text of `perf
script`, folded stacks, or what other tools wrote about memory; left out, it is the newest recording
here. --where takes an expression over the columns, such as "self_share > 0.05 and name like
'aten::%'". --sort puts the largest number first and words from A to Z; --sort=+COLUMN ascends,
--sort=-COLUMN descends. Times in --csv and --json are integer nanoseconds, shares fractions of 1.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from layerscope.cli import _output
from layerscope.model.errors import UsageError
from layerscope.show import screen

# Options of single tables, which say so in their OPTIONS.
_FURTHER = ("under", "step", "engine")
_SUMMARY = "layerscope summary"
_BY = "one row for each WHAT"
# What of a recording a table shows, where that is not its spans.
_SHOWN = {
    "counters": "counters",
    "functions": "samples",
    "lines": "samples",
    "memory": "allocations",
    "peak": "allocations",
    "symbols": "samples",
    "waits": "samples",
    "modules": "modules",
    "primitives": "primitives",
    "steps": "steps",
    "processes": "processes",
    "threads": "tracks",
}

if TYPE_CHECKING:
    from layerscope.analyse.result import Result
    from layerscope.analyse.tables import TableModule
    from layerscope.recording.reader import Reader


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `table`."""
    parser.usage = f"{parser.prog} [RUN] NAME [options]"
    parser.add_argument(
        "words", nargs="*", metavar="[RUN] NAME", help="a recording, and which table of it"
    )
    parser.add_argument("--by", metavar="WHAT", help=_BY)
    parser.add_argument(
        "--mine",
        action="store_true",
        help="functions, lines: of the program's own files alone, with what libraries did for them",
    )
    parser.add_argument(
        "--callers",
        metavar="FUNCTION",
        help="functions, symbols: what called FUNCTION, with the CPU time in it for each",
    )
    parser.add_argument(
        "--callees",
        metavar="FUNCTION",
        help="functions, symbols: what FUNCTION called, with the CPU time in each",
    )
    parser.add_argument(
        "--under", metavar="OPERATOR", help="sequences: those of the calls of OPERATOR alone"
    )
    parser.add_argument(
        "--step",
        metavar="N",
        type=int,
        help="critical: of step N (the longest step that is no warm-up)",
    )
    parser.add_argument(
        "--engine",
        choices=("duckdb", "spark"),
        help="ranks, collectives, stragglers: what compares the ranks (duckdb); spark needs "
        "layerscope[spark] and Java",
    )
    parser.add_argument(
        "--compat",
        metavar="TOOL",
        choices=("hta",),
        help="gpu, kernels, idle, launches, queue, copies: with the numbers of "
        "HolisticTraceAnalysis 0.6.0 (hta), its mistakes included; kernels --by name, queue "
        "--by blocked: its other two",
    )
    _output.add_choice(parser, top="spans: 15, else all; --csv, --json: all")
    _output.add_format(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="do not name the next command")


def explain(parser: argparse.ArgumentParser) -> None:
    """Add what the tables say of themselves."""
    from layerscope.analyse import tables

    listed = "\n".join(f"  {name:<10} {_first_line(tables.load(name))}" for name in tables.names())
    parser.epilog = f"the tables:\n{listed}"
    for action in parser._actions:
        if action.help == _BY:
            action.help = f"{_BY}; {_possible(tables)}"


def run(arguments: argparse.Namespace) -> int:
    """Print the table that `arguments` ask for."""
    from layerscope.ingest.heap import collect_rarely, let_arrow_give_back

    let_arrow_give_back()
    collect_rarely()
    from layerscope.analyse import tables
    from layerscope.analyse.result import select
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    where, name = _run_and_name(arguments.words, tables.names())
    module = tables.load(name)
    path = find_run(where)
    for_machines = _output.is_for_machines(arguments)
    top = arguments.top
    if top is None and not for_machines:
        top = module.TOP
    with Reader(open_run(path)) as reader:
        built = _built(reader, name, arguments)
        result = select(built, arguments.where, arguments.sort, top)
        _output.write(result, arguments, "table", str(path))
        following = _SUMMARY
        if result.rows:
            following = _next_command(module, arguments.by)
        if not _has_rows(reader, following):
            following = _SUMMARY
    if not (arguments.quiet or for_machines):
        screen.tell(f"Next: {_of(where, following)}")
    return 0


def _built(reader: Reader, name: str, arguments: argparse.Namespace) -> Result:
    """The table, or what called or was called by one of its functions, or what another tool has."""
    from layerscope.analyse import tables
    from layerscope.analyse.stacks import callers

    asked = {
        callers.CALLERS: arguments.callers,
        callers.CALLEES: arguments.callees,
        "compat": arguments.compat,
        **{option: getattr(arguments, option) for option in _FURTHER},
        "by": arguments.by,
        "mine": arguments.mine or None,
    }
    given = [option for option, value in asked.items() if value is not None]
    alone = {callers.CALLERS, callers.CALLEES, "compat"}
    if not alone.intersection(given):
        further = {option: getattr(arguments, option) for option in _FURTHER}
        options = {option: value for option, value in further.items() if value is not None}
        return tables.build(reader, name, arguments.by, arguments.mine, options)
    if given == ["compat", "by"] or given == ["compat"]:
        from layerscope.analyse.gpu import compat_hta

        return compat_hta.build(reader, name, arguments.by)
    if len(given) > 1:
        raise UsageError(f"--{given[0]} cannot be combined with --{given[1]}")
    option = given[0]
    return callers.build(reader, name, asked[option], option)


def _run_and_name(words: list[str], known: list[str]) -> tuple[str | None, str]:
    """The recording (None: the newest) and the table, in either order: a table is known by its
    name.
    """
    listed = f"The tables are {', '.join(known)}"
    if not words:
        raise UsageError(f"name a table: layerscope table operators. {listed}")
    if len(words) > 2:
        raise UsageError(
            f"at most a recording and one table, not {len(words)} words: {shlex.join(words)}"
        )
    if len(words) == 1:
        word = words[0]
        if word not in known and _is_recording(word):
            raise UsageError(f"which table of {word}? {listed}")
        return None, word
    first, second = words
    if first in known and second not in known:
        return second, first
    return first, second


def _is_recording(name: str) -> bool:
    from layerscope.recording.run import recordings_called

    return bool(recordings_called(name)) or Path(name).is_file()


def _next_command(module: TableModule, by: str | None) -> str:
    """The next command: not this one again."""
    return (
        module.NEXT
        if not by or not module.NEXT.endswith(f" --by {by}")
        else "layerscope table spans"
    )


def _has_rows(reader: Reader, command: str) -> bool:
    """Whether the recording holds what `command` shows."""
    words = command.split()
    needed = [_SHOWN.get(words[2], "spans")] if words[1] == "table" else []
    needed += ["modules"] if command.endswith("--by module") else []
    return all(map(reader.has, needed))


def _of(run: str | None, command: str) -> str:
    """`command`, about the recording that was named."""
    if run is None:
        return command
    name, verb, *others = command.split(" ")
    return " ".join([name, verb, shlex.quote(run), *others])


def _possible(tables: ModuleType) -> str:
    """What `--by` takes, table by table."""
    lines = []
    for name in tables.names():
        by = tables.load(name).BY
        if by:
            lines.append(f"{name}: {', '.join(by)}")
    return "; ".join(lines)


def _first_line(module: TableModule) -> str:
    """What the table is, from its docstring: `Steps: the iterations` says it after the colon."""
    return (module.__doc__ or "").partition("\n")[0].partition(": ")[2].rstrip(".")
