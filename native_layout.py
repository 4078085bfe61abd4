"""Writes src/layerscope/rawfile/layout.py and dtypes.py from native/layout.h: numbers, and the
types of shared memory for NumPy.

Used by `python3 dev.py native`; standard library only. It knows as much of C as the header has:
numbers, enumerations, structures of integers, characters and other structures, and the table of the
kinds of spans.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
HEADER = ROOT / "native" / "layout.h"
FOLDER = ROOT / "src" / "layerscope" / "rawfile"

# The size and the NumPy type of each type of C.
TYPES = {
    "uint64_t": (8, "<u8"), "uint32_t": (4, "<u4"), "uint16_t": (2, "<u2"), "uint8_t": (1, "u1"),
    "int64_t": (8, "<i8"), "int32_t": (4, "<i4"), "char": (1, "S"),
}  # fmt: skip
# The structures that Python reads, by the names that they get there.
STRUCTS = {
    "lf_record": "RECORD",
    "lf_open": "OPEN",
    "lf_origin": "ORIGIN",
    "lf_ring_header": "RING",
    "lf_page": "PAGE",
    "lf_names_header": "NAMES",
}
# Those that are sent as they are, and what `struct` calls the types.
PACKED = {"lf_message": "MESSAGE"}
LETTERS = {"uint64_t": "Q", "uint32_t": "I", "int32_t": "i"}
# Those that are read without NumPy, field by field.
FIELDS = {
    "lf_page": "PAGE_FIELDS",
    "lf_ring_header": "RING_FIELDS",
    "lf_names_header": "NAMES_FIELDS",
}
# The size that memory has which begins with a structure, if it has more than the structure.
SIZES = {"RING": "RING_HEADER"}
RENAMED = {"LAYOUT_VERSION": "VERSION", "NAME_LIMIT": "NAME_BYTES"}

HEAD = '''"""{about}

