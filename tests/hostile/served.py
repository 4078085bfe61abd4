"""A file system of another machine, as far as the kernel can tell: a FUSE server for a folder, as
slow as it is told.

    python served.py MOUNT_POINT FOLDER DELAY_S

Prints a line when it is mounted, and serves until it is killed: every access then fails, as with a
server that is gone. Only what a recording needs is there; the rest is refused with ENOSYS.
Protocol: linux/fuse.h, version 7.31.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

IN, OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
MOST_WRITE_BYTES = 128 << 10
# Version, readahead, no flags, requests in the background, largest write, granularity of times,
# pages in a request.
INIT_REPLY = struct.pack(
    "<4I2H2I2H8I", 7, 31, MOST_WRITE_BYTES, 0, 8, 8, MOST_WRITE_BYTES, 1, 32, *[0] * 9
)
LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK = range(1, 7)
MKDIR, UNLINK, RMDIR, RENAME = 9, 10, 11, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR = (
    14,
    15,
    16,
    17,
    18,
    20,
    25,
    26,
    27,
    28,
)
RELEASEDIR, CREATE, INTERRUPT, BATCH_FORGET, RENAME2 = 29, 35, 36, 42, 45
WITHOUT_REPLY = (FORGET, INTERRUPT, BATCH_FORGET)
SET_MODE, SET_SIZE = 1, 8
ROOT_NODE = 1


class Server:
    """Answers the kernel's questions about the files below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.nodes = {ROOT_NODE: folder}
        self.numbers = {folder: ROOT_NODE}
        self.answers: dict[int, Callable[[int, bytes], bytes]] = {
            LOOKUP: lambda node, data: self.entry(self.child(node, data)),
            GETATTR: lambda node, data: (
                struct.pack("<QII", 0, 0, 0) + attributes(self.nodes[node].lstat())
            ),
            SETATTR: self.set_attributes,
            READLINK: lambda node, data: os.fsencode(os.readlink(self.nodes[node])),
            SYMLINK: self.symlink,
            MKDIR: self.mkdir,
            UNLINK: lambda node, data: self.gone(self.child(node, data), os.unlink),
            RMDIR: lambda node, data: self.gone(self.child(node, data), os.rmdir),
            RENAME: lambda node, data: self.rename(node, data, 8),
            RENAME2: lambda node, data: self.rename(node, data, 16),
            OPEN: lambda node, data: opened(self.nodes[node], struct.unpack_from("<I", data)[0]),
            CREATE: self.create,
            READ: lambda node, data: os.pread(
                *[struct.unpack_from("<QQI", data)[index] for index in (0, 2, 1)]
            ),
            WRITE: write,
            STATFS: lambda node, data: struct.pack(
                "<5Q10I", *[1 << 20] * 5, 4096, 255, 4096, *[0] * 7
            ),
            RELEASE: lambda node, data: os.close(struct.unpack_from("<Q", data)[0]) or b"",
            FSYNC: lambda node, data: b"",
            FLUSH: lambda node, data: b"",
            INIT: lambda node, data: INIT_REPLY,
            OPENDIR: lambda node, data: struct.pack("<QII", 0, 0, 0),
            READDIR: self.list,
            RELEASEDIR: lambda node, data: b"",
        }

    def answer(self, request: bytes) -> bytes | None:
        """The reply to one request; None: none is expected."""
        _, code, unique, node, *_ = IN.unpack_from(request)
        if code in WITHOUT_REPLY:
            return None
        failed, data = 0, b""
        try:
            if code not in self.answers:
                raise OSError(errno.ENOSYS, "")
            data = self.answers[code](node, request[IN.size :])
        except KeyError:
            failed = errno.ESTALE
        except OSError as error:
            failed = error.errno or errno.EIO
        data = b"" if failed else data
        return OUT.pack(OUT.size + len(data), -failed, unique) + data

    def child(self, node: int, name: bytes) -> Path:
        return self.nodes[node] / os.fsdecode(name.split(b"\0")[0])

    def entry(self, path: Path) -> bytes:
        found = path.lstat()
        number = self.numbers.setdefault(path, len(self.numbers) + len(self.nodes) + 1)
        self.nodes[number] = path
        return struct.pack("<4QII", number, 0, 0, 0, 0, 0) + attributes(found)

    def gone(self, path: Path, remove: Callable[[Path], None]) -> bytes:
        remove(path)
        self.numbers.pop(path, None)
        return b""

    def set_attributes(self, node: int, data: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", data)
        path = self.nodes[node]
        if valid & SET_MODE:
            path.chmod(stat.S_IMODE(struct.unpack_from("<I", data, 68)[0]))
        if valid & SET_SIZE:
            os.truncate(path, size)
        return struct.pack("<QII", 0, 0, 0) + attributes(path.lstat())

    def symlink(self, node: int, data: bytes) -> bytes:
        name, target = data.split(b"\0")[:2]
        path = self.child(node, name)
        os.symlink(os.fsdecode(target), path)
        return self.entry(path)

    def mkdir(self, node: int, data: bytes) -> bytes:
        path = self.child(node, data[8:])
        path.mkdir(mode=struct.unpack_from("<I", data)[0] & 0o777)
        return self.entry(path)

    def create(self, node: int, data: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", data)
        path = self.child(node, data[16:])
        handle = opened(path, flags | os.O_CREAT, mode & 0o777)
        return self.entry(path) + handle

    def rename(self, node: int, data: bytes, names_at: int) -> bytes:
        (into,) = struct.unpack_from("<Q", data)
        old, new = data[names_at:].split(b"\0")[:2]
        source, target = self.child(node, old), self.child(into, new)
        source.rename(target)
        self.numbers.pop(target, None)
        for number, path in list(self.nodes.items()):
            if path == source or source in path.parents:
                moved = target / path.relative_to(source)
                self.numbers.pop(path, None)
                self.nodes[number] = moved
                self.numbers[moved] = number
        return b""

    def list(self, node: int, data: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", data)
        entries = b""
        for position, name in enumerate(sorted(os.listdir(self.nodes[node]))):
            raw = os.fsencode(name)
            one = (
                struct.pack("<QQII", position + 2, position + 1, len(raw), 0)
                + raw
                + bytes(-len(raw) % 8)
            )
            if position >= offset and len(entries) + len(one) <= size:
                entries += one
        return entries


def attributes(found: os.stat_result) -> bytes:
    return ATTRIBUTES.pack(
        found.st_ino, found.st_size, found.st_blocks, int(found.st_atime), int(found.st_mtime), int(found.st_ctime),
        0, found.st_mtime_ns % 10**9, 0, found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0,
    )  # fmt: skip


def opened(path: Path, flags: int, mode: int = 0o600) -> bytes:
    """A file handle of the kernel is a descriptor of ours; where to append, the kernel says with
    each write.
    """
    number = os.open(path, flags & ~(os.O_APPEND | os.O_NOFOLLOW | os.O_DIRECT), mode)
    return struct.pack("<QII", number, 0, 0)


def write(node: int, data: bytes) -> bytes:
    handle, offset, size = struct.unpack_from("<QQI", data)
    return struct.pack("<II", os.pwrite(handle, data[40 : 40 + size], offset), 0)


def main() -> None:
    """Mount and serve."""
    point, folder, delay_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"layerscope-test", os.fsencode(point), b"fuse", 0, options.encode()):
        sys.exit(f"FUSE cannot be mounted: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    server = Server(folder)
    with contextlib.suppress(OSError):  # it has been unmounted
        while True:
            reply = server.answer(os.read(device, MOST_WRITE_BYTES + 4096 + IN.size))
            if reply is not None:
                time.sleep(delay_s)
                os.write(device, reply)


if __name__ == "__main__":
    main()
