"""Names of functions of C++ as people read them: without what their templates are filled with, and
without the parameters that follow them.
"""

from __future__ import annotations

import re

_PART = re.compile(r"[<>()]|->")
_CUT = "<...>"


def short_name(name: str) -> str:
    """`void gemm<float, 128>(float*, int)` as `gemm<...>`. What has no template stays as it is, and
    so does what does not end all that it begins.
    """
    begin = name.find("<")
    if begin <= 0 or not (name[begin - 1].isalnum() or name[begin - 1] == "_"):
        return name
    end = _closing(name, begin)
    if end is None:
        return name
    rest = name[end:]
    if rest.startswith("("):
        parameters = _closing(name, end)
        rest = name[parameters:] if parameters is not None else rest
    head = name[:begin].removeprefix("void ")
    return f"{head}{_CUT}{short_name(rest)}"


def short_names(text: str) -> str:
    """The same for several names with ` | ` between them."""
    return " | ".join(map(short_name, text.split(" | ")))


def _closing(name: str, begin: int) -> int | None:
    """Behind the bracket that closes the one at `begin`."""
    depth = 0
    for found in _PART.finditer(name, begin):
        part = found[0]
        if part in "<(":
            depth += 1
        elif part in ">)":
            depth -= 1
        if not depth:
            return found.end()
    return None
