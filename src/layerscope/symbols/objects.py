"""One ELF file as far as it is known which one it is, and what was found out about it."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.symbols.kept import Kept
from layerscope.symbols.known_addresses import KnownAddresses

if TYPE_CHECKING:
    from layerscope.symbols.object_tables import ObjectTables

Identity = tuple[int, int, int, int]


def identity(descriptor: int) -> Identity:
    """What tells that a file is still the same: device, inode, size, time of its last change."""
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


class ElfObject(Struct):
    """What is known of a file, kept between questions."""

    path: Path
    of: Identity
    build_id: bytes
    _known: KnownAddresses | None = None
    _tables: ObjectTables | None = None

    def known(self, kept: Kept) -> KnownAddresses:
        """What was found out earlier, by whichever process of this user."""
        if self._known is None:
            # A debug file may lie in the folder of one of two equal files. And a build id says
            # nothing of the names of local functions.
            changed_ns = self.of[3] if self.path.is_absolute() else 0
            about = f"{self.path.parent} {changed_ns}"
            place = zlib.crc32(os.fsencode(about))
            key = f"{self._key}-in-{place:x}"
            self._known = KnownAddresses(kept, key)
        return self._known

    @property
    def tables(self) -> ObjectTables:
        """What tells more: only to be asked for what is not known."""
        if self._tables is None:
            from layerscope.symbols.object_tables import ObjectTables

            self._tables = ObjectTables(self.path, self.build_id, self._key)
        return self._tables

    @property
    def _key(self) -> str:
        """What is known of this file is kept under this and more."""
        # A file and its debug file have one build id, and so has what is left when it is stripped.
        device, inode, size, mtime_ns = self.of
        name = self.build_id.hex() or f"{device:x}-{inode:x}-{mtime_ns:x}"
        return f"{name}-{size:x}"
