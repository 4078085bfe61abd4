"""Answers questions across ranks by DuckDB, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.across.answers import arrow_schema
from layerscope.recording.database import connected

if TYPE_CHECKING:
    import duckdb
    import ibis
    import pyarrow as pa

# For what it makes of the tables that it is given: the rest lies in files, however many ranks
# there are.
_MOST_MEMORY = "128MB"


class DuckdbEngine:
    """A database in memory, which spills into a folder of its own among the temporary files."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def give(self, name: str, table: pa.Table) -> None:
        """Let `name` be this table."""
        self._connection.register(name, table)

    def answer(self, question: ibis.Table) -> pa.Table:
        """The rows of an expression."""
        import ibis

        sql = ibis.to_sql(question, dialect="duckdb", pretty=False)
        found = self._connection.sql(str(sql)).to_arrow_table()
        # DuckDB's sums have 128 bits.
        return found.cast(arrow_schema(question))

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def start() -> DuckdbEngine:
    """An empty one."""
    connection = connected()
    connection.execute(f"SET memory_limit = '{_MOST_MEMORY}'")
    return DuckdbEngine(connection)
