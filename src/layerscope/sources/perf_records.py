"""What the records of a `perf.data` file say: samples as columns, and each other record that
matters here.

Samples of one event have one order of fields (perf_event_open(2)); a few of them have a length of
their own, so that a cursor for each sample goes over the fields, all samples at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from msgspec import Struct

from layerscope.model.distinct import distinct
from layerscope.sources.perf_file import ARCH, PerfEvent, PerfFile, Records

# Records of the kernel (PERF_RECORD_*).
MMAP, LOST, COMM, EXIT, THROTTLE, FORK, SAMPLE, MMAP2 = 1, 2, 3, 4, 5, 7, 9, 10
LOST_SAMPLES, SWITCH, SWITCH_CPU_WIDE, CALLCHAIN_DEFERRED = 13, 14, 15, 22
# Bits of `misc`.
MODE_MASK, MODE_KERNEL, MODE_USER = 7, 1, 2
COMM_EXEC = SWITCH_OUT = 1 << 13
MMAP_BUILD_ID = SWITCH_PREEMPTED = 1 << 14
MMAP_DATA = 1 << 13
# Bits of sample_type (PERF_SAMPLE_*), in the order of the fields; the first is IDENTIFIER.
(
    IP,
    TID,
    TIME,
    ADDR,
    READ,
    CALLCHAIN,
    ID,
    CPU,
    PERIOD,
    STREAM_ID,
    RAW,
    BRANCH,
    REGS_USER,
    STACK_USER,
) = (1 << bit for bit in range(14))
IDENTIFIER = 1 << 16
_ENABLED, _RUNNING, _READ_ID, _GROUP, _READ_LOST = (1 << bit for bit in range(5))
_BRANCH_INDEX = 1 << 17
# Which register of sample_regs_user is the instruction pointer (enum perf_event_*_regs of each
# architecture).
_POINTERS = {
    "x86_64": 8,
    "i686": 8,
    "i386": 8,
    "aarch64": 32,
    "arm": 15,
    "armv7l": 15,
    "riscv64": 0,
    "ppc64le": 32,
    "ppc64": 32,
    "s390x": 33,
    "loongarch64": 32,
}
# Values in a chain from here on say whose the addresses behind them are (PERF_CONTEXT_*).
CONTEXTS = (1 << 64) - 4095
CONTEXT_KERNEL, CONTEXT_USER = (1 << 64) - 128, (1 << 64) - 512
_PIECE = 1 << 16


class PerfSamples(Struct):
    """Samples as columns. `event`: index into the events of the file. `mode`: MODE_KERNEL,
    MODE_USER or another.

    `chain`: index into `chains`, whose texts are 64-bit words from the innermost on with marks
    between them; 0 is the empty one. `tail`: one more address outside of the chain, in `tail_mode`:
    the only one where no chain was asked for; 0: none. `raw`: index into `raws`, what a tracepoint
    tells. `piece`: which of the file's records it is in, and where in them the registers and the
    copy of the user's stack are that perf has made to unwind it (`stack_bytes` 0: none).
    """

    event: np.ndarray
    time: np.ndarray
    pid: np.ndarray
    tid: np.ndarray
    cpu: np.ndarray
    period: np.ndarray
    mode: np.ndarray
    chain: np.ndarray
    tail: np.ndarray
    tail_mode: np.ndarray
    raw: np.ndarray
    piece: np.ndarray
    registers_at: np.ndarray
    stack_at: np.ndarray
    stack_bytes: np.ndarray

    def taken(self, rows: np.ndarray) -> PerfSamples:
        """The samples at these places."""
        columns = {}
        for name in self.__struct_fields__:
            values = getattr(self, name)
            columns[name] = values[rows]
        return PerfSamples(**columns)


class PerfStrings(Struct):
    """Distinct texts of bytes by their number. `b""` is 0."""

    numbers: dict[bytes, int]

    def add(self, records: Records, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The number of what stands between each of these places, which ascend."""
        bounds = np.column_stack([start, stop]).ravel()
        if not len(bounds):
            return np.zeros(0, np.int32)
        first, last = int(bounds[0]), int(bounds[-1])
        count = len(bounds) - 1
        offsets = pa.py_buffer(bounds - first)
        content = pa.py_buffer(records.octets[first:last])
        buffers = [None, offsets, content]
        all_ = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)
        # Every second element is what lies between two texts.
        places = pa.array(np.arange(0, count, 2))
        found = all_.take(places).dictionary_encode()
        known = []
        for text in found.dictionary.to_pylist():
            number = self.numbers.setdefault(text, len(self.numbers))
            known.append(number)
        numbers: np.ndarray = np.array(known, np.int32)[found.indices.to_numpy()]
        return numbers


