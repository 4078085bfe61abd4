"""A table as `analyse` hands it on: Arrow columns with type, unit and meaning, ready for every
output.

`analyse.tables` asks for it, `show` prints it. `select` is what `--where`, `--sort` and `--top` do
to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.errors import UsageError, did_you_mean
from layerscope.model.events import Problem
from layerscope.recording.failures import first_line, unreadable

if TYPE_CHECKING:
    import pyarrow as pa

# Units of a column. NS of an instant is the run's clock; a share is a fraction of 1.
NS = "ns"
BYTES = "bytes"
COUNT = "count"
SHARE = "share"
RATIO = "ratio"
GFLOP_PER_S = "GFLOP/s"
GBYTE_PER_S = "GB/s"
# The unit stands in the row itself, in its column `unit`.
BY_ROW = "by row"
BY_ROW_PER_S = "by row per s"

_NUMBERS = ("int64", "int32", "float64")
# A column beside the others that keeps the order of given rows.
_PLACE = "layerscope place"
_SQL_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}


class ResultColumn(Struct, frozen=True):
    """One column. `type` is int64, int32, float64, bool or string; an `instant` is a moment, not a
    duration.

    A `signed` one is a change: people read its plus sign too. `code` has names of functions of
    C++, which people read without what their templates are filled with.
    """

    name: str
    type: str
    unit: str
    meaning: str
    instant: bool = False
    signed: bool = False
    code: bool = False

    @property
    def is_number(self) -> bool:
        """Whether its values can be added."""
        return self.type in _NUMBERS


class Result(Struct, frozen=True, dict=True):
    """A table with what must be said beside it.

    `asked` is a question to DuckDB, `order` how its rows are sorted; `data` is its answer, asked
    for on first use, so that `select` can narrow the question while it is only a question. The
    reader must be open until then. Or `asked` has the rows themselves, in their order.

    `notes` are sentences that qualify the numbers, `empty` is the one that stands in for missing
    rows, `totals` belongs under the columns it names, `origin_ns` is the start of the run on its
    clock, `left_out` counts the rows that `top` cut off.
    """

    name: str
    columns: tuple[ResultColumn, ...]
    asked: Any
    order: str
    notes: tuple[str, ...] = ()
    totals: Mapping[str, int | float | str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    origin_ns: int = 0
    left_out: int = 0
    empty: str = "There is nothing to show."

    @property
    def data(self) -> pa.Table:
        """The documented columns, in order, with the documented types. ReadError: the recording is
        damaged, which may show only now.
        """
        if self._is_known:
            return self.asked
        import duckdb

        try:
            return self._answer
        except duckdb.Error as error:
            raise unreadable("the recording", error) from error

    @cached_property
    def relation(self) -> Any:
        """Its rows as a question to DuckDB."""
        import pyarrow as pa

        if not isinstance(self.asked, pa.Table):
            return self.asked
        import duckdb

        places = pa.array(range(self.asked.num_rows), pa.int64())
        placed = self.asked.append_column(_PLACE, places)
        return duckdb.from_arrow(placed)

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        types = [(column.name, pa.type_for_alias(column.type)) for column in self.columns]
        return pa.schema(types)

    @property
    def _is_known(self) -> bool:
        """Whether the rows are there as they should be: DuckDB takes 60 ms to import."""
        import pyarrow as pa

        return isinstance(self.asked, pa.Table) and bool(self.asked.schema.equals(self._schema))

    @cached_property
    def _answer(self) -> pa.Table:
        schema = self._schema
        in_order = self.relation.order(self.order)
        typed = [f"{quoted(one.name)}::{_SQL_TYPES[one.type]}" for one in self.columns]
        answer = in_order.project(", ".join(typed)).to_arrow_table().rename_columns(schema.names)
        # Arrow's own function for that takes 40 ms to import.
        return answer if answer.schema == schema else answer.cast(schema)

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return int(self.data.num_rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What must be said beside the rows, or instead of them."""
        return self.notes if self.rows else (*self.notes, self.empty)

    def column(self, name: str) -> ResultColumn:
        """The column called `name`; UsageError that lists the columns when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        meant = did_you_mean(name, (column.name for column in self.columns))
        raise UsageError(f"table {self.name} has no column {name!r}.{meant} {self.known_columns()}")

    def known_columns(self) -> str:
        """The columns, as the end of an error message."""
        names = [column.name for column in self.columns]
        return f"Its columns are {', '.join(names)}"


def of_arrow(name: str, columns: tuple[ResultColumn, ...], data: pa.Table, **more: Any) -> Result:
    """The rows of `data`, whose columns are `columns`, in their order: a table that is no question
    any more.
    """
    return Result(name, columns, data, f'"{_PLACE}"', **more)


def of_rows(
    name: str, columns: tuple[ResultColumn, ...], rows: Sequence[Sequence[Any]], **more: Any
) -> Result:
    """A few rows that were asked of no recording, in their order."""
    import pyarrow as pa

    schema = pa.schema([(column.name, pa.type_for_alias(column.type)) for column in columns])
    arrays = [
        pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)
    ]
    return of_arrow(name, columns, pa.table(arrays, schema), **more)


def quoted(name: str) -> str:
    """A column's name as SQL: one like `sum(x)` is no expression."""
    return '"' + name.replace('"', '""') + '"'


