"""The tables of `layerscope table`: one file each, found by this folder.

A table is a module with a docstring that defines its columns and

    BY       the values `--by` accepts
    REFUSED  values of `--by` that make sense but have no data yet, with the reason
    COLUMNS  its columns, in order
    TOP      how many rows are printed unless `--top` says otherwise (0: all)
    EMPTY    the sentence that stands in for an empty table; EMPTY_OF_OTHERS, if it has one: of the
             file of another program
    NEXT     the next useful command
    build    (reader, by=None) -> Result

and, where there are further options of `layerscope table` for it,

    OPTIONS  their names: `build` takes each by its name
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace

from layerscope.analyse.losses import problems
from layerscope.model.errors import UsageError, did_you_mean
from layerscope.model.schema import TABLES
from layerscope.recording.failures import unreadable

if TYPE_CHECKING:
    from layerscope.analyse.result import Result, ResultColumn
    from layerscope.recording.reader import Reader


class TableModule(Protocol):
    """What a file of this folder provides."""

    BY: tuple[str, ...]
    REFUSED: dict[str, str]
    COLUMNS: tuple[ResultColumn, ...]
    TOP: int
    EMPTY: str
    NEXT: str

    def build(self, reader: Reader, by: str | None = None) -> Result:
        """The table of `reader`'s recording, one row for each value of `by`."""


@cache
def names() -> list[str]:
    """The names of the tables."""
    return sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )


def load(name: str) -> TableModule:
    """The module of the table `name`; UsageError that lists the tables when there is none."""
    if name not in names() and name in TABLES:
        raise UsageError(
            f"`layerscope table` does not have {name}, which is for queries: "
            f'layerscope query "from {name}"'
        )
    if name not in names():
        raise UsageError(
            f"there is no table {name!r}.{did_you_mean(name, names())} The tables are "
            f"{', '.join(names())}"
        )
    return cast(TableModule, importlib.import_module(f"{__name__}.{name}"))


def build(
    reader: Reader,
    name: str,
    by: str | None = None,
    is_mine: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Result:
    """The table `name`, with what the recording lacks beside it. `is_mine`: of the program's own
    files alone. `options`: further ones, of those of the table.
    """
    import duckdb

    module = load(name)
    if by is not None and by not in module.BY:
        raise UsageError(_refusal(name, module, by))
    build_it = getattr(module, "build_mine", None) if is_mine else module.build
    if build_it is None:
        raise UsageError(f"{name} has no --mine: it is for the tables functions and lines")
    given = options or {}
    _check_options(name, given)
    try:
        result = build_it(reader, by, **given)
    except duckdb.Error as error:
        raise unreadable(reader.run.path, error) from error
    info = reader.run.info
    empty = module.EMPTY
    if info.imported_from:
        empty = getattr(module, "EMPTY_OF_OTHERS", empty)
    return replace(result, empty=empty, problems=problems(reader), origin_ns=info.start_ns)


def _check_options(name: str, given: Mapping[str, Any]) -> None:
    """UsageError for an option that is for other tables."""
    for option in given:
        takers = [one for one in names() if option in getattr(load(one), "OPTIONS", ())]
        if name not in takers:
            raise UsageError(f"{name} has no --{option}: it is for {', '.join(takers)}")


def _refusal(name: str, module: TableModule, by: str) -> str:
    possible = (
        f"Possible here: --by {', --by '.join(module.BY)}"
        if module.BY
        else "This table has no --by"
    )
    if by in module.REFUSED:
        return f"{name} cannot be shown by {by}: {module.REFUSED[by]}. {possible}"
    return f"{name} cannot be shown by {by!r}.{did_you_mean(by, module.BY)} {possible}"
