"""Writes `perf.data` with a known content, by perf_event_open(2) and perf.data-file-format.txt
alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD = (1 << bit for bit in range(9))
RAW, REGS_USER, STACK_USER, IDENTIFIER = 1 << 10, 1 << 12, 1 << 13, 1 << 16
FREQ, SAMPLE_ID_ALL, CHAIN_WITHOUT_USER, USE_CLOCKID = 1 << 10, 1 << 18, 1 << 22, 1 << 25
KERNEL, USER = (1 << 64) - 128, (1 << 64) - 512
USUAL = IP | TID | TIME | PERIOD | CALLCHAIN | IDENTIFIER
CPU_CLOCK, FAULTS, SWITCHES, CYCLES = (1, 0), (1, 2), (1, 3), (0, 0)


@dataclass
class Writer:
    """One file. Every event has the ids that are its number plus 100."""

    events: list[tuple[int, int, int, int, int, bytes]] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    features: dict[int, bytes] = field(default_factory=dict)

    def event(
        self, kind: tuple[int, int] = CPU_CLOCK, period: int = 1_000_000, sample_type: int = USUAL,
        flags: int = SAMPLE_ID_ALL, registers: int = 0, read_format: int = 0,
    ) -> int:  # fmt: skip
        """One more event; returns its number."""
        attr = struct.pack(
            "<IIQQQQQ", kind[0], 112, kind[1], period, sample_type, read_format, flags
        )
        attr += (
            bytes(24)
            + struct.pack("<QQIi", 0, registers, 0, 1 if flags & USE_CLOCKID else 0)
            + bytes(16)
        )
        self.events.append((sample_type, flags, registers, read_format, len(self.events), attr))
        return len(self.events) - 1

    def record(self, type_: int, misc: int, content: bytes) -> None:
        """One record."""
        content += bytes(-len(content) % 8)
        self.records.append(struct.pack("<IHH", type_, misc, 8 + len(content)) + content)

    def sample(
        self, time: int, tid: int, chain: Sequence[int] = (), event: int = 0, pid: int | None = None, ip: int = 0,
        period: int = 1_000_000, raw: bytes = b"", misc: int = 2, registers: Sequence[int] = (), read: bytes = b"",
    ) -> None:  # fmt: skip
        """A sample of an event, with the fields that the event has."""
        has = self.events[event][0]
        content = struct.pack("<Q", 100 + event) if has & IDENTIFIER else b""
        content += (
            struct.pack("<Q", ip or next((one for one in chain if one < KERNEL - 4096), 0))
            if has & IP
            else b""
        )
        content += struct.pack("<ii", tid if pid is None else pid, tid) if has & TID else b""
        content += struct.pack("<Q", time) if has & TIME else b""
        content += struct.pack("<Q", 0) if has & ADDR else b""
        content += struct.pack("<Q", 100 + event) if has & ID else b""
        content += struct.pack("<II", 3, 0) if has & CPU else b""
        content += struct.pack("<Q", period) if has & PERIOD else b""
        content += read
        content += struct.pack(f"<Q{len(chain)}Q", len(chain), *chain) if has & CALLCHAIN else b""
        if has & RAW:
            padded = raw + bytes(-(len(raw) + 4) % 8)
            content += struct.pack("<I", len(padded)) + padded
        if has & REGS_USER:
            content += struct.pack(f"<Q{len(registers)}Q", 2 if registers else 0, *registers)
        if has & STACK_USER:
            content += struct.pack("<Q16sQ", 16, bytes(16), 16)
        self.record(9, misc, content)

    def _trailer(self, time: int, pid: int, tid: int) -> bytes:
        has = self.events[0][0]
        content = struct.pack("<ii", pid, tid) if has & TID else b""
        content += struct.pack("<Q", time) if has & TIME else b""
        content += struct.pack("<Q", 100) if has & ID else b""
        content += struct.pack("<II", 3, 0) if has & CPU else b""
        return content + (struct.pack("<Q", 100) if has & IDENTIFIER else b"")

    def comm(self, pid: int, tid: int, name: bytes, time: int = 0, is_exec: bool = False) -> None:
        """A thread is called so from now on."""
        text = name + bytes(8 - len(name) % 8)
        self.record(
            3, is_exec << 13, struct.pack("<ii", pid, tid) + text + self._trailer(time, pid, tid)
        )

    def map(
        self, pid: int, start: int, length: int, offset: int, path: bytes, time: int = 0, build: bytes = b"",
        misc: int = 2,
    ) -> None:  # fmt: skip
        """A file is mapped."""
        about = (
            struct.pack("<B3x20s", len(build), build)
            if build
            else struct.pack("<IIQQ", 8, 1, 77, 0)
        )
        content = (
            struct.pack("<iiQQQ", pid, pid, start, length, offset)
            + about
            + struct.pack("<II", 5, 2)
        )
        text = path + bytes(8 - len(path) % 8)
        self.record(
            10, misc | (1 << 14 if build else 0), content + text + self._trailer(time, pid, pid)
        )

    def fork(
        self, pid: int, ppid: int, tid: int, ptid: int, time: int, is_exit: bool = False
    ) -> None:
        """A thread or a process begins, or ends."""
        content = struct.pack("<iiiiQ", pid, ppid, tid, ptid, time)
        self.record(4 if is_exit else 7, 0, content + self._trailer(time, pid, tid))

    def switch(self, time: int, tid: int, is_out: bool, is_preempted: bool = False) -> None:
        """A thread leaves its CPU or comes to one."""
        self.record(14, (is_out << 13) | (is_preempted << 14), self._trailer(time, tid, tid))

    def lost(self, time: int, count: int) -> None:
        """Records that nobody has."""
        self.record(2, 0, struct.pack("<QQ", 100, count) + self._trailer(time, 1, 1))

    def file(self) -> bytes:
        """The file as `perf record` leaves it."""
        return self._file(sum(map(len, self.records)))

    def unfinished(self) -> bytes:
        """The file as a killed `perf record` leaves it."""
        return self._file(0)

    def _file(self, data_bytes: int) -> bytes:
        ids_at = 104
        ids = b"".join(struct.pack("<Q", 100 + number) for number in range(len(self.events)))
        attrs_at = ids_at + len(ids)
        attrs = b"".join(
            attr + struct.pack("<QQ", ids_at + 8 * number, 8) for *_, number, attr in self.events
        )
        data_at = attrs_at + len(attrs)
        body = ids + attrs + b"".join(self.records)
        features = sorted(self.features) if data_bytes else []
        flags = sum(1 << number for number in features).to_bytes(32, "little")
        head = (
            struct.pack(
                "<8sQQQQQQQQ",
                b"PERFILE2",
                104,
                128,
                attrs_at,
                len(attrs),
                data_at,
                data_bytes,
                0,
                0,
            )
            + flags
        )
        at, sections, contents = 104 + len(body) + 16 * len(features), b"", b""
        for number in features:
            sections += struct.pack("<QQ", at + len(contents), len(self.features[number]))
            contents += self.features[number]
        return head + body + sections + contents

    def pipe(self) -> bytes:
        """The same as a pipe has it."""
        out = struct.pack("<8sQ", b"PERFILE2", 16)
        for *_, number, attr in self.events:
            out += (
                struct.pack("<IHH", 64, 0, 16 + len(attr)) + attr + struct.pack("<Q", 100 + number)
            )
        for number, content in self.features.items():
            out += struct.pack("<IHHQ", 80, 0, 16 + len(content), number) + content
        return out + b"".join(self.records)


def text(word: str) -> bytes:
    """A text as features have it."""
    content = word.encode() + b"\0"
    content += bytes(-len(content) % 64)
    return struct.pack("<I", len(content)) + content
