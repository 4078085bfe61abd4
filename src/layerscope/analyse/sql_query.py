"""A question in SQL over the tables of a recording, and its answer in pieces.

One statement that only reads. Its answer has the types of every other table: int64, int32, float64,
bool and string; what has another one becomes text. A number whose name ends in `_ns`, `_bytes` or
`_share` has that unit.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from msgspec import Struct

from layerscope.analyse.losses import problems
from layerscope.analyse.result import (
    BYTES,
    COUNT,
    NS,
    SHARE,
    Result,
    ResultColumn,
    of_arrow,
    of_rows,
)
from layerscope.model.errors import UsageError
from layerscope.model.schema import TABLES
from layerscope.recording.failures import first_line, unreadable

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Rows of a piece: Python objects of a whole answer would not fit into memory.
PIECE_ROWS = 1 << 14
_UNITS = {"_ns": NS, "_bytes": BYTES, "_share": SHARE}
# Columns of the tables that are moments on the run's clock.
_INSTANTS = ("start_ns", "end_ns", "at_ns", "run_ns")
# What comes before the question has begun is not noticed.
_INTERRUPT_AGAIN_S = 0.1
T = TypeVar("T")

TABLE_COLUMNS = (
    ResultColumn("table", "string", "", "name of the table"),
    ResultColumn("rows", "int64", COUNT, "rows in this recording"),
    ResultColumn("columns", "string", "", "names of its columns"),
)


class QueryResult(Struct):
    """The columns of an answer, and its rows in pieces of these types."""

    columns: tuple[ResultColumn, ...]
    pieces: Iterator[pa.Table]


def tables(reader: Reader) -> Result:
    """What can be asked: every table with its rows and columns."""
    connection = reader.connection()
    rows = [
        (
            name,
            connection.table(name).count("*").fetchall()[0][0],
            ", ".join(c.name for c in table.columns),
        )
        for name, table in TABLES.items()
    ]
    return of_rows("tables", TABLE_COLUMNS, rows)


def ask(reader: Reader, sql: str, memory_bytes: int, most: int = 0) -> QueryResult:
    """The answer to `sql`, its first `most` rows (0: all). UsageError in words when it cannot be
    asked.

    The question sees this recording and nothing else, and gets `memory_bytes`. The answer is made
    while its pieces are taken.
    """
    connection = reader.connection()
    _check(connection, sql)
    reader.confine(memory_bytes)
    with _in_words(reader, sql):
        relation = connection.sql(sql)
        wanted = relation.limit(most) if most else relation
        batches = _interruptible(connection, lambda: wanted.to_arrow_reader(PIECE_ROWS))
    columns = tuple(_column(field) for field in batches.schema)
    return QueryResult(columns, _pieces(reader, sql, batches, columns))


def shown(reader: Reader, sql: str, memory_bytes: int, most: int) -> Result:
    """The first `most` rows (0: all) as a table to look at, with the number of those left out."""
    answer = ask(reader, sql, memory_bytes, most)
    names = _distinct([column.name for column in answer.columns])
    pieces = [piece.rename_columns(names) for piece in answer.pieces]
    connection = reader.connection()
    rows = sum(piece.num_rows for piece in pieces)
    left_out = 0
    if most and rows == most:
        with _in_words(reader, sql):
            whole = connection.sql(sql).count("*")
            left_out = _interruptible(connection, lambda: whole.fetchall()[0][0]) - rows
    columns = tuple(
        ResultColumn(name, column.type, column.unit, column.meaning, column.instant)
        for name, column in zip(names, answer.columns, strict=True)
    )
    schema = pa.schema([(column.name, pa.type_for_alias(column.type)) for column in columns])
    return of_arrow(
        "query",
        columns,
        pa.concat_tables([schema.empty_table(), *pieces]),
        origin_ns=reader.run.info.start_ns,
        left_out=left_out,
        empty="The answer has no rows.",
        problems=problems(reader),
    )


def _check(connection: Any, sql: str) -> None:
    """UsageError unless `sql` is one statement that reads."""
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"the question is not SQL: {first_line(error)}. {_known(sql)}") from error
    if not statements:
        raise UsageError(f"the question is empty. {_known(sql)}")
    if len(statements) > 1:
        raise UsageError(
            f"one statement at a time, not {len(statements)}: WITH puts several questions into one"
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        name = str(statements[0].type).rpartition(".")[2].replace("_", " ")
        only = "a question only reads: it is a SELECT, WITH, FROM, DESCRIBE or SUMMARIZE"
        raise UsageError(f"{only}, and this is a statement of kind {name}")


@contextlib.contextmanager
def _in_words(reader: Reader, sql: str) -> Iterator[None]:
    """DuckDB's errors as ours: of the question, of the memory, of the recording."""
    import duckdb

    try:
        yield
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise unreadable(reader.run.path, error) from error
    except duckdb.PermissionException as error:
        raise UsageError(
            f"a question reads the tables of the recording and no file: {first_line(error)}"
        ) from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise UsageError(
            f"the question cannot be answered: {_reason(error)}. {_known(sql)}"
        ) from error


