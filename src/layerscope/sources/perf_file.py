"""What a `perf.data` file is made of: events with their settings, what it says about the machine,
and its records.

Facts of the format: tools/perf/Documentation/perf.data-file-format.txt of Linux, and
perf_event_open(2). A file has a header, events and sections of features; a pipe (`perf record -o
-`) has the same things as records between others. Nothing here knows what a record means;
`perf_records` does.
"""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.sources import zstd_stream

MAGIC, FOREIGN, OLD = b"PERFILE2", b"2ELIFREP", b"PERFFILE"
_GZIP = b"\x1f\x8b"
_FILE_HEADER_BYTES, _PIPE_HEADER_BYTES = 104, 16
# Features (HEADER_* of tools/perf/util/header.h).
TRACING_DATA, BUILD_ID, HOSTNAME, OSRELEASE, VERSION, ARCH = 1, 2, 3, 4, 5, 6
NRCPUS, CPUDESC, CMDLINE, EVENT_DESC, CLOCK_DATA = 7, 8, 11, 12, 29
_MOST_FEATURES = 256
# Records that perf adds to those of the kernel.
HEADER_ATTR, HEADER_TRACING_DATA, HEADER_BUILD_ID, AUXTRACE = 64, 66, 67, 71
_WITH_DATA_BEHIND = frozenset((AUXTRACE, HEADER_TRACING_DATA))
EVENT_UPDATE, HEADER_FEATURE, COMPRESSED, COMPRESSED2 = 78, 80, 81, 83
_EVENT_UPDATE_NAME = 2
# What is unpacked of records at most: more is no recording but a trap.
_MOST_BYTES = 1 << 34
_MOST_NS = 1 << 62
_HARDWARE = (
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
)
_SOFTWARE = (
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
)
HARDWARE, SOFTWARE, TRACEPOINT = 0, 1, 2
_FLAGS = {
    "exclude_user": 4,
    "exclude_kernel": 5,
    "exclude_hv": 6,
    "freq": 10,
    "sample_id_all": 18,
    "exclude_host": 19,
    "exclude_guest": 20,
    "exclude_callchain_user": 22,
    "use_clockid": 25,
}


class PerfEvent(Struct):
    """One event that was recorded: the fields of perf_event_attr that matter, its name and the ids
    of its samples.
    """

    type: int
    config: int
    period: int
    sample_type: int
    read_format: int
    branch_type: int
    user_registers: int
    clock: int
    flags: int
    name: str = ""
    ids: list[int] = field(default_factory=list)

    def has(self, flag: str) -> bool:
        """Whether a flag of perf_event_attr is set: one of _FLAGS."""
        bit = _FLAGS[flag]
        return bool(self.flags >> bit & 1)

    def counted(self) -> set[tuple[str, str]]:
        """Where it counts: on whose side, and of which machine."""
        return {
            (side, machine)
            for side in ("user", "kernel", "hv")
            if not self.has(f"exclude_{side}")
            for machine in ("host", "guest")
            if not self.has(f"exclude_{machine}")
        }


class Records(Struct):
    """Records that lie one behind the other in `octets`: where each begins, its type, its misc, and
    where it ends.
    """

    octets: np.ndarray
    start: np.ndarray
    type: np.ndarray
    misc: np.ndarray
    end: np.ndarray

    def words(self, at: np.ndarray) -> np.ndarray:
        """The 8 bytes at each of these places, as uint64; what would reach behind the end is read
        before it.
        """
        if len(self.octets) < 8 or not len(at):
            return np.zeros(len(at), np.uint64)
        view = np.ndarray((len(self.octets) - 7,), "<u8", self.octets, strides=(1,))
        found: np.ndarray = view[np.clip(at, 0, len(view) - 1)]
        return found

    def bytes(self, row: int) -> bytes:
        """One record as it is, its header included."""
        start, end = self.start[row], self.end[row]
        record = self.octets[start:end]
        return record.tobytes()


