"""What a table of a recording is: columns with types and meanings."""

from __future__ import annotations

from msgspec import Struct


class Column(Struct, frozen=True):
    """One column. `type` is int64, int32, float64, bool, string or name (a dictionary string).

    `key`: of what its values are keys, such as span or track. `instant`: they are times on the
    clock of the run.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    nullable: bool = False
    key: str = ""
    instant: bool = False


class Table(Struct, frozen=True):
    """One table: a folder of Parquet parts named after it."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
