"""Run an SQL query on a recording.

SQL is one SELECT (or WITH, FROM, DESCRIBE, SUMMARIZE) of DuckDB over the tables in docs/tables.md;
`-` reads it from standard input. RUN is a folder made by `layerscope run`, with or without its
suffix; left out, it is the newest one here. Without SQL the tables are listed with their columns.

A query can read this recording only: no other file, no network, no extension. Numbers whose names
end in _ns, _bytes or _share are printed with their unit; --csv and --json print integer
nanoseconds.

    layerscope query "SELECT name, sum(self_ns) AS self_ns FROM spans WHERE layer = 'operators'
                      GROUP BY name ORDER BY 2 DESC"
    layerscope query - train < question.sql
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli import _output
from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.sql_query import QueryResult
    from layerscope.recording.reader import Reader

# Rows that are printed without --top: a screen.
_TOP = 40
# Of the memory that is left here; the rest is for the answer on its way out, and for everybody
# else.
_MEMORY_SHARE = 0.5
_LEAST_BYTES = 200_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `query`."""
    parser.usage = f"{parser.prog} [SQL] [RUN] [options]"
    parser.add_argument(
        "words", nargs="*", metavar="[SQL] [RUN]", help="the question, and a recording"
    )
    parser.add_argument(
        "--tables", action="store_true", help="list the tables with their columns and rows"
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        help=f"only the first N rows, 0: all ({_TOP}; --csv, --json: all)",
    )
    _output.add_format(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="do not name the next command")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer to the question in `arguments`."""
    from layerscope.analyse import sql_query
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    sql, where = _question_and_run(arguments)
    for_machines = _output.is_for_machines(arguments)
    top = (0 if for_machines else _TOP) if arguments.top is None else arguments.top
    if top < 0:
        raise UsageError(f"--top {top} is not a number of rows; 0 shows all of them")
    path = find_run(where)
    with Reader(open_run(path)) as reader:
        if sql is None:
            _output.write(sql_query.tables(reader), arguments, "query", str(path))
        elif for_machines:
            _stream(sql_query.ask(reader, sql, _memory_bytes(), top), reader, arguments, str(path))
        else:
            _output.write(
                sql_query.shown(reader, sql, _memory_bytes(), top), arguments, "query", str(path)
            )
    if sql is None and not (arguments.quiet or for_machines):
        screen.tell('Next: layerscope query "SELECT * FROM steps"')
    return 0


def _stream(answer: QueryResult, reader: Reader, arguments: argparse.Namespace, run: str) -> None:
    """Print an answer of any length while it is made."""
    from layerscope.analyse.losses import problems
    from layerscope.show import csv_output, json_output

    found = problems(reader)
    if arguments.json:
        sys.stdout.flush()
        json_output.write_pieces(
            answer.columns, answer.pieces, sys.stdout.buffer, "query", run, found
        )
    else:
        csv_output.write_pieces(answer.columns, answer.pieces, sys.stdout)
        _output.say_problems(found, arguments)


def _question_and_run(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """The question (None: list the tables) and the recording (None: the newest), in either
    order.
    """
    from layerscope.recording.run import recordings_called

    words = arguments.words
    if len(words) > 2:
        raise UsageError(
            f"a question and a recording, not {len(words)} words: put the question into quotes"
        )
    names = [
        word
        for word in words
        if _may_be_name(word) and (recordings_called(word) or _is_trace(word))
    ]
    if arguments.tables:
        if len(words) > 1:
            raise UsageError("--tables takes a recording and no question")
        return None, words[0] if words else None
    if len(words) == 1 and names:
        return None, words[0]
    if not words:
        return None, None
    sql, where = words[0], words[1] if len(words) == 2 else None
    if where is not None and (names == [sql] or (not names and Path(sql).is_dir())):
        sql, where = where, sql
    return _readable(sql), where


def _is_trace(word: str) -> bool:
    """Whether it names a file of another program or, as a path, a folder with such files."""
    path = Path(word)
    if path.is_file():
        return True
    return "/" in word and path.is_dir()


def _readable(word: str) -> str:
    """The question itself; `-` stands for standard input."""
    try:
        sql = word if word != "-" else sys.stdin.read() if sys.stdin else ""
        sql.encode()
    except UnicodeError as error:
        raise UsageError("the question is not UTF-8") from error
    return sql


def _may_be_name(word: str) -> bool:
    """A question may be longer than any name of a file."""
    longest = 255 - len(".layerscope.zip")
    if "\0" in word:
        return False
    name = word.encode(errors="surrogateescape")
    return len(name) <= longest


def _memory_bytes() -> int:
    from layerscope.host import memory

    return max(_LEAST_BYTES, int(_MEMORY_SHARE * memory.available_bytes()))
