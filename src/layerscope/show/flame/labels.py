"""What is written on a frame that is too narrow for its whole name: the end of a name says most, so
it is shortened from the front before it is cut.
"""

from __future__ import annotations

import re
from functools import lru_cache

from layerscope.model.frameworks import backward_prefixes

# The file of a function of Python, or the library of a native one.
_FILE = re.compile(r" \([^()]+\)$")
_LINE = re.compile(r"(?<=\.py):\d+$")
_ARGUMENTS = re.compile(r"(?<=[\w>])<[^<>]*>")
# Of a function in C++, and of a module or a method: what it lies in.
_NAMESPACE = re.compile(r"^[\w~ ().]*::(?=.)|^[\w<>]+\.(?=[\w<])")


@lru_cache(maxsize=4096)
def forms(label: str) -> tuple[str, ...]:
    """`label` and shorter forms of it, each shorter than the one before: without what stands around
    a backward function, without template arguments, without its file, without its namespaces one
    after the other. Of a line of a file what is left is its number.
    """
    if line := _LINE.search(label):
        return (label, line[0])
    found = [label]
    for prefix in backward_prefixes():
        _add(found, label.removeprefix(f"{prefix}: "))
    _add(found, _without_arguments(found[-1]))
    _add(found, _FILE.sub("", found[-1]))
    while _NAMESPACE.search(found[-1]):
        _add(found, _NAMESPACE.sub("", found[-1]))
    return tuple(found)


def fitted(label: str, room: int) -> str:
    """The longest form of `label` that has at most `room` characters; the shortest is cut."""
    possible = forms(label)
    for form in possible:
        if len(form) <= room:
            return form
    return f"{possible[-1][: room - 1]}…"


def _add(found: list[str], form: str) -> None:
    if form and len(form) < len(found[-1]):
        found.append(form)


def _without_arguments(name: str) -> str:
    """A name in C++ without what stands in its angle brackets, nested ones too."""
    while (shorter := _ARGUMENTS.sub("", name)) != name:
        name = shorter
    return name
