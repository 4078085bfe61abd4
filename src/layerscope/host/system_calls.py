"""Which system calls that recorders need are refused here: tried, because a filter does not tell
beforehand.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import struct

_PERF_EVENT_OPEN = 298  # on x86-64
# struct perf_event_attr, first version: type software, its size, config cpu-clock; excluding kernel
# and hypervisor.
_ATTRIBUTES = struct.pack("<IIQ24xQ16x", 1, 64, 0, 1 << 5 | 1 << 6)


def refused() -> dict[str, str]:
    """What was refused, with the reason: `memory` (memfd_create), `socket` (a descriptor sent over
    an abstract socket), `perf_event_open`, `process_vm_readv`.
    """
    tries = {
        "memory": _memory,
        "socket": _socket,
        "perf_event_open": _perf_event_open,
        "process_vm_readv": _read_memory,
    }
    found = {}
    for name, attempt in tries.items():
        try:
            attempt()
        except OSError as error:
            found[name] = error.strerror or str(error)
    return found


def _memory() -> None:
    os.close(os.memfd_create("layerscope-doctor"))


def _socket() -> None:
    """As the program hands its memory over to the recorder."""
    name = f"\0layerscope-doctor-{secrets.token_hex(8)}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller,
    ):
        listener.bind(name)
        listener.listen(1)
        caller.settimeout(1.0)
        caller.connect(name)
        connection, _ = listener.accept()
        with connection:
            socket.send_fds(caller, [b"?"], [caller.fileno()])
            _, received, _, _ = socket.recv_fds(connection, 16, 1)
            for number in received:
                os.close(number)
            if not received:
                raise OSError(0, "the descriptor did not arrive")


def _perf_event_open() -> None:
    attributes = ctypes.create_string_buffer(_ATTRIBUTES, 64)
    number = _libc().syscall(_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
    if number < 0:
        raise _error()
    os.close(number)


def _read_memory() -> None:
    """Of this process; whether it may be done to the program is for the kernel's Yama to say."""
    data = ctypes.create_string_buffer(b"x")
    copy = ctypes.create_string_buffer(1)
    local = struct.pack("<QQ", ctypes.addressof(copy), 1)
    remote = struct.pack("<QQ", ctypes.addressof(data), 1)
    pid = os.getpid()
    libc = _libc()
    read_bytes = libc.process_vm_readv(pid, local, 1, remote, 1, 0)
    if read_bytes != 1:
        raise _error()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
