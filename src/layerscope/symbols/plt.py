"""Names of the stubs by which x86-64 code calls functions of other files: `name@plt`.

The linker lays them out in several ways. Most jump through a slot, and the relocation of that slot
names the function; in a lazily bound file with marks for indirect branches, the first stub of two
pushes the number of that relocation.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.elf_file import RELA, Damaged, Elf, Section
from layerscope.symbols.symbol_table import SYMBOL

_X86_64 = 62  # EM_X86_64
_ENTRY = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_STUBS = (".plt", ".plt.sec", ".plt.bnd", ".plt.got")
_JUMP, _PUSH, _MARK = (
    b"\xff\x25",
    b"\x68",
    b"\xf3\x0f\x1e\xfa",
)  # jmp *slot(%rip), push $number, endbr64
_NAME_BYTES = 1 << 14
_RELOCATIONS_BYTES = 1 << 28


class Stubs:
    """The stubs of one file."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._sections = [
            each for each in elf.sections if each.name in _STUBS and elf.machine == _X86_64
        ]
        self._relocations: dict[str, NDArray[np.void]] = {}

    def name(self, address: int) -> str:
        """What the stub at `address` calls, as the linker has it; "" where there is no stub."""
        for section in self._sections:
            if section.address <= address < section.address + section.size:
                try:
                    return self._called(section, address)
                except (Damaged, struct.error):
                    return ""
        return ""

    def _called(self, section: Section, address: int) -> str:
        size = section.entry_bytes if section.entry_bytes in (8, 16) else 16
        place = (address - section.address) // size * size
        code = self._elf.content.read(section.offset + place, min(size, section.size - place))
        plain = code.removeprefix(_MARK)
        if plain.startswith(_PUSH):
            (number,) = struct.unpack_from("<I", plain, 1)
            entries = self._entries(".rela.plt")
            return self._symbol(int(entries["info"][number]) >> 32) if number < len(entries) else ""
        jump = code.find(_JUMP)
        if (
            not 0 <= jump <= len(_MARK) + 1
        ):  # at 6 in the stub where all others of a lazily bound file go first
            return ""
        (distance,) = struct.unpack_from("<i", code, jump + 2)
        return self._of_slot(section.address + place + jump + 6 + distance)

    def _of_slot(self, slot: int) -> str:
        if not 0 <= slot < 1 << 64:
            return ""
        for name in (".rela.plt", ".rela.dyn"):
            entries = self._entries(name)
            found = entries[entries["offset"] == slot]
            if len(found):
                symbol = int(found["info"][0]) >> 32
                return self._symbol(symbol)
        return ""

    def _entries(self, name: str) -> NDArray[np.void]:
        """The relocations in a section."""
        if name not in self._relocations:
            section = self._elf.section(name)
            content = (
                self._elf.data(section, _RELOCATIONS_BYTES)
                if section and section.type == RELA
                else b""
            )
            entries = len(content) // _ENTRY.itemsize
            self._relocations[name] = np.frombuffer(content, _ENTRY, entries)
        return self._relocations[name]

    def _symbol(self, number: int) -> str:
        section = self._elf.section(".dynsym")
        if section is None or section.link >= len(self._elf.sections) or number == 0:
            return ""
        names = self._elf.sections[section.link]
        read = self._elf.content.read(section.offset + number * SYMBOL.itemsize, SYMBOL.itemsize)
        return self._elf.text(
            names.offset, names.size, int(np.frombuffer(read, SYMBOL)["name"][0]), _NAME_BYTES
        )
