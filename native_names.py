"""Writes native/frameworks/names.h from src/layerscope/model/frameworks: what a span is by the name
that its framework gives it.

Used by `python3 dev.py native`, with the Python of layerscope's own environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from layerscope.model.frameworks import allocators, frameworks, step_prefixes

OUTPUT = Path(__file__).resolve().parent / "native" / "frameworks" / "names.h"

HEAD = """\
/* What a span is by the name that its framework gives it; `*` stands for any text.
 *
 * Generated from src/layerscope/model/frameworks by native_names.py: change those files, then run
 * `python3 dev.py native`. */
#ifndef LAYERSCOPE_NAMES_H
#define LAYERSCOPE_NAMES_H

#include "../layout.h"

"""


def lines() -> Iterator[str]:
    """The two tables."""
    yield "/* The first that fits. */"
    yield "static const struct {"
    yield "    const char *pattern;"
    yield "    uint32_t kind;"
    yield "} KINDS[] = {"
    for framework in frameworks():
        for kind, pattern in framework.kinds:
            yield f'    {{"{pattern}", LF_{kind.upper()}}},'
    yield "};"
    yield ""
    yield "/* How the names of spans begin that are one step of an optimizer. */"
    yield "static const char *const STEPS[] = {"
    for prefix in step_prefixes():
        yield f'    "{prefix}",'
    yield "};"
    yield ""
    yield "/* Operators that do nothing but allocate: who calls them needs the memory. */"
    yield "static const char *const ALLOCATORS[] = {"
    for name in allocators():
        yield f'    "{name}",'
    yield "};"


def header() -> str:
    """The whole file."""
    return HEAD + "\n".join(lines()) + "\n\n#endif\n"


if __name__ == "__main__":
    OUTPUT.write_text(header(), encoding="utf-8")