class PerfFile(Struct):
    """A whole file. `features`: by number, as they are. `cut_at`: where it ends early or makes no
    sense; None: it is whole. `finished`: whether perf came to its end and wrote the features.
    """

    events: list[PerfEvent] = field(default_factory=list)
    features: dict[int, bytes] = field(default_factory=dict)
    build_ids: bytes = b""
    records: list[Records] = field(default_factory=list)
    cut_at: int | None = None
    finished: bool = True
    path: Path | None = None

    def text(self, feature: int) -> str:
        """A feature that is one text; "" where it is not told."""
        content = self.features.get(feature, b"")
        texts = _texts(content, 1)
        return next(texts, "")

    def command(self) -> list[str]:
        """The command line of perf."""
        content = self.features.get(CMDLINE, b"")
        if len(content) <= 4:
            return []
        count, words = _number(content[:4]), content[4:]
        return list(_texts(words, count))

    def clock(self) -> tuple[int, int, int] | None:
        """(clock id, what CLOCK_REALTIME said, what that clock read then), if told."""
        content = self.features.get(CLOCK_DATA, b"")
        if len(content) < 24:
            return None
        _, clock, wall_ns, clock_ns = struct.unpack_from("<IIQQ", content)
        if wall_ns >= _MOST_NS or clock_ns >= _MOST_NS:
            return None
        return clock, wall_ns, clock_ns


def open_file(path: Path) -> PerfFile:
    """The events, features and records of the file `path`, as far as it goes. ReadError when it is
    none of ours.
    """
    octets = _octets(path)
    magic = octets[:8].tobytes()
    if magic == FOREIGN:
        raise ReadError(
            f"{path} was recorded on a machine with another order of bytes: run `perf script` "
            "there and open what it prints"
        )
    if magic == OLD:
        raise ReadError(
            f"{path} was written by a perf of 2012 or before: run `perf script` and open what it "
            "prints"
        )
    if magic != MAGIC or len(octets) < _PIPE_HEADER_BYTES:
        raise ReadError(f"{path} is no whole perf.data: its header is missing")
    (header_bytes,) = struct.unpack_from("<Q", octets.data, 8)
    try:
        file = _piped(octets) if header_bytes == _PIPE_HEADER_BYTES else _filed(octets)
    except struct.error as error:
        raise ReadError(f"{path} is no whole perf.data: its header is damaged") from error
    if not file.events:
        raise ReadError(f"{path} was cut before perf had written which events it records")
    _name_events(file)
    return file


