"""Which Unix socket is at the other end of which, as the kernel tells it by netlink (sock_diag(7)):
/proc does not say it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

_NETLINK_SOCK_DIAG = 4
_REQUEST, _DUMP, _BY_FAMILY, _DONE, _ERROR = 1, 0x300, 20, 3, 2
_ALL_STATES, _SHOW_PEER = 0xFFFFFFFF, 4
_PEER = 2
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASKED = struct.Struct("=BBHIIIII")  # family, protocol, pad, states, inode, show, two of a cookie
_ANSWER = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, two of a cookie
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_PATIENCE_S = 2.0
_PACKET_BYTES = 1 << 16


def peers() -> dict[int, int]:
    """By inode of a connected socket that of its other end; empty where the kernel does not say."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError, struct.error):
        for packet in _packets():
            found.update(_in_packet(packet))
    return found


def _packets() -> Iterator[bytes]:
    """The kernel's answer, until it says that it is over."""
    asked = _ASKED.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_PEER, 0, 0)
    size = _HEADER.size + len(asked)
    head = _HEADER.pack(size, _BY_FAMILY, _REQUEST | _DUMP, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_PATIENCE_S)
        link.send(head + asked)
        while True:
            packet = link.recv(_PACKET_BYTES)
            yield packet
            if not packet or _is_last(packet):
                return


def _is_last(packet: bytes) -> bool:
    messages = _messages(packet)
    kinds = [kind for kind, _ in messages]
    return _DONE in kinds or _ERROR in kinds


def _messages(packet: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the content of each message."""
    at = 0
    while at + _HEADER.size <= len(packet):
        size, kind, *_ = _HEADER.unpack_from(packet, at)
        if size < _HEADER.size:
            return
        yield kind, packet[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _in_packet(packet: bytes) -> Iterator[tuple[int, int]]:
    """The inodes of both ends."""
    for kind, content in _messages(packet):
        if kind != _BY_FAMILY:
            continue
        inode = _ANSWER.unpack_from(content)[4]
        at = _ANSWER.size
        while at + _ATTRIBUTE.size <= len(content):
            size, name = _ATTRIBUTE.unpack_from(content, at)
            if name == _PEER:
                (peer,) = struct.unpack_from("=I", content, at + _ATTRIBUTE.size)
                yield inode, peer
            at += max((size + 3) & ~3, _ATTRIBUTE.size)
