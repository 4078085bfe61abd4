"""Rows of tables about blocks, as Arrow has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.result import ResultColumn

if TYPE_CHECKING:
    import pyarrow as pa


def table_of(columns: tuple[ResultColumn, ...], parts: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows of all parts, each of which has all columns: arrays or lists. What is not a number
    is null.
    """
    import pyarrow as pa

    schema = pa.schema([(column.name, pa.type_for_alias(column.type)) for column in columns])
    tables = [
        pa.table(
            [_array(part[column.name], schema.field(column.name).type) for column in columns],
            schema,
        )
        for part in parts
    ]
    return pa.concat_tables([schema.empty_table(), *tables])


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    is_floating = False
    if isinstance(values, np.ndarray):
        is_floating = values.dtype == np.float64
    array = pa.array(values, from_pandas=is_floating)
    return array.cast(kind)
