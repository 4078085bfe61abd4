"""Connections of TCP as /proc/PID/net says: where a socket leads, and which socket is at the other
end, where that is on this machine.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from layerscope.host import files

_LISTENS = "0A"
_FIELDS = 10


class Connection(NamedTuple):
    """A socket: its own address and the other one's, as "127.0.0.1:8000". `inode`: 0 where no
    process has it any more.
    """

    inode: int
    local: str
    remote: str
    listens: bool


class Connections:
    """The sockets of TCP in the network of one process."""

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        # Each process has the network of its own namespace.
        name = str(pid)
        self._folder = root / "proc" / name / "net"

    def of(self, inode: int) -> Connection | None:
        """The connection of a socket; None: it is no TCP."""
        return self._by_inode.get(inode)

    def other_end(self, connection: Connection) -> Connection | None:
        """The socket at its other end; None: it is on another machine."""
        ends = connection.remote, connection.local
        return self._by_ends.get(ends)

    @cached_property
    def _all(self) -> list[Connection]:
        """All of both versions of IP, with those that nobody has
        open any more.
        """
        found = []
        for name in ("tcp", "tcp6"):
            for line in files.text(self._folder / name).splitlines()[1:]:
                words = line.split()
                if len(words) < _FIELDS:
                    continue
                inode = files.whole(words[9]) or 0
                local = _address(words[1])
                remote = _address(words[2])
                listens = words[3] == _LISTENS
                found.append(Connection(inode, local, remote, listens))
        return found

    @cached_property
    def _by_inode(self) -> dict[int, Connection]:
        """Those that a process has open."""
        found: dict[int, Connection] = {}
        for one in self._all:
            if one.inode:
                found[one.inode] = one
        return found

    @cached_property
    def _by_ends(self) -> dict[tuple[str, str], Connection]:
        """By both addresses: those of the other end are the same the
        other way round.
        """
        found: dict[tuple[str, str], Connection] = {}
        for one in self._all:
            if not one.listens:
                found[one.local, one.remote] = one
        return found


def _address(word: str) -> str:
    """`0100007F:1F90` as 127.0.0.1:8000: words of the machine's byte order."""
    digits, _, port = word.partition(":")
    try:
        words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
        address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
        number = int(port, 16)
    except (ValueError, struct.error):
        return word
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    shown = mapped or address
    if shown.version == 6:
        return f"[{shown}]:{number}"
    return f"{shown}:{number}"