Generated from native/layout.h by native_layout.py: change the header, then run `python3 dev.py
native`.
"""

from __future__ import annotations

'''
NUMBERS = "The memory that the agent shares with us: numbers and messages."
KINDS = "The memory that the agent shares with us, as NumPy types."


class Member(NamedTuple):
    """A field of a structure. `count`: of an array, 0: it is none."""

    name: str
    type: str
    offset: int
    count: int


class Struct(NamedTuple):
    """A structure as C lays it out."""

    members: list[Member]
    size: int
    alignment: int


class Header:
    """What the header says."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
        self.numbers: dict[str, int] = {}
        self.structs: dict[str, Struct] = {}
        self.kinds: list[tuple[str, int, str, str]] = []
        for found in re.finditer(r'KIND\((\w+), (\d+), "(\w+)", "(\w+)"\)', text):
            name, number, kind, layer = found.groups()
            self.kinds.append((name, int(number), kind, layer))
            self.numbers[f"LF_{name}"] = int(number)
        pattern = r"#define (LF_\w+) ([^\n]+)|enum \{([^}]*)\};|typedef struct \{([^}]*)\} (\w+);"
        for found in re.finditer(pattern, text):
            self._take(*found.groups())

    def _take(self, name: str, value: str, enum: str, body: str, struct: str) -> None:
        if name:
            self._define(name, value.strip())
        elif enum:
            for number in filter(None, (one.strip() for one in enum.split(","))):
                if "=" in number:
                    self._define(*(part.strip() for part in number.split("=")))
        elif body:
            self.structs[struct] = self._struct(body)

    def _define(self, name: str, value: str) -> None:
        self.numbers[name] = self._value(value)

    def _value(self, text: str) -> int:
        """The value of an expression of C that has only numbers, names of them and operators."""
        text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)u\b", r"\1", text)
        text = re.sub(r"sizeof\((\w+)\)", lambda m: str(self.size(m[1])[0]), text)
        text = re.sub(r"\bLF_\w+", lambda m: str(self.numbers[m[0]]), text)
        assert re.fullmatch(r"[\s\dxa-fA-F()<+*/-]+", text), text
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))

    def size(self, kind: str) -> tuple[int, int]:
        """Size and alignment of a type."""
        if kind in TYPES:
            return TYPES[kind][0], TYPES[kind][0]
        return self.structs[kind].size, self.structs[kind].alignment

    def _struct(self, body: str) -> Struct:
        members: list[Member] = []
        offset, largest = 0, 1
        for declaration in filter(None, (one.strip() for one in body.split(";"))):
            kind, _, names = declaration.partition(" ")
            size, alignment = self.size(kind)
            largest = max(largest, alignment)
            for name in names.split(","):
                found = re.fullmatch(r"\s*(\w+)(?:\[(.+)\])?\s*", name)
                assert found, declaration
                offset = -(-offset // alignment) * alignment
                count = self._value(found[2]) if found[2] else 0
                members.append(Member(found[1], kind, offset, count))
                offset += size * max(count, 1)
        return Struct(members, -(-offset // largest) * largest, largest)


def numbers(header: Header) -> str:
    """The file of numbers."""
    lines = ["import struct", ""]
    for full, value in header.numbers.items():
        name = full.removeprefix("LF_")
        name = RENAMED.get(name, name)
        lines.append(f"{name} = 0x{value:X}" if name.endswith("MAGIC") else f"{name} = {value}")
    lines += ["# By number: the kind and the layer of a span as the tables have them."]
    lines += ["SPAN_KINDS = ("]
    lines += [f'    ("{kind}", "{layer}"),' for _, _, kind, layer in header.kinds]
    lines += [")", ""]
    for struct, name in PACKED.items():
        members = header.structs[struct].members
        letters = "".join(LETTERS[member.type] for member in members)
        names = ", ".join(member.name for member in members)
        lines.append(f'{name} = struct.Struct("<{letters}")  # {names}')
    for struct, name in FIELDS.items():
        lines += ["", "# Offset and type, as `struct` has it.", f"{name} = {{"]
        lines += [*fields(header, header.structs[struct]), "}"]
    return HEAD.format(about=NUMBERS) + "\n".join(lines) + "\n"


def fields(header: Header, struct: Struct) -> list[str]:
    """The fields of a structure; what fills it up is left out. Structures in it are bytes."""
    lines = []
    for member in struct.members:
        if member.name.startswith("pad"):
            continue
        letter = LETTERS.get(member.type)
        if letter is None:
            letter = f"{member.count * header.size(member.type)[0]}s"
        lines.append(f'    "{member.name}": ({member.offset}, "<{letter}"),')
    return lines


def dtypes(header: Header) -> str:
    """The file of NumPy types."""
    sizes = ", ".join(sorted(SIZES.values()))
    lines = ["import numpy as np", "", f"from layerscope.rawfile.layout import {sizes}", ""]
    for struct, name in STRUCTS.items():
        lines += [*dtype(header.structs[struct], name), ""]
    return HEAD.format(about=KINDS) + "\n".join(lines).rstrip() + "\n"


def written(header: Header) -> dict[Path, str]:
    """The text of each file."""
    return {FOLDER / "layout.py": numbers(header), FOLDER / "dtypes.py": dtypes(header)}


def dtype(struct: Struct, name: str) -> list[str]:
    """A structure as a NumPy type; what fills it up is left out."""
    members = [member for member in struct.members if not member.name.startswith("pad")]
    lines = [f"{name} = np.dtype(", "    {", '        "names": [']
    lines += [f'            "{member.name}",' for member in members]
    lines += ["        ],", '        "formats": [']
    lines += [f"            {format_of(member)}," for member in members]
    lines += ["        ],", '        "offsets": [']
    lines += [f"            {member.offset}," for member in members]
    size = SIZES.get(name, str(struct.size))
    return [*lines, "        ],", f'        "itemsize": {size},', "    }", ")"]


def format_of(member: Member) -> str:
    """The NumPy type of a field."""
    if member.type == "char":
        return f'"S{member.count}"'
    format_ = f'"{TYPES[member.type][1]}"' if member.type in TYPES else STRUCTS[member.type]
    return f"({format_}, ({member.count},))" if member.count else format_


def main() -> None:
    """Write the files."""
    for path, text in written(Header(HEADER.read_text())).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
