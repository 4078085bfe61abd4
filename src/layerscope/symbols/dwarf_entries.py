"""The entries of one unit of DWARF: a walk through them, and what their attributes say.

DWARF 5, section 7.5. A unit of a program in C++ has a hundred thousand entries, of which nearly all
are parameters, types and variables: the walk goes over them without reading them, and where an
entry says where its next sibling is, over all that it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from layerscope.symbols import dwarf_units
from layerscope.symbols.cursor import Cursor
from layerscope.symbols.debug_sections import DebugSections
from layerscope.symbols.dwarf_forms import ELSEWHERE, Value, fixed_size, is_implicit, value
from layerscope.symbols.elf_file import Damaged

# Attributes: DW_AT_.
SIBLING, NAME, LOW_PC, HIGH_PC, ORIGIN, SPECIFICATION = 0x01, 0x03, 0x11, 0x12, 0x31, 0x47
RANGES, CALL_FILE, CALL_LINE, LINKAGE_NAME, MIPS_LINKAGE_NAME = 0x55, 0x58, 0x59, 0x6E, 0x2007
LANGUAGE, STR_OFFSETS_BASE, ADDR_BASE, RNGLISTS_BASE = 0x13, 0x72, 0x73, 0x74
_WANTED = {
    *(NAME, LOW_PC, HIGH_PC, ORIGIN, SPECIFICATION, RANGES, CALL_FILE, CALL_LINE),
    *(LINKAGE_NAME, MIPS_LINKAGE_NAME, LANGUAGE),
    *(STR_OFFSETS_BASE, ADDR_BASE, RNGLISTS_BASE),
}
_CODE = {LOW_PC, HIGH_PC, RANGES}
_TEXTS_BEGIN = 8  # behind the head of a table of texts that nobody names
_HEAD_BYTES = 40
_ABBREVIATIONS_BYTES = 1 << 18  # of one unit; those of libpython's have 5 KB at most
# DW_FORM_
_STRING, _BLOCK, _EXPRESSION = 0x08, 0x09, 0x18
_NUMBERED_TEXTS = {0x1A, 0x25, 0x26, 0x27, 0x28}
_LONG_NUMBERS = {0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23}
_IN_UNIT, _IN_SECTION = {0x11, 0x12, 0x13, 0x14, 0x15}, 0x10

# By attribute its form and its value, as `dwarf_forms.value` gives it; of texts that lie elsewhere
# the place.
Attribute = tuple[int, Value]
Attributes = dict[int, Attribute]
# Sees an entry: its place in the unit, its declaration, where its attributes begin, how deep it is.
# Whether the walk is to go into it.
Visit = Callable[[int, "Declaration", int, int], bool]


class _Field(NamedTuple):
    """An attribute of all entries of one kind. `bytes_`: -1 where it depends on the value.
    `here`: the value that stands in the declaration. `place`: behind the beginning of the entry's
    attributes; -1 where it depends.
    """

    attribute: int
    form: int
    bytes_: int
    here: int
    place: int


class Declaration(NamedTuple):
    """How the entries of one kind look. `bytes_`: of all attributes; -1 where it depends.
    `wanted`, `code`: the attributes that anybody asks for, and those of them that say which
    addresses an entry has. `sibling`: the number of that attribute in `fields`; -1: there is none.
    """

    tag: int
    has_children: bool
    fields: tuple[_Field, ...]
    bytes_: int
    wanted: tuple[_Field, ...]
    code: tuple[_Field, ...]
    sibling: int


def declarations(data: bytes, offset_bytes: int) -> dict[int, Declaration]:
    """The declarations at the beginning of `data`, by their code."""
    found: dict[int, Declaration] = {}
    cursor = Cursor(data)
    while code_ := cursor.uleb():
        tag = cursor.uleb()
        has_children = cursor.number(1) != 0
        fields = _fields(cursor, offset_bytes)
        sizes = [one.bytes_ for one in fields]
        bytes_ = sum(sizes) if -1 not in sizes else -1
        wanted = tuple(one for one in fields if one.attribute in _WANTED)
        code = tuple(one for one in fields if one.attribute in _CODE)
        places = [number for number, one in enumerate(fields) if one.attribute == SIBLING]
        sibling = places[0] if places and has_children else -1
        found[code_] = Declaration(tag, has_children, fields, bytes_, wanted, code, sibling)
    return found


def _fields(cursor: Cursor, offset_bytes: int) -> tuple[_Field, ...]:
    found = []
    place = 0
    while (pair := (cursor.uleb(), cursor.uleb())) != (0, 0):
        attribute, form = pair
        here = cursor.sleb() if is_implicit(form) else 0
        size = fixed_size(form, offset_bytes)
        found.append(_Field(attribute, form, size, here, place))
        place = place + size if min(place, size) >= 0 else -1
    return tuple(found)


class UnitEntries:
    """The entries of the unit at `start` of `.debug_info`. Damaged where it is none that can be
    read, or has more than `most` bytes.
    """

    def __init__(self, sections: DebugSections, start: int, most: int) -> None:
        cursor = Cursor(sections.some(".debug_info", start, _HEAD_BYTES))
        head = dwarf_units.head(cursor)
        if head.end > most:
            raise TooLarge(f"a unit of {head.end} bytes")
        self.start = start
        self.version = head.version
        self.offset_bytes = cursor.offset_bytes
        self._sections = sections
        self._first = cursor.at
        self._data = sections.exactly(".debug_info", start, head.end)
        declared = sections.some(".debug_abbrev", head.abbreviations, _ABBREVIATIONS_BYTES)
        self._declarations = declarations(declared, self.offset_bytes)
        self.own = self.at(self._first)
        _, texts = self.own.get(STR_OFFSETS_BASE, (0, None))
        self._texts = texts if isinstance(texts, int) else _TEXTS_BEGIN

    def at(self, place: int) -> Attributes:
        """The attributes of the entry at a place of the unit."""
        end = len(self._data)
        if not self._first <= place < end:
            raise Damaged(f"a unit without the place {place}")
        cursor = Cursor(self._data, place)
        code = cursor.uleb()
        declaration = self._declarations.get(code)
        if declaration is None:
            raise Damaged("an entry of DWARF that is declared nowhere")
        return self.read(declaration, cursor.at)

    def read(self, declaration: Declaration, at: int) -> Attributes:
        """The attributes that begin at `at`, of those that anybody asks for."""
        if declaration.bytes_ >= 0:
            return self._fixed(declaration.wanted, at)
        found: Attributes = {}
        for attribute, form, size, here, _ in declaration.fields:
            if size < 0:
                got, at = self._value(form, at)
            else:
                got = here or int.from_bytes(self._data[at : at + size], "little")
                at += size
            if attribute in _WANTED:
                found[attribute] = form, got
        return found

    def code(self, declaration: Declaration, at: int) -> Attributes:
        """The same of those alone that say which addresses an entry has, or of all."""
        if declaration.bytes_ >= 0 or not declaration.code:
            return self._fixed(declaration.code, at)
        return self.read(declaration, at)

    def _fixed(self, fields: tuple[_Field, ...], at: int) -> Attributes:
        """The attributes of an entry in which each has its place."""
        data, number = self._data, int.from_bytes
        found: Attributes = {}
        for attribute, form, size, here, place in fields:
            first = at + place
            got = here or number(data[first : first + size], "little")
            found[attribute] = form, got
        return found

    def text(self, found: Attribute | None) -> bytes:
        """The text of an attribute; empty where there is none, or where it is in another file."""
        form, value = found or (0, b"")
        if isinstance(value, bytes):
            return value
        if form in _NUMBERED_TEXTS and value is not None:
            at = self._texts + self.offset_bytes * value
            entry = self._sections.exactly(".debug_str_offsets", at, self.offset_bytes)
            return self._sections.text(".debug_str", int.from_bytes(entry, "little"))
        section = ELSEWHERE.get(form)
        return self._sections.text(section, value) if section and value is not None else b""

    def target(self, found: Attribute | None) -> int:
        """The place in `.debug_info` that an attribute names; -1 where it names none."""
        form, value = found or (0, None)
        if not isinstance(value, int):
            return -1
        if form in _IN_UNIT:
            return self.start + value
        return value if form == _IN_SECTION else -1

    def end_of(self, declaration: Declaration, at: int) -> int:
        """Where the entry with attributes at `at` ends with all that it contains, or later."""
        index = declaration.sibling
        if index < 0:
            return len(self._data)
        sibling = declaration.fields[index]
        if sibling.place >= 0:
            at += sibling.place
        else:
            at = self._over(declaration, at, to_sibling=True)
        end = at + sibling.bytes_
        return int.from_bytes(self._data[at:end], "little")

    @property
    def bytes_(self) -> int:
        """How many bytes it has."""
        return len(self._data)

    def has(self, place: int) -> bool:
        """Whether a place of `.debug_info` is in this unit."""
        within = place - self.start
        return 0 <= within < len(self._data)

    def walk(self, visit: Visit, tags: Collection[int], is_thorough: bool = False) -> None:
        """Show entries with these tags to `visit`. Others are gone over with what they contain,
        where they say how far that goes, but for a thorough walk.
        """
        try:
            self._walk(visit, tags, is_thorough)
        except (IndexError, ValueError) as error:
            raise Damaged("entries of DWARF that are cut") from error

    def _walk(self, visit: Visit, tags: Collection[int], is_thorough: bool) -> None:
        data = self._data
        declared = self._declarations
        at = self._first
        depth = 0
        while at < len(data):
            place = at
            code = data[at]
            at += 1
            if code > 127:
                code = code & 127 | data[at] << 7
                at += 1
                if data[at - 1] > 127:  # nearly no unit has as many declarations
                    cursor = Cursor(data, place)
                    code = cursor.uleb()
                    at = cursor.at
            if code == 0:
                depth -= 1
                if depth <= 0:
                    return
                continue
            declaration = declared.get(code)
            if declaration is None:
                raise Damaged("an entry of DWARF that is declared nowhere")
            goes_in = is_thorough
            if declaration.tag in tags:
                goes_in = visit(place, declaration, at, depth) or is_thorough
            if declaration.sibling >= 0 and not goes_in:
                at = self.end_of(declaration, at)
                if at <= place:
                    raise Damaged("an entry of DWARF whose sibling lies before it")
                continue
            if declaration.bytes_ >= 0:
                at += declaration.bytes_
            else:
                at = self._over(declaration, at)
            depth += declaration.has_children

    def _over(self, declaration: Declaration, at: int, to_sibling: bool = False) -> int:
        """The place behind the attributes that begin at `at`, or of the one with the sibling."""
        data = self._data
        fields = declaration.fields
        if to_sibling:
            fields = fields[: declaration.sibling]
        for _, form, size, _, _ in fields:
            if size >= 0:
                at += size
            elif form in (_EXPRESSION, _BLOCK) and data[at] < 128:
                at += 1 + data[at]
            elif form in _LONG_NUMBERS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif form == _STRING:
                at = data.index(0, at) + 1
            else:
                _, at = self._value(form, at)
        return at

    def _value(self, form: int, at: int) -> tuple[Value, int]:
        """A value whose size depends on it, and the place behind it."""
        cursor = Cursor(self._data, at, self.offset_bytes)
        found = value(cursor, form, _not_read)
        return found, cursor.at


def _not_read(section: str, at: int) -> bytes:
    return b""


class TooLarge(Damaged):
    """A unit that a limit forbids to read."""
