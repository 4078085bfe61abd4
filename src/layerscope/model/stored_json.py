"""JSON from a file, which may be damaged or come from somebody else: `decoded` takes only what has
the expected types.

The integers are bounded as the tables hold them: a JSON file may hold any.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, NoReturn, TypeVar

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# A number of bytes or of steps.
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# What can be the path of a file.
PathText = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
_Kind = TypeVar("_Kind")


def decoded(data: bytes, kind: type[_Kind]) -> _Kind:
    """What `data` holds; ValueError with the reason when it is no JSON of this kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not _SURROGATE.search(data):
            raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return _with_surrogates(data, kind)


# Python writes a path that is no UTF-8 with lone surrogates, which are no JSON for everybody else.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _with_surrogates(data: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(json.loads(data, parse_constant=_refuse), kind)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
