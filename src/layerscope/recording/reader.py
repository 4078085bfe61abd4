"""Questions to a recording: DuckDB over its Parquet, every documented table a view of that name.

A table that nothing recorded is an empty view with the right columns, so every question has an
answer. Of several ranks a view is made of the files of each, with keys that are unique over all
(`rank_keys`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from layerscope.model.errors import ReadError
from layerscope.model.schema import TABLES
from layerscope.model.table import Table
from layerscope.recording.arrow_columns import numbers_of, texts_of
from layerscope.recording.complete import TablesState, check_files
from layerscope.recording.database import THREADS, close, connected
from layerscope.recording.failures import first_line, unreadable
from layerscope.recording.rank_histograms import histograms_of_spans
from layerscope.recording.rank_keys import SHARED_TABLES, RankKeys
from layerscope.recording.run import Run
from layerscope.recording.writer import arrow_schema


class Reader:
    """Reads one recording. Use it as a context manager, or call `close`.

    `since_ns`, `until_ns`: what is seen of it begins and ends then.
    """

    since_ns = -(2**63)
    until_ns = 2**63 - 1

    def __init__(self, run: Run, connection: Any = None, threads: int = THREADS) -> None:
        """`connection`: one that others use before and after, from `connected`. `threads`: of the
        database. Many small questions take half the CPU time on one.
        """
        self.run = run
        self._threads = threads
        self._connection: Any = connection
        self._is_shared = connection is not None
        self._views: set[str] = set()
        self._is_confined = False

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database connection. A question that another thread waits for ends."""
        if self._connection is not None and not self._is_shared:
            close(self._connection)
        self._connection = None
        self._views.clear()

    def interrupt(self) -> None:
        """Have a question that another thread is waiting for end with a ReadError."""
        if self._connection is not None:
            self._connection.interrupt()

    def let_go(self) -> None:
        """Give memory back that reading has taken and that is kept for the next time."""
        pa.default_memory_pool().release_unused()

    def has(self, table: str) -> bool:
        """Whether the recording holds at least one row of `table`."""
        return self.rows(table) > 0

    def rows(self, table: str) -> int:
        """How many rows of `table` the recording holds."""
        with reading(self.run):
            return _rows(table_files(self.run, table))

    def query(self, sql: str, parameters: list[Any] | None = None) -> pa.Table:
        """The answer to `sql` as an Arrow table."""
        import duckdb

        connection = self.connection(sql)
        try:
            table: pa.Table = connection.sql(sql, params=parameters or None).to_arrow_table()
        except duckdb.Error as error:
            raise unreadable(self.run.path, error) from error
        return table

    def execute(self, sql: str) -> None:
        """Have the database do something for later questions."""
        import duckdb

        try:
            self.connection(sql).execute(sql)
        except duckdb.Error as error:
            raise unreadable(self.run.path, error) from error

    def arrays(self, table: str, columns: list[str]) -> dict[str, np.ndarray]:
        """Whole columns as NumPy arrays, read without the database. Nulls of an integer become -1.

        Name columns come as int32 codes in `NAME` with their strings in `NAME.names`.
        """
        schema = arrow_schema(TABLES[table])
        with reading(self.run):
            parts = [
                in_recording(TABLES[table], pq.ParquetFile(file).read(columns), of.keys)
                for of in parts_of(self.run, table)
                for file in of.files
            ]
            data = (
                pa.concat_tables(parts, promote_options="default")
                if parts
                else schema.empty_table().select(columns)
            )
            return {
                key: value
                for name in columns
                for key, value in _as_numpy(name, data[name], TABLES[table]).items()
            }

    def files(self, table: str) -> list[Path]:
        """The files of `table`: of each rank in the order of time."""
        return table_files(self.run, table)

    def files_of_ranks(self, table: str) -> list[list[Path]]:
        """The files of `table` of each rank (of one recording: all) in the order of time; what was
        still open at the end of the run is in the last one of each.
        """
        return [of.files for of in parts_of(self.run, table) if of.files]

    def pieces(
        self,
        table: str,
        columns: list[str],
        newest_first: bool = False,
        files: Iterable[Path] | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """The columns as `arrays` gives them, row group by row group: memory does not grow with the
        run.

        `files`: some of those of the table, in the order of time. Codes of a name column mean the
        same in every piece; `NAME.names` holds the names met so far.
        """
        schema = TABLES[table]
        known: dict[str, dict[str, int]] = {}
        for column in columns:
            if schema.column(column).type == "name":
                known[column] = {}
        keys_of = {file: of.keys for of in parts_of(self.run, table) for file in of.files}
        if files is None:
            files = list(keys_of)
            if newest_first:
                files.reverse()
        for file in files:
            with reading(self.run):
                parquet = pq.ParquetFile(file)
            groups = list(range(parquet.num_row_groups))
            if newest_first:
                groups.reverse()
            for group in groups:
                with reading(self.run):
                    piece = _row_group(parquet, group, columns, schema, keys_of.get(file))
                for name, codes in known.items():
                    own = []
                    for text in piece[f"{name}.names"].tolist():
                        code = codes.setdefault(text, len(codes))
                        own.append(code)
                    if own != list(range(len(own))):
                        # The last place is for null, whose code is -1.
                        piece[name] = np.array([*own, -1], np.int32).take(piece[name])
                    piece[f"{name}.names"] = np.array(list(codes), object)
                yield piece

    def connection(self, sql: str | None = None) -> Any:
        """The DuckDB connection, with a view for every table of the schema; for `sql` alone with
        those that it names.
        """
        return self._with_views(TABLES.keys() if sql is None else _tables_in(sql))

    def _with_views(self, tables: Collection[str]) -> Any:
        """The connection, with a view for each of these tables: of many ranks a view takes a
        while.
        """
        import duckdb

        if self._connection is None:
            self._connection = connected(self._threads)
        try:
            for name in tables:
                if name not in self._views:
                    self._connection.execute(_view(self.run, TABLES[name]))
                    self._views.add(name)
        except duckdb.Error as error:
            self.close()
            raise unreadable(self.run.path, error) from error
        return self._connection

    def confine(self, memory_bytes: int) -> None:
        """From now on questions read this recording and nothing else, in `memory_bytes` (then on
        disk); for good.

        A question of the user's may come from somebody else.
        """
        if self._is_confined:
            return
        self._is_confined = True
        files = [file for table in TABLES for file in table_files(self.run, table)]
        # A view names the pattern that matches its file alone, so both are looked for.
        allowed = ", ".join(_quoted(form) for file in files for form in {str(file), _pattern(file)})
        for setting in (
            f"memory_limit = '{memory_bytes}B'",
            f"allowed_paths = [{allowed}]",
            "python_enable_replacements = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self.connection().execute(f"SET {setting}")


def _tables_in(sql: str) -> list[str]:
    """The tables that a question names, and perhaps others."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [name for name in TABLES if name in words]


@contextlib.contextmanager
def reading(run: Run) -> Iterator[None]:
    """Around what reads the files of a table: damage that only shows now becomes a ReadError."""
    try:
        yield
    except _DAMAGE as error:
        raise unreadable(run.path, error) from error


class TablePart(Struct, frozen=True):
    """The files of one table in one folder; `keys`: of several ranks how those of this one are
    read.
    """

    folder: Path
    files: list[Path]
    keys: RankKeys | None = None


def parts_of(run: Run, table: str) -> list[TablePart]:
    """The files of `table`: of several ranks those of each."""
    is_shared = table in SHARED_TABLES
    if is_shared or not run.joined:
        folder = run.tables_path
        files = _files(folder / table)
        return [TablePart(folder, files)]
    parts = []
    for keys, folder in run.joined:
        if not keys.is_dropped(table):
            files = _files(folder / table)
            part = TablePart(folder, files, keys)
            parts.append(part)
    return parts


def table_files(run: Run, table: str) -> list[Path]:
    """The Parquet files of `table`: the finished one, or its parts; of several ranks those of
    all.
    """
    return [file for part in parts_of(run, table) for file in part.files]


def in_recording(table: Table, data: pa.Table, keys: RankKeys | None) -> pa.Table:
    """What was read from a file of `table`, with the keys and times of the recording."""
    if keys is None:
        return data
    return keys.columns(table, data)


def all_files(folder: Path) -> list[Path]:
    """The Parquet files of every table in `folder`."""
    found = []
    for table in TABLES:
        found += _files(folder / table)
    return found


def _files(folder: Path) -> list[Path]:
    finished = folder / "all.parquet"
    if finished.exists():
        return [finished]
    parts = folder.glob("part-*.parquet")
    return sorted(parts)


def check_tables(run: Run, state: TablesState | None = None) -> None:
    """Raise ReadError when a file of the tables is lost, cut, damaged, or has other columns than
    the schema.

    `state`: what `tables.json` says of the files.
    """
    if state is not None:
        check_files(run.tables_path, state, all_files(run.tables_path))
    for table in TABLES.values():
        for file in table_files(run, table.name):
            _check_columns(table, file)


def _check_columns(table: Table, file: Path) -> None:
    try:
        found = pq.read_schema(file)
        # Names of columns are decoded only when they are asked for.
        types = {field.name: field.type for field in found}
    except _DAMAGE as error:
        raise ReadError(f"{file} is damaged: {first_line(error)}") from error
    for field in arrow_schema(table):
        if field.name not in types:
            raise ReadError(f"{file} has no column {field.name}")
        if types[field.name] != field.type:
            raise ReadError(
                f"{file} has a column {field.name} of type {types[field.name]} instead of "
                f"{field.type}"
            )


# What pyarrow raises for a file that is not as it was written.
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError)
_SQL_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "name": "VARCHAR",
}
_GLOB = re.compile(r"([*?\[])")


def _view(run: Run, table: Table) -> str:
    parts = [part for part in parts_of(run, table.name) if part.files]
    selects = [_select(table, part) for part in parts]
    if table.name == "histograms":
        selects += _not_thinned(run, parts)
    if not selects:
        columns = ", ".join(
            f"NULL::{_SQL_TYPES[column.type]} AS {column.name}" for column in table.columns
        )
        selects = [f"SELECT {columns} WHERE false"]
    return f'CREATE OR REPLACE VIEW "{table.name}" AS {" UNION ALL ".join(selects)}'


def _not_thinned(run: Run, histograms: list[TablePart]) -> list[str]:
    """The histograms of the ranks that have none, if others have some."""
    thinned = set()
    with reading(run):
        for part in histograms:
            if _rows(part.files):
                thinned.add(part.folder)
    if not thinned:
        return []
    selects = []
    for keys, folder in run.joined:
        files = _files(folder / "spans")
        if folder in thinned or not files:
            continue
        spans = _scan(files)
        tracks = _scan(_files(folder / "tracks"))
        totals = _scan(_files(folder / "totals"))
        selects.append(histograms_of_spans(keys, spans, tracks, totals))
    return selects


def _rows(files: list[Path]) -> int:
    count = 0
    for file in files:
        metadata = pq.read_metadata(file)
        count += metadata.num_rows
    return count


def _select(table: Table, part: TablePart) -> str:
    selected = []
    keys = part.keys
    for column in table.columns:
        expression = f'"{column.name}"'
        if keys is not None:
            expression = keys.expression(table, column)
        selected.append(f'({expression})::{_SQL_TYPES[column.type]} AS "{column.name}"')
    columns = ", ".join(selected)
    return f"SELECT {columns} FROM {_scan(part.files)}"


def _scan(files: list[Path]) -> str:
    """The SQL that reads these files."""
    # DuckDB takes a folder called step=100 for the value of a column.
    listed = ", ".join(_quoted(_pattern(file)) for file in files)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def _pattern(file: Path) -> str:
    """What DuckDB, which takes a path for a pattern, must be told to read `file`."""
    return _GLOB.sub(r"[\1]", str(file))


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _as_numpy(name: str, data: pa.ChunkedArray, table: Table) -> dict[str, np.ndarray]:
    kind = table.column(name).type
    if kind == "name":
        wanted = arrow_schema(table).field(name).type
        if data.type != wanted:
            data = data.cast(wanted)
        places, texts = texts_of(data)
        return {name: places, f"{name}.names": texts}
    if kind in ("int64", "int32"):
        return {name: numbers_of(data)}
    return {name: data.to_numpy()}


_CONSTANTS = {"int64": np.int64, "int32": np.int32, "name": np.int32, "bool": np.bool_}


def _row_group(
    parquet: pq.ParquetFile, group: int, columns: list[str], table: Table, keys: RankKeys | None
) -> dict[str, np.ndarray]:
    """The columns of a row group. One that is the same everywhere takes no memory, and is not read
    if that is known.
    """
    count = parquet.metadata.row_group(group).num_rows
    types = {name: table.column(name).type for name in columns}
    known = _constants(parquet.metadata.row_group(group), types)
    if keys is not None:
        known = {name: keys.value(table, name, value) for name, value in known.items()}
    data = parquet.read_row_group(group, [name for name in columns if name not in known])
    data = in_recording(table, data, keys)
    known |= {
        name: -1
        for name in data.column_names
        if types[name] in _CONSTANTS and data[name].null_count == count
    }
    known |= {
        name: 0
        for name in data.column_names
        if types[name] == "bool" and not data[name].to_numpy().any()
    }
    found: dict[str, np.ndarray] = {}
    for name, kind in types.items():
        if name not in known:
            found |= _as_numpy(name, data[name], table)
            continue
        found[name] = np.broadcast_to(np.array(known[name], _CONSTANTS[kind]), count)
        if kind == "name":
            found[f"{name}.names"] = np.zeros(0, object)
    return found


def _constants(about: Any, types: dict[str, str]) -> dict[str, int]:
    """The integer and name columns of which the statistics of a row group say that they hold one
    value. Null is -1.
    """
    found = {}
    for place in range(about.num_columns):
        column = about.column(place)
        name = column.path_in_schema
        statistics = column.statistics
        kind = types.get(name)
        if kind not in _CONSTANTS or statistics is None:
            continue
        is_known = statistics.null_count == 0
        if statistics.null_count == column.num_values and kind != "bool":
            found[name] = -1
        elif kind != "name" and is_known and _single(statistics):
            found[name] = statistics.min
    return found


def _single(statistics: Any) -> bool:
    if not statistics.has_min_max:
        return False
    is_single = statistics.min == statistics.max
    return bool(is_single)


def warm_up() -> None:
    """Load what the first question would have to wait for."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.sql("SELECT json_extract_string('{}', '$.a')").to_arrow_table()