class Decoded(Struct):
    """The samples of a file, its distinct chains and raw data, and how many samples could not be
    understood.
    """

    samples: PerfSamples
    chains: list[bytes]
    raws: list[bytes]
    damaged: int
    unknown: int


def decoded(file: PerfFile) -> Decoded:
    """All samples of `file`, in the order of the file."""
    chains, raws = PerfStrings({b"": 0}), PerfStrings({b"": 0})
    pieces, damaged, unknown = [], 0, 0
    pointer = {event: _pointer(one, file) for event, one in enumerate(file.events)}
    for number_of_piece, records in enumerate(file.records):
        rows = np.flatnonzero(records.type == SAMPLE)
        for first in range(0, len(rows), _PIECE):
            piece = rows[first : first + _PIECE]
            event = _events(file, records, piece)
            unknown += int(np.count_nonzero(event < 0))
            for number in distinct(event[event >= 0]).tolist():
                one, bad = _decode(
                    records,
                    piece[event == number],
                    number,
                    file.events[number],
                    pointer[number],
                    chains,
                    raws,
                )
                one.piece = np.full(len(one.event), number_of_piece, np.int32)
                pieces.append(one)
                damaged += bad
    columns = {
        name: np.concatenate([getattr(one, name) for one in pieces] or [np.zeros(0, np.int64)])
        for name in PerfSamples.__struct_fields__
    }
    return Decoded(
        PerfSamples(**columns), list(chains.numbers), list(raws.numbers), damaged, unknown
    )


def _events(file: PerfFile, records: Records, rows: np.ndarray) -> np.ndarray:
    """Of which event each of these samples is; -1: of none that is described."""
    sample_type = file.events[0].sample_type
    has_number = sample_type & (IDENTIFIER | ID)
    if len(file.events) == 1 or not has_number:
        return np.zeros(len(rows), np.int32)
    at = records.start[rows] + 8
    if not sample_type & IDENTIFIER:
        before = sample_type & (IP | TID | TIME | ADDR)
        at = at + 8 * before.bit_count()
    return _by_id(file, records.words(at))


def _by_id(file: PerfFile, ids: np.ndarray) -> np.ndarray:
    """Of which event each of these numbers is; -1: of none."""
    known: list[tuple[int, int]] = []
    for number, event in enumerate(file.events):
        known += [(id_, number) for id_ in event.ids]
    if not known:
        return np.zeros(len(ids), np.int32)
    known.sort()
    keys = np.array([id_ for id_, _ in known], np.uint64)
    events = np.array([number for _, number in known], np.int32)
    place = np.searchsorted(keys, ids)
    place = np.minimum(place, len(keys) - 1)
    is_known = keys[place] == ids
    found: np.ndarray = np.where(is_known, events[place], -1)
    return found


def _pointer(event: PerfEvent, file: PerfFile) -> int | None:
    """Where the instruction pointer is among the registers of a sample; None: it is not."""
    recorded = event.user_registers
    register = _POINTERS.get(file.text(ARCH) or "x86_64")
    if register is None or not recorded >> register & 1:
        return None
    all_before = (1 << register) - 1
    return (recorded & all_before).bit_count()


