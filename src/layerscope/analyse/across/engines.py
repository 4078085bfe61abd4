"""What can answer a question across ranks: DuckDB in this process, or Spark."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from layerscope.model.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

# The file of this folder for each.
_MODULES = {"duckdb": "on_duckdb", "spark": "on_spark"}
ENGINES = tuple(_MODULES)
DEFAULT = "duckdb"


class Engine(Protocol):
    """Holds tables, and answers questions about them."""

    def give(self, name: str, table: pa.Table) -> None:
        """Let `name` be this table from now on."""

    def answer(self, question: ibis.Table) -> pa.Table:
        """The rows of an expression over tables that were given, with the types that it says."""

    def close(self) -> None:
        """Let go of the tables."""


@contextmanager
def opened(name: str) -> Iterator[Engine]:
    """The engine called so; UsageError where there is none, or where what it needs is missing."""
    if name not in _MODULES:
        meant = did_you_mean(name, ENGINES)
        raise UsageError(f"there is no engine {name!r}.{meant} The engines are {_listed()}")
    module = importlib.import_module(f"{__package__}.{_MODULES[name]}")
    engine: Engine = module.start()
    try:
        yield engine
    finally:
        engine.close()


def _listed() -> str:
    return ", ".join(ENGINES)
