"""Memory as the agent hands it over, made by hand."""

from __future__ import annotations

import json
import mmap
import os
import socket
from typing import Any

import numpy as np

from layerscope.capture.drainer import Drainer
from layerscope.capture.drainer_messages import END
from layerscope.rawfile import dtypes, layout

START = 12345


def memfd(size: int) -> tuple[int, mmap.mmap]:
    fd = os.memfd_create("layerscope-test")
    os.ftruncate(fd, size)
    return fd, mmap.mmap(fd, size)


class Page:
    """The process page."""

    def __init__(self, pid: int | None = None, **fields: Any) -> None:
        self.fd, memory = memfd(layout.PAGE_BYTES)
        self.fields = np.frombuffer(memory, dtypes.PAGE, 1)
        known = {"magic": layout.PAGE_MAGIC, "version": layout.VERSION, "pid": pid or os.getpid()}
        for name, value in {**known, "process_start": START, **fields}.items():
            self.fields[name] = value


class Ring:
    """A ring whose producer is the test."""

    def __init__(self, index: int = 0, track: int = 1) -> None:
        self.fd, memory = memfd(layout.RING_BYTES)
        self.header = np.frombuffer(memory, dtypes.RING, 1)
        self.records = np.frombuffer(memory, dtypes.RECORD, layout.RING_RECORDS, layout.RING_HEADER)
        self.header["magic"], self.header["index"] = layout.RING_MAGIC, index
        self.header["track"], self.header["tid"] = track, os.getpid()

    def put(self, count: int, name: int = 1, kind: int = 0) -> None:
        """`count` records; `seq` says the how manieth ever each is."""
        published = int(self.header["published"][0])
        ordinals = np.arange(published, published + count)
        rows = np.zeros(count, dtypes.RECORD)
        rows["start"], rows["end"], rows["name"], rows["kind"] = ordinals, ordinals + 1, name, kind
        rows["seq"] = ordinals
        self.records[ordinals % layout.RING_RECORDS] = rows
        self.header["published"] = published + count

    def move_to(self, ordinal: int) -> None:
        """As if so many records had been written and taken already."""
        self.header["published"] = self.header["consumed"] = ordinal

    def open(self, *names: int) -> None:
        """Open spans, outermost first; a negative name: ended by another thread."""
        for i, name in enumerate(names):
            self.header["open"][0, i] = (100 + i, 2 * (i + 1) + (name < 0), abs(name), 2)
        self.header["depth"] = len(names)


class Names:
    """A segment of names."""

    def __init__(self, segment: int = 0) -> None:
        self.fd, self.memory = memfd(1 << 16)
        header = np.frombuffer(self.memory, dtypes.NAMES, 1)
        header["magic"], header["segment"] = layout.NAMES_MAGIC, segment
        self.header = header

    def add(self, number: int, text: str) -> None:
        content = text.encode()
        entry = number.to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
        entry += bytes(8 + (len(content) + 1 + 7 & ~7) - len(entry))
        at = layout.NAMES_HEADER + int(self.header["used"][0])
        self.memory[at : at + len(entry)] = entry
        self.header["used"] += len(entry)


class Session:
    """The other end of a drainer's control socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def give(self, kind: int, fd: int, pid: int | None = None, index: int = 0) -> None:
        message = {"type": kind, "pid": pid or os.getpid(), "index": index, "process_start": START}
        socket.send_fds(self.ours, [json.dumps(message).encode()], [fd])

    def give_all(self, page: Page, *more: Ring | Names) -> None:
        self.give(layout.SEND_PROCESS, page.fd)
        for part in more:
            self.give(layout.SEND_RING if isinstance(part, Ring) else layout.SEND_NAMES, part.fd)

    def run_to_the_end(self, drainer: Drainer) -> None:
        """End it as the session does, and let the drainer take everything once more."""
        self.ours.send(json.dumps({"type": END}).encode())
        self.ours.shutdown(socket.SHUT_WR)
        drainer.run()
        for process in drainer.processes.values():
            process.close()
        self.close()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