class _Cursor(Struct):
    """A place in each of some records, which moves over their fields."""

    records: Records
    at: np.ndarray

    def take(self, is_there: int = 1) -> np.ndarray:
        """The next 8 bytes; nothing but 0 if the field `is_there` not."""
        if not is_there:
            return np.zeros(len(self.at), np.uint64)
        position = self.at
        found = self.records.words(position)
        self.at = position + 8
        return found

    def counted(self, each: int = 1, most: int = 1 << 16) -> np.ndarray:
        """How many of `each` words follow, which is skipped with them."""
        limited = np.minimum(self.take(), most)
        count: np.ndarray = limited.astype(np.int64)
        skipped_bytes = 8 * each * count
        self.at = self.at + skipped_bytes
        return count


def _decode(
    records: Records,
    rows: np.ndarray,
    number: int,
    event: PerfEvent,
    pointer: int | None,
    chains: PerfStrings,
    raws: PerfStrings,
) -> tuple[PerfSamples, int]:
    """The samples `rows` of one event, and how many more make no sense."""
    has, end = event.sample_type, records.end[rows]
    count = len(rows)
    cursor = _Cursor(records, records.start[rows] + 8)
    cursor.take(has & IDENTIFIER)
    ip = cursor.take(has & IP)
    thread = cursor.take(has & TID)
    time = cursor.take(has & TIME)
    for bit in (ADDR, ID, STREAM_ID):
        cursor.take(has & bit)
    cpu = cursor.take(has & CPU)
    period = cursor.take(has & PERIOD)
    if has & READ:
        _skip_read(cursor, event.read_format)
    chain_at = cursor.at + 8
    length = cursor.counted() if has & CALLCHAIN else np.zeros(count, np.int64)
    raw_at = cursor.at + 4
    raw_bytes = np.zeros(count, np.int64)
    if has & RAW:
        raw_bytes = (cursor.take() & 0xFFFFFFFF).astype(np.int64)
        cursor.at = cursor.at - 4 + raw_bytes
    at = cursor.at
    has_user = has & REGS_USER
    user = _user_pointer(cursor, event, pointer) if has_user else np.zeros(count, np.uint64)
    registers_at = cursor.at - 8 * event.user_registers.bit_count()
    fits = (at <= end) & (cursor.at <= end)
    stack_at, stack_bytes = _user_stack(cursor, event, fits & (user != 0), end)
    good = np.flatnonzero(fits)
    thread, user, length = thread[good], user[good], length[good]
    chain = raw = np.zeros(len(good), np.int32)
    if has & CALLCHAIN:
        start = chain_at[good]
        chain = chains.add(records, start, start + 8 * length)
    if has & RAW:
        start = raw_at[good]
        raw = raws.add(records, start, start + raw_bytes[good])
    mode = (records.misc[rows] & MODE_MASK).astype(np.int8)[good]
    from_registers = (user != 0) & event.has("exclude_callchain_user")
    alone = np.where(length == 0, ip[good], 0)
    tail_mode = np.where(from_registers, MODE_USER, mode)
    if not has & PERIOD:
        period = np.full(count, event.period, np.uint64)
    samples = PerfSamples(
        event=np.full(len(good), number, np.int32),
        time=time[good].astype(np.int64),
        pid=_low(thread),
        tid=_high(thread),
        cpu=_low(cpu[good]) if has & CPU else np.full(len(good), -1),
        period=period[good].astype(np.int64),
        mode=mode,
        chain=chain,
        tail=np.where(from_registers, user, alone),
        tail_mode=tail_mode.astype(np.int8),
        raw=raw,
        piece=np.zeros(len(good), np.int32),
        registers_at=registers_at[good],
        stack_at=stack_at[good],
        stack_bytes=stack_bytes[good],
    )
    return samples, count - len(good)


