"""Columns of names as the reader gives them: the names once in `COLUMN.names`, and for each row the
number of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Mapping[str, NDArray[Any]]

# The number of a name that no row has; -1 is that of null.
_NO_CODE = -2


def code_of(names: NDArray[Any], name: str) -> int:
    """The number by which rows refer to this name, or one that no row has."""
    found = np.flatnonzero(names == name)
    if not len(found):
        return _NO_CODE
    return int(found[0])


def has_name(columns: Columns, column: str, name: str) -> NDArray[np.bool_]:
    """Which rows have this name in `column`."""
    code = code_of(columns[f"{column}.names"], name)
    found: NDArray[np.bool_] = columns[column] == code
    return found


def dictionary_of(codes: NDArray[Any], texts: list[str]) -> pa.DictionaryArray:
    """The text of each code, none where it is below zero."""
    from layerscope.recording.arrow_columns import coded_texts

    return coded_texts(np.asarray(codes, np.int32), texts)