def select(
    result: Result, where: str | None = None, sort: str | None = None, top: int | None = None
) -> Result:
    """The rows of `result` that satisfy `where`, in the order of `sort`, at most `top` of them (0:
    all).

    A number sorts largest first and a word from A to Z; `+column` and `-column` say ascending and
    descending. Rows without a value come last, equal ones keep their order.
    """
    import duckdb

    if top is not None and top < 0:
        raise UsageError(f"--top {top} is not a number of rows; 0 shows all of them")
    if sort is not None:
        order = f"{_order(result, sort)}, {result.order}"
        result = replace(result, asked=result.relation, order=order)
    try:
        return _narrowed(result, where, top or 0)
    except duckdb.Error as error:
        if where is None or isinstance(error, (duckdb.IOException, duckdb.OutOfMemoryException)):
            raise unreadable("the recording", error) from error
        reason = first_line(error)
        missing = re.search('column "(.+?)" not found', reason)
        meant = (
            did_you_mean(missing[1], (column.name for column in result.columns)) if missing else ""
        )
        raise UsageError(
            f"--where {where!r} cannot be used: {reason}.{meant} {result.known_columns()}"
        ) from error


def _narrowed(result: Result, where: str | None, top: int) -> Result:
    narrowed = result
    if where is not None:
        narrowed = replace(result, asked=result.relation.filter(where))
    if top:
        rows = narrowed.relation.count("*").fetchall()[0][0]
        relation = narrowed.relation.order(narrowed.order).limit(top)
        narrowed = replace(narrowed, asked=relation, left_out=max(0, rows - top))
    # A `where` may turn out to be wrong only when it meets the data, so the answer is asked for
    # here.
    has_none = not narrowed._is_known and not narrowed._answer.num_rows
    if has_none and where is not None:
        has_rows = bool(result.relation.limit(1).fetchall())
        if has_rows:
            narrowed = replace(narrowed, empty=f"No row satisfies --where {where!r}.")
    return narrowed


def _order(result: Result, sort: str) -> str:
    sign = ""
    if sort.startswith(("+", "-")):
        sign = sort[0]
    column = result.column(sort.removeprefix(sign))
    # Numbers have the greatest first unless the sign says otherwise.
    is_descending = sign == "-"
    if not sign:
        is_descending = column.is_number
    direction = "DESC" if is_descending else "ASC"
    return f'"{column.name}" {direction} NULLS LAST'