def _octets(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            if file.read(2) == _GZIP:
                return np.frombuffer(_unpacked(path), np.uint8)
            if file.seek(0, io.SEEK_END) == 0:
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error


def _unpacked(path: Path) -> bytes:
    """What is packed in `path`, up to where it is damaged."""
    pieces, length = [], 0
    with gzip.open(path, "rb") as file:
        try:
            while length < _MOST_BYTES and (piece := file.read1(1 << 20)):
                pieces.append(piece)
                length += len(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            pass
    return b"".join(pieces)


# -- file and pipe ---------------------------------------------------------------------------------


def _filed(octets: np.ndarray) -> PerfFile:
    """A file with a header."""
    attr_bytes, attrs_at, attrs_bytes, data_at, data_bytes = struct.unpack_from(
        "<5Q", octets.data, 16
    )
    flags = octets[72:_FILE_HEADER_BYTES].tobytes()
    file = PerfFile()
    if 80 <= attr_bytes < 1 << 12:
        for at in range(
            attrs_at, min(attrs_at + attrs_bytes, len(octets) - attr_bytes + 1), attr_bytes
        ):
            event = _event(octets[at : at + attr_bytes - 16].tobytes())
            ids_at, ids_bytes = struct.unpack_from("<2Q", octets.data, at + attr_bytes - 16)
            if ids_at < len(octets):
                event.ids = _ids(octets[ids_at : ids_at + ids_bytes])
            file.events.append(event)
    end = data_at + data_bytes
    file.finished = data_bytes > 0 and end <= len(octets)
    if file.finished:
        file.features = _sections(octets, end, int.from_bytes(flags, "little"))
        file.build_ids = file.features.get(BUILD_ID, b"")
    else:
        end = len(octets)
    _add_records(file, octets, min(data_at, end), end)
    return file


def _sections(octets: np.ndarray, at: int, flags: int) -> dict[int, bytes]:
    found = {}
    for number in range(_MOST_FEATURES):
        is_set = flags >> number & 1
        if not is_set or at + 16 > len(octets):
            continue
        start, length = struct.unpack_from("<2Q", octets.data, at)
        at += 16
        end = start + length
        if end <= len(octets):
            found[number] = octets[start:end].tobytes()
    return found


def _piped(octets: np.ndarray) -> PerfFile:
    """What perf wrote into a pipe: events and features are records like others."""
    file = PerfFile()
    _add_records(file, octets, _PIPE_HEADER_BYTES, len(octets))
    for records in file.records:
        for row in _rows_of(records, HEADER_ATTR, EVENT_UPDATE, HEADER_FEATURE):
            content = records.bytes(row)[8:]
            _take_header(file, int(records.type[row]), content)
        for row in _rows_of(records, HEADER_BUILD_ID):
            file.build_ids += records.bytes(row)
        for row in _rows_of(records, HEADER_TRACING_DATA):
            behind = records.octets[records.end[row] :]
            file.features[TRACING_DATA] = behind.tobytes()[: 1 << 24]
    return file


def _rows_of(records: Records, *types: int) -> list[int]:
    """Where the records of these types are."""
    is_one = np.isin(records.type, types)
    rows: list[int] = np.flatnonzero(is_one).tolist()
    return rows


def _take_header(file: PerfFile, type_: int, content: bytes) -> None:
    """Take in what a pipe has as a record and a file in its header."""
    if type_ == HEADER_ATTR and len(content) >= 64:
        length = _number(content[4:8]) or 64
        event = _event(content[:length])
        event.ids = _ids(np.frombuffer(content, np.uint8)[length:])
        file.events.append(event)
    elif type_ == EVENT_UPDATE and len(content) >= 16:
        what, id_ = struct.unpack_from("<2Q", content)
        if what != _EVENT_UPDATE_NAME:
            return
        for event in file.events:
            if id_ in event.ids:
                event.name = _text(content[16:])
    elif type_ == HEADER_FEATURE and len(content) >= 8:
        number = _number(content[:8])
        file.features[number] = content[8:]


def _event(attr: bytes) -> PerfEvent:
    """The event of a struct perf_event_attr, of whatever version: what it is too short for is 0."""
    attr = attr.ljust(112, b"\0")
    length = struct.unpack_from("<I", attr, 4)[0] or 64
    attr = attr[:length].ljust(112, b"\0")
    type_, _, config, period, sample_type, read_format, flags = struct.unpack_from("<IIQQQQQ", attr)
    branch_type, user_registers, _, clock = struct.unpack_from("<QQIi", attr, 72)
    return PerfEvent(
        type_,
        config,
        min(period, _MOST_NS),
        sample_type,
        read_format,
        branch_type,
        user_registers,
        clock,
        flags,
    )


def _ids(octets: np.ndarray) -> list[int]:
    whole_bytes = len(octets) // 8 * 8
    content = octets[:whole_bytes].tobytes()
    ids: list[int] = np.frombuffer(content, "<u8").tolist()
    return ids


def _name_events(file: PerfFile) -> None:
    """Give each event its name: as the user wrote it, if perf tells, else the kernel's."""
    content = file.features.get(EVENT_DESC, b"")
    if len(content) > 8:
        count, attr_bytes = struct.unpack_from("<II", content)
        at, events = 8, iter(file.events)
        while count and at + attr_bytes + 8 <= len(content):
            ids, length = struct.unpack_from("<II", content, at + attr_bytes)
            event = next(events, None)
            if event is None:
                break
            event.name = event.name or _text(
                content[at + attr_bytes + 8 : at + attr_bytes + 8 + length]
            )
            at, count = at + attr_bytes + 8 + length + 8 * ids, count - 1
    for event in file.events:
        known = {HARDWARE: _HARDWARE, SOFTWARE: _SOFTWARE}.get(event.type, ())
        if not event.name:
            event.name = (
                known[event.config]
                if event.config < len(known)
                else f"event {event.type}:{event.config:#x}"
            )


# -- records ---------------------------------------------------------------------------------------


def _add_records(file: PerfFile, octets: np.ndarray, start: int, end: int) -> None:
    """Add the records between these places, and those that are packed in them."""
    records, stop = _walked(octets, start, end)
    file.cut_at = stop if stop < end else None
    file.records.append(records)
    packed = b"".join(_packed(records))
    if not packed:
        return
    content = np.frombuffer(zstd_stream.inflated(packed, _MOST_BYTES), np.uint8)
    inner, stop = _walked(content, 0, len(content))
    file.records.append(inner)
    if file.cut_at is None and stop != len(content):
        file.cut_at = end


def _walked(octets: np.ndarray, start: int, end: int) -> tuple[Records, int]:
    """The records from `start` on, and where the last whole one ends.

    They are a linked list, so one loop sees each of them. It looks at lengths only.
    """
    view, header = octets.data, struct.Struct("<I2xH").unpack_from
    starts: list[int] = []
    at, last = start, end - 8
    while at <= last:
        type_, length = header(view, at)
        if length < 8:
            break
        starts.append(at)
        at += length
        if type_ in _WITH_DATA_BEHIND:
            at += _behind(octets, at - length)
    place = np.array(starts, np.int64)
    records = Records(octets, place, place, place, place)
    heads = records.words(place)
    records.type, records.misc = (
        (heads & 0xFFFFFFFF).astype(np.uint32),
        (heads >> 32 & 0xFFFF).astype(np.uint16),
    )
    records.end = place + (heads >> 48).astype(np.int64)
    if at > end:  # the last one, or what lies behind it, is not all there
        at = starts[-1]
        whole = slice(len(starts) - 1)
        records = Records(
            octets, place[whole], records.type[whole], records.misc[whole], records.end[whole]
        )
    return records, at


def _behind(octets: np.ndarray, at: int) -> int:
    """How many bytes lie behind the record at this place that do not count as its own."""
    type_ = _number(octets[at : at + 4].tobytes())
    content = octets[at + 8 : at + 16].tobytes()
    if type_ == AUXTRACE:
        return _number(content)
    size = _number(content[:4])
    return size + 7 & ~7


def _packed(records: Records) -> Iterator[bytes]:
    """The packed contents of the records that have some."""
    for row in _rows_of(records, COMPRESSED, COMPRESSED2):
        content = records.bytes(row)[8:]
        has_length = records.type[row] == COMPRESSED2
        if has_length and len(content) >= 8:
            length = _number(content[:8])
            content = content[8 : 8 + length]
        yield content


# -- texts -----------------------------------------------------------------------------------------


def _number(content: bytes) -> int:
    return int.from_bytes(content, "little")


def _text(content: bytes) -> str:
    """A text up to its end, which is a 0."""
    text, _, _ = content.partition(b"\0")
    return text.decode("utf-8", "replace")


def _texts(content: bytes, count: int) -> Iterator[str]:
    """So many texts, each with its length before it."""
    at = 0
    for _ in range(count):
        start = at + 4
        if start > len(content):
            return
        length = _number(content[at:start])
        at = start + length
        yield _text(content[start:at])
