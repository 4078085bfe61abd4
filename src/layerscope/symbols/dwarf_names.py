"""Names of functions by the DWARF of an ELF file: as the linker has them, or where it has none, as
for functions of one file, with the namespaces and classes that they are in.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable

from layerscope.symbols.dwarf_entries import (
    LANGUAGE,
    LINKAGE_NAME,
    MIPS_LINKAGE_NAME,
    NAME,
    ORIGIN,
    SPECIFICATION,
    Attributes,
    Declaration,
    UnitEntries,
)

_HOPS = 8  # from an entry to the one that has the name: two as a rule
# DW_TAG_
_NAMESPACE, _UNIT = 0x39, 0x11
_SCOPES = {_NAMESPACE, _UNIT, 0x1E, 0x02, 0x13, 0x17, 0x38, 0x2E, 0x1D, 0x0B}
_OF_C = {0x01, 0x02, 0x0C, 0x1D, 0x2C, 0x8001}  # DW_LANG_: C and assembly have no scopes
_CLASSES = {0x02, 0x13, 0x17}
# A class without a name, and one that is a lambda, as demangled names have them.
_UNNAMED, _LAMBDA, _OF_LAMBDA = "{unnamed}::", "{lambda}::", "operator()"
UnitOf = Callable[[int], UnitEntries | None]


class EntryNames:
    """The names of functions by their places in `.debug_info`. `unit_of` tells in which unit a
    place is.
    """

    def __init__(self, unit_of: UnitOf) -> None:
        self._unit_of = unit_of

    def of(self, places: Iterable[int]) -> dict[int, str]:
        """The name of each place, "" where it has none."""
        found: dict[int, str] = {}
        # Of names that say nothing of their scope: by unit the place of each in it.
        open_: dict[int, dict[int, int]] = {}
        for place in places:
            name, at, unit = self._follow(place)
            found[place] = name
            if unit is not None:
                open_.setdefault(unit.start, {})[place] = at
        for start, at_of in open_.items():
            unit = self._unit_of(start)
            scopes = _scopes(unit, sorted(set(at_of.values()))) if unit else {}
            for place, at in at_of.items():
                found[place] = _scoped(scopes.get(at, ""), found[place])
        return found

    def _follow(self, place: int) -> tuple[str, int, UnitEntries | None]:
        """The name that an entry or those that it refers to have. Where it lacks its scope, where
        in which unit it is.
        """
        plain: tuple[str, int, UnitEntries | None] = "", 0, None
        for _ in range(_HOPS):
            unit = self._unit_of(place)
            if unit is None:
                break
            entry = unit.at(place - unit.start)
            linked = unit.text(entry.get(LINKAGE_NAME) or entry.get(MIPS_LINKAGE_NAME))
            if linked:
                return os.fsdecode(linked), 0, None
            if own := unit.text(entry.get(NAME)):
                plain = os.fsdecode(own), place - unit.start, unit
            place = unit.target(entry.get(ORIGIN) or entry.get(SPECIFICATION))
        return plain


def _scoped(scope: str, name: str) -> str:
    """A name with its scope. A class without a name that can be called is a lambda."""
    if name == _OF_LAMBDA and scope.endswith(_UNNAMED):
        around = scope.removesuffix(_UNNAMED)
        scope = around + _LAMBDA
    return scope + name


def _scopes(unit: UnitEntries, wanted: list[int]) -> dict[int, str]:
    """What stands before the name of each entry: `outer::Class::`."""
    found: dict[int, str] = {}
    _, language = unit.own.get(LANGUAGE, (0, 0))
    if language in _OF_C:
        return found
    around: list[tuple[int, str]] = []

    def visit(place: int, declaration: Declaration, at: int, depth: int) -> bool:
        while around and around[-1][0] >= depth:
            around.pop()
        behind = bisect_right(wanted, place)
        is_wanted = behind and wanted[behind - 1] == place
        if is_wanted:
            found[place] = "".join(text for _, text in around)
        if behind == len(wanted):
            return False
        if wanted[behind] >= unit.end_of(declaration, at):
            return False
        scope = _scope(unit, declaration, at)
        around.append((depth, scope))
        return True

    unit.walk(visit, _SCOPES)
    return found


def _scope(unit: UnitEntries, declaration: Declaration, at: int) -> str:
    """What an entry adds to the names of those in it."""
    tag = declaration.tag
    if tag == _UNIT:
        return ""
    entry: Attributes = unit.read(declaration, at)
    name = os.fsdecode(unit.text(entry.get(NAME)))
    if not name and tag == _NAMESPACE:
        name = "(anonymous namespace)"
    if not name and tag in _CLASSES:
        return _UNNAMED
    if not name:
        return ""
    return f"{name}::"
