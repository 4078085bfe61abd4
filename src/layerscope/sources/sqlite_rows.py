"""Tables of a file of SQLite that somebody else wrote, read in pieces. Used by `nsys` and `nvprof`.

Nothing in such a file is trusted: a column may be missing or hold anything, pages may be cut off or
point at each other, and a view is no table. The file is only read, and no file appears beside it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import GPU
from layerscope.sources import text_chunks

MAGIC = b"SQLite format 3\0"
# In the place of a number that is not told.
NONE = np.iinfo(np.int64).min
_PIECE_ROWS = 50_000
_MOST_TABLES = 10_000
_MOST_TEXT = 1 << 24
_MOST_UNPACKED = 1 << 32
# How many instructions SQLite may need: each byte of a file is looked at once or twice.
_STEP = 100_000
_FREE_STEPS, _BYTES_A_STEP = 500, 1_000
_GZIP = b"\x1f\x8b"
# SQLite takes the length of a damaged row for one that no memory has room for.
_DAMAGED = (sqlite3.Error, OverflowError, MemoryError)


class SqliteTables(Struct):
    """The tables of the file `path`, which may be packed with gzip. Use as a context.

    `told`: by table, how many rows of it were given out. `broken`: what SQLite said of each table
    that could not be read to its end.
    """

    path: Path
    told: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)
    _database: sqlite3.Connection | None = None
    _unpacked: Any = None
    _steps_left: int = 0

    def __enter__(self) -> SqliteTables:
        try:
            self._open()
        except (*_DAMAGED, OSError, UnicodeError) as error:
            self._close()
            raise ReadError(
                f"{self.path} is damaged ({_said(error)}): copy it again, or export it again"
            ) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def names(self) -> list[str]:
        """Its tables."""
        return list(self._columns)

    def columns(self, table: str) -> list[str]:
        """The columns of a table, none of one that is missing."""
        return self._columns.get(table, [])

    def rows(self, table: str, numbers: str = "", texts: str = "") -> Iterator[list[Any]]:
        """Pieces of a table: its columns of whole numbers, NONE where it has none, as arrays, then
        its columns of texts as lists, None where there is none. What is damaged is left out.
        """
        wanted = [_number(name, self.columns(table)) for name in numbers.split()]
        count = len(wanted)
        wanted += [_text(name, self.columns(table)) for name in texts.split()]
        for rows in self._pieces(table, wanted):
            columns = list(zip(*rows, strict=True))
            yield [
                *(np.array(column, np.int64) for column in columns[:count]),
                *(list(column) for column in columns[count:]),
            ]

    def blobs(self, table: str, column: str) -> Iterator[list[bytes | None]]:
        """Pieces of a column of bytes."""
        if column not in self.columns(table):
            return
        quoted = _quoted(column)
        for rows in self._pieces(table, [f"CASE typeof({quoted}) WHEN 'blob' THEN {quoted} END"]):
            yield [row[0] for row in rows]

    def mapping(self, table: str, key: str, value: str) -> dict[int, str]:
        """The texts of a table by their numbers."""
        found: dict[int, str] = {}
        for keys, values in self.rows(table, key, value):
            numbers = keys.tolist()
            for number, text in zip(numbers, values, strict=True):
                if text is not None:
                    found[number] = text
        return found

    def count(self, table: str) -> int:
        """How many rows a table has, as far as it can be read."""
        return sum(len(rows) for rows in self._pieces(table, ["1"]))

    def problems(self) -> list[Problem]:
        """What could not be read."""
        found = []
        for table, why in self.broken.items():
            what = (
                f"the table {table} is damaged ({why}): {self.told.get(table, 0):,} rows are read"
            )
            remedy = "copy the file again, or export it again"
            found.append(Problem(GPU, "table_damaged", what, remedy, "its other rows"))
        return found

    def _pieces(self, table: str, wanted: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        if table not in self._columns or self._database is None:
            return
        told = 0
        try:
            found = self._database.execute(f"SELECT {', '.join(wanted)} FROM {_quoted(table)}")
            while rows := found.fetchmany(_PIECE_ROWS):
                told += len(rows)
                yield rows
        except _DAMAGED as error:
            self.broken[table] = _said(error)
        self.told[table] = told

    def _open(self) -> None:
        path = self._plain()
        size = path.stat().st_size
        self._steps_left = _FREE_STEPS + size // _BYTES_A_STEP
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._database.text_factory = _decoded
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_TEXT)
        self._database.set_progress_handler(self._is_too_long, _STEP)
        try:
            self._read_names()
        except _DAMAGED:
            # A file whose end is missing is read as far as it goes only if this is said.
            self._database.execute("PRAGMA writable_schema=ON")
            self._read_names()

    def _read_names(self) -> None:
        assert self._database is not None
        self._database.execute("PRAGMA trusted_schema=OFF")
        found = self._database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND typeof(name) = 'text' AND "
            f"sql NOT LIKE 'CREATE VIRTUAL%' LIMIT {_MOST_TABLES}"
        )
        for (name,) in found.fetchall():
            with suppress(*_DAMAGED):
                told = self._database.execute(f"PRAGMA table_info({_quoted(name)})")
                self._columns[name] = [row[1] for row in told.fetchall()]

    def _is_too_long(self) -> int:
        self._steps_left -= 1
        return int(self._steps_left < 0)

    def _plain(self) -> Path:
        """Where the file lies unpacked."""
        with self.path.open("rb") as file:
            if file.read(2) != _GZIP:
                return self.path
        # It is there until `_close`.
        self._unpacked = tempfile.NamedTemporaryFile(prefix="layerscope-")  # noqa: SIM115
        for piece in text_chunks.raw_parts(self.path):
            self._unpacked.write(piece)
            if self._unpacked.tell() > _MOST_UNPACKED:
                raise ReadError(
                    f"{self.path} unpacks to more than {_MOST_UNPACKED >> 30} GiB: unpack it with "
                    "gunzip, and open what comes out"
                )
        self._unpacked.flush()
        return Path(self._unpacked.name)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._unpacked is not None:
            self._unpacked.close()


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _number(name: str, known: Sequence[str]) -> str:
    if name not in known:
        return str(NONE + 1) + " - 1"
    column = _quoted(name)
    return f"CASE typeof({column}) WHEN 'integer' THEN {column} ELSE {NONE + 1} - 1 END"


def _text(name: str, known: Sequence[str]) -> str:
    if name not in known:
        return "NULL"
    column = _quoted(name)
    return f"CASE typeof({column}) WHEN 'text' THEN {column} END"


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _said(error: Exception) -> str:
    if isinstance(error, sqlite3.OperationalError) and "interrupt" in str(error):
        return "its pages lead in a circle"
    return str(error) or "its lengths cannot be"


def by_value(values: np.ndarray, of: Callable[[int], int]) -> np.ndarray:
    """What `of` says of each value, asked once for those that are alike."""
    distinct, place = np.unique(values, return_inverse=True)
    asked = map(of, distinct.tolist())
    found: np.ndarray = np.fromiter(asked, np.int32, len(distinct))
    place = place.ravel()
    return found[place]


def triples(*columns: np.ndarray) -> list[Any]:
    """Rows of three numbers, None where one is missing."""
    lists = [one.tolist() for one in columns]
    rows = zip(*lists, strict=True)
    return [None if NONE in row else row for row in rows]


def or_none(column: np.ndarray) -> list[Any]:
    """Numbers, None where one is missing."""
    return [None if one == NONE else one for one in column.tolist()]
