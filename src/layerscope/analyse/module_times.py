"""The parts of the network that take the most operator time.

The time of a module is the self time of the operators that run in its call and in no call inside
it, forward and backward. Few modules are told apart one by one. Of many, those whose paths differ
in nothing but numbers, as the blocks of a transformer do, are one row: `h.*.mlp`.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.model.frameworks import scope_classes
from layerscope.recording.reader import Reader

TOP = 5
# Up to this many are told apart one by one.
MOST_SINGLE = 8


class ModuleRow(Struct):
    """Operator time of a module: of a step on average, or of the whole run.

    `functional`: it has parts, and this is the time in its own `forward` outside of them.
    `of_class` is its class where its name ends in a number, which says nothing, or where nobody
    calls it.
    """

    name: str
    of_class: str
    self_ns: float
    functional: bool = False


class ModuleTimes(Struct):
    """The modules with the most operator time; `rest_ns` is that of the other `rest_names` ones.

    Names are paths in the module that the program calls, if there is but one that has parts;
    others, such as a loss, stand for themselves. `root` is the only module that the program calls,
    empty if there are several.
    """

    root: str
    rows: list[ModuleRow]
    rest_names: int
    rest_ns: float
    outside_ns: float


def module_times(reader: Reader, self_ns: NDArray[np.float64], divisor: int) -> ModuleTimes | None:
    """Times from the sums `self_ns`: at 0 outside of any module, at 1 + key of each; None if no
    module has any.
    """
    if not self_ns[1:].any():
        return None
    table = reader.arrays("modules", ["module", "parent", "path", "class"])
    paths = table["path"].tolist()
    class_of = dict(zip(paths, table["class"].tolist(), strict=True))
    path_of = dict(zip(table["module"].tolist(), paths, strict=True))
    holders = {path_of.get(parent, "") for parent in table["parent"].tolist()}
    spent = _by_path(self_ns[1:] / divisor, path_of)
    rows = _module_rows(spent, class_of, holders)
    rows.sort(key=lambda row: (-row.self_ns, row.name, row.of_class))
    # One row in place of "1 more" takes no more room.
    top = len(rows) if len(rows) <= TOP + 1 else TOP
    rest = rows[top:]
    rest_ns = sum(row.self_ns for row in rest)
    outside_ns = float(self_ns[0]) / divisor
    roots = {_root(path) for path in spent}
    root = roots.pop() if len(roots) == 1 else ""
    return ModuleTimes(root, rows[:top], len(rest), rest_ns, outside_ns)


def _by_path(self_ns: NDArray[np.float64], path_of: dict[int, str]) -> dict[str, float]:
    """The time of each path; several modules may have the same one."""
    spent: dict[str, float] = defaultdict(float)
    for module in np.flatnonzero(self_ns).tolist():
        path = path_of.get(module, "")
        spent[path] += float(self_ns[module])
    return spent


def _root(path: str) -> str:
    return path.partition(".")[0]


def _module_rows(
    spent: dict[str, float], class_of: dict[str, str], holders: set[str]
) -> list[ModuleRow]:
    """A row for each path, or for each pattern of paths if there are many; without the name of the
    network, if there is one only.
    """
    roots = {_root(path) for path in spent}
    with_parts = {_root(path) for path in spent if "." in path}
    prefix = f"{with_parts.pop()}." if len(with_parts) == 1 else ""
    is_single = len(spent) <= MOST_SINGLE
    found: dict[tuple[str, str, bool], float] = defaultdict(float)
    for path, ns in spent.items():
        inner = path.removeprefix(prefix)
        last_part = inner.rpartition(".")[2]
        is_functional = path in roots and path in holders
        of_class = str(class_of.get(path, ""))
        if not last_part.isdecimal() and not (is_functional and of_class in scope_classes()):
            of_class = ""
        name = inner if is_single else _pattern(inner)
        found[name, of_class, is_functional] += ns
    return [ModuleRow(name, kind, ns, own) for (name, kind, own), ns in found.items()]


def _pattern(path: str) -> str:
    """The path with a star for each number."""
    parts = path.split(".")
    starred = ["*" if part.isdecimal() else part for part in parts]
    return ".".join(starred)
