"""Bytes of the sections with debugging information of one ELF file, read as they are asked for."""

from __future__ import annotations

from layerscope.symbols.elf_file import Damaged, Elf, Section

_SECTION_BYTES = 1 << 28  # of one that is packed: it has to be unpacked whole
_TEXT_BYTES = 4096


class DebugSections:
    """The sections of `elf`, which may be opened anew between two questions."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self._sections = {
            each.name: each for each in elf.sections if each.name.startswith(".debug_")
        }
        # Of those that are packed, by name.
        self._unpacked: dict[str, bytes] = {}

    def whole(self, name: str, most: int) -> bytes:
        """All of a section; nothing where there is none. Damaged where it has more than `most`."""
        section = self._sections.get(name)
        return self.elf.data(section, most) if section else b""

    def text(self, name: str, at: int) -> bytes:
        """The text that begins at a place of a section."""
        return self.some(name, at, _TEXT_BYTES).partition(b"\0")[0]

    def exactly(self, name: str, at: int, length: int) -> bytes:
        """So many bytes of a section; Damaged where it has fewer."""
        found = self.some(name, at, length)
        if len(found) < length:
            raise Damaged(f"{name} is cut")
        return found

    def some(self, name: str, at: int, most: int) -> bytes:
        """Bytes of a section from `at` on: `most`, or as many as it has. Damaged where it has none
        there.
        """
        section = self._sections.get(name)
        if section is None:
            raise Damaged(f"there is no {name}")
        size = self._size(section)
        if not 0 <= at < size:
            raise Damaged(f"{name} has no place {at}")
        if section.is_packed:
            return self._unpacked[name][at : at + most]
        return self.elf.content.read(section.offset + at, min(most, size - at))

    def size(self, name: str) -> int:
        """How many bytes a section has; 0 where there is none."""
        section = self._sections.get(name)
        return self._size(section) if section else 0

    def _size(self, section: Section) -> int:
        if not section.is_packed:
            return section.size
        name = section.name
        unpacked = self._unpacked.get(name)
        if unpacked is None:
            unpacked = self.elf.data(section, _SECTION_BYTES)
            self._unpacked[name] = unpacked
        return len(unpacked)