def _user_stack(
    cursor: _Cursor, event: PerfEvent, has_one: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the copies of the stacks are that perf itself is to unwind, and how much of each is
    filled; 0: there is none.
    """
    at, length = np.zeros(len(end), np.int64), np.zeros(len(end), np.int64)
    rows = np.flatnonzero(has_one)
    if not event.sample_type & STACK_USER or not event.has("exclude_callchain_user"):
        return at, length
    size = np.minimum(cursor.records.words(cursor.at[rows]), 1 << 16).astype(np.int64)
    is_whole = (size > 0) & (cursor.at[rows] + 16 + size <= end[rows])
    rows, size = rows[is_whole], size[is_whole]
    at[rows] = cursor.at[rows] + 8
    filled = cursor.records.words(at[rows] + size)
    length[rows] = np.minimum(filled, size.astype(np.uint64)).astype(np.int64)
    return at, length


def _low(words: np.ndarray) -> np.ndarray:
    """The lower half of each word, as a signed number."""
    half = words & 0xFFFFFFFF
    unsigned = half.astype(np.uint32)
    return unsigned.astype(np.int32)


def _high(words: np.ndarray) -> np.ndarray:
    """The upper half of each word, as a signed number."""
    half = words >> 32
    unsigned = half.astype(np.uint32)
    return unsigned.astype(np.int32)


def _skip_read(cursor: _Cursor, format_: int) -> None:
    """Go over the values that were read with a sample."""
    each = 1 + bool(format_ & _READ_ID) + bool(format_ & _READ_LOST)
    times = bool(format_ & _ENABLED) + bool(format_ & _RUNNING)
    if format_ & _GROUP:
        cursor.counted(each)
        cursor.at = cursor.at + 8 * times
    else:
        cursor.at = cursor.at + 8 * (each + times)


def _user_pointer(cursor: _Cursor, event: PerfEvent, pointer: int | None) -> np.ndarray:
    """The instruction pointer of the user's side, where its registers are told; 0 elsewhere."""
    if event.sample_type & BRANCH:
        branches = np.minimum(cursor.take(), 1 << 16).astype(np.int64)
        cursor.take(event.branch_type & _BRANCH_INDEX)
        cursor.at = cursor.at + 24 * branches
    has_registers = cursor.take() != 0
    if pointer is None:
        return np.zeros(len(cursor.at), np.uint64)
    place = cursor.at
    registers_bytes = 8 * event.user_registers.bit_count()
    cursor.at = place + registers_bytes * has_registers
    values = cursor.records.words(place + 8 * pointer)
    return np.where(has_registers, values, 0)


def groups(keys: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Each distinct key with the rows that have it."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    rows = np.split(order, first[1:])
    return list(zip(distinct.tolist(), rows, strict=True))


# -- other records ---------------------------------------------------------------------------------


def moments(
    file: PerfFile, records: Records, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(time, pid, tid) of these records, none of them a sample, from what each has at its end; 0,
    -1, -1: not told.

    What perf itself says about processes that were there before has the time 0.
    """
    count = len(rows)
    time = np.zeros(count, np.int64)
    pid = np.full(count, -1, np.int32)
    tid = np.full(count, -1, np.int32)
    event = np.zeros(count, np.int32)
    if len(file.events) > 1 and file.events[0].sample_type & IDENTIFIER:
        ids = records.words(records.end[rows] - 8)
        event = np.maximum(_by_id(file, ids), 0)
    for number in distinct(event).tolist():
        settings = file.events[number]
        if not settings.has("sample_id_all"):
            continue
        has = settings.sample_type
        of_event = np.flatnonzero(event == number)
        end = records.end[rows[of_event]]
        behind_time = 8 * (has & (ID | STREAM_ID | CPU | IDENTIFIER)).bit_count()
        whole = behind_time + 8 * (has & (TID | TIME)).bit_count()
        content_start = records.start[rows[of_event]] + 8
        is_there = end - whole >= content_start
        of_event, end = of_event[is_there], end[is_there]
        if has & TIME:
            words = records.words(end - behind_time - 8)
            time[of_event] = words.astype(np.int64)
        if has & TID:
            thread = records.words(end - whole)
            pid[of_event] = _low(thread)
            tid[of_event] = _high(thread)
    return time, pid, tid


def of_type(file: PerfFile, *types: int) -> Iterator[tuple[Records, np.ndarray]]:
    """The records of these types, stream by stream: which rows they are."""
    for records in file.records:
        rows = np.flatnonzero(np.isin(records.type, types))
        if len(rows):
            yield records, rows