def _interruptible(connection: Any, work: Callable[[], T]) -> T:
    """What `work` gives. DuckDB itself does not always hear Ctrl-C."""
    with ThreadPoolExecutor(1) as worker:
        answer = worker.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            while not answer.done():
                connection.interrupt()
                wait([answer], _INTERRUPT_AGAIN_S)
            raise


def _reason(error: Exception) -> str:
    """What is wrong, with DuckDB's proposal for a name."""
    meant = re.search(r"^(Did you mean|Candidate bindings:) (.+?)\??!?$", str(error), re.MULTILINE)
    # Names of tables that DuckDB has for itself help nobody.
    if meant is None or (meant[1] == "Did you mean" and meant[2].strip('"') not in TABLES):
        return first_line(error)
    return f"{first_line(error)} (did you mean {meant[2]}?)"


def _known(sql: str) -> str:
    """The columns of the tables that `sql` names, else the tables: the end of a sentence."""
    words = set(re.findall(r"\w+", sql.lower()))
    lists = []
    for name, table in TABLES.items():
        if name in words:
            columns = ", ".join(column.name for column in table.columns)
            lists.append(f"{name} has {columns}")
    if lists:
        columns_of_tables = "; ".join(lists)
        return f"Table {columns_of_tables}"
    tables = ", ".join(TABLES)
    return f"The tables are {tables}"


def _pieces(
    reader: Reader, sql: str, batches: Any, columns: tuple[ResultColumn, ...]
) -> Iterator[pa.Table]:
    names = [column.name for column in columns]
    with _in_words(reader, sql):
        while (
            batch := _interruptible(reader.connection(), lambda: next(batches, None))
        ) is not None:
            made = [_converted(batch.column(place), column) for place, column in enumerate(columns)]
            yield pa.Table.from_arrays(made, names)


def _column(field: pa.Field) -> ResultColumn:
    """The type and unit of a column of an answer."""
    kind = _type(field.type)
    unit = (
        next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
        if kind in _NUMBERS
        else ""
    )
    return ResultColumn(
        field.name, kind, unit, "", instant=kind == "int64" and field.name in _INSTANTS
    )


_NUMBERS = ("int64", "int32", "float64")


def _type(kind: pa.DataType) -> str:
    if kinds.is_boolean(kind):
        return "bool"
    if kinds.is_integer(kind):
        return "int32" if kind.bit_width < 32 or kind == pa.int32() else "int64"
    if kinds.is_decimal(kind):
        return (
            "float64" if kind.scale else "int64"
        )  # a sum of int64 is a decimal without digits behind the point
    return "float64" if kinds.is_floating(kind) else "string"


def _converted(data: pa.Array, column: ResultColumn) -> pa.Array:
    wanted = pa.type_for_alias(column.type)
    if data.type == wanted:
        return data
    if column.type != "string":
        try:
            return data.cast(wanted)
        except pa.ArrowInvalid as error:
            raise UsageError(
                f'column "{column.name}" holds a number beyond 64 bits: divide it, or take its '
                "::DOUBLE"
            ) from error
    if kinds.is_dictionary(data.type):
        data = data.dictionary_decode()
    for is_kind, text in _TEXTS:
        if is_kind(data.type):
            return text(data)
    return data.cast(wanted)


def _json(data: pa.Array) -> pa.Array:
    """Lists, structures and maps as JSON."""
    texts: list[str | None] = []
    for value in data.to_pylist():
        text = None
        if value is not None:
            encoded = msgspec.json.encode(value)
            text = encoded.decode()
        texts.append(text)
    return pa.array(texts, pa.string())


def _hex(data: pa.Array) -> pa.Array:
    return pa.array(
        (None if value is None else value.hex() for value in data.to_pylist()), pa.string()
    )


def _interval(data: pa.Array) -> pa.Array:
    texts: list[str | None] = []
    for value in data.to_pylist():
        text = None
        if value is not None:
            text = f"{value.months} months {value.days} days {value.nanoseconds} ns"
        texts.append(text)
    return pa.array(texts, pa.string())


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (kinds.is_nested, _json),
    (kinds.is_binary, _hex),
    (kinds.is_large_binary, _hex),
    (kinds.is_interval, _interval),
    (
        kinds.is_timestamp,
        lambda data: pc.strftime(data.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S"),
    ),
)


def _distinct(names: list[str]) -> list[str]:
    """`names` with a number behind those that came before: DuckDB lets two columns have one."""
    found: dict[str, None] = {}
    for name in names:
        number, free = 2, name
        while free.lower() in (known.lower() for known in found):
            free, number = f"{name} {number}", number + 1
        found[free] = None
    return list(found)
