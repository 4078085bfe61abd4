"""The passes over columns that are compiled (native/tables), where there was a compiler.

What calls them does the same with NumPy where there was none. They get addresses and lengths alone,
so the type of every array is checked here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

LIBRARY = Path(__file__).parent.parent / "native" / "liblayerscope-tables.so"
# LC_VERSION of native/tables/tables.h. A library of other sources is not called.
VERSION = 12
# By name without `lc_`, the arguments: a number (n), rows with fields (V), or an array in one piece
# of this type, as NumPy's letters have it.
ARGUMENTS = {
    "version": "",
    "spans_among": "Vnq",
    "spans": "VnBnVniiq",
    "split": "VnqqqIIiiiIIBB",
    "join": "VnqqiiniiBqiiB",
    "sums": "Vnninqqnq",
    "totals": "qqqninqq",
    "groups": "iiiiiqqininqq",
    "link": "Biiiqqninqninqqq",
    "index": "innnin",
    "push": "inniniinni",
    "fuse": "inqinininiiiqnii",
    "to_run": "nnnqqn",
    "last_starts": "qnqni",
    "nest": "qqibnnqnnqqq",
    "sort": "iqnnqq",
    "depths": "iqqnqi",
    "adopt": "qqqinqqnnqiqB",
    "charge": "qqqninbqnqq",
    "nearest": "qninbi",
    "parents": "iiqqnqni",
    "statistics": "BnBnBnBnnnBinqnnq",
    "events": "Bninqnq",
}
_TYPES = {letter: np.dtype(letter) for letter in "BbIiq"}
Call = Callable[..., int]


class Compiled:
    """The functions of the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._calls: dict[str, Call] = {}
        for name in ARGUMENTS:
            symbol = f"lc_{name}"
            call = library[symbol]
            call.restype = ctypes.c_int64
            self._calls[name] = call

    def call(self, name: str, *arguments: np.ndarray | int) -> int:
        """What a function returns; without sense for those that return nothing."""
        letters = ARGUMENTS[name]
        function = self._calls[name]
        assert len(letters) == len(arguments), name
        as_c = map(_argument, letters, arguments)
        return function(*as_c)


def _argument(letter: str, value: np.ndarray | int) -> ctypes.c_void_p | ctypes.c_int64:
    """One argument as C takes it."""
    if not isinstance(value, np.ndarray):
        assert letter == "n"
        return ctypes.c_int64(value)
    kind = value.dtype
    expected = kind.names if letter == "V" else kind == _TYPES[letter]
    assert expected, (letter, kind)
    assert value.flags.c_contiguous
    # `__array_interface__` describes all fields of rows, which takes 20 us.
    return ctypes.c_void_p(value.ctypes.data)


@cache
def compiled() -> Compiled | None:
    """The library; None where it is not there or of other sources."""
    try:
        found = Compiled(ctypes.CDLL(str(LIBRARY)))
    except (OSError, AttributeError):
        return None
    return found if found.call("version") == VERSION else None
