"""What a snapshot of PyTorch's memory holds, as columns: the events of each device's history and
the blocks of each segment. Used by `torch_snapshot`.

Both are taken out of the pickle while it is read: what stays of a stack is the line of the program,
and of an event and a block a row of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from layerscope.model.compiled import compiled
from layerscope.model.errors import ReadError
from layerscope.sources.plain_pickle import PlainPickle
from layerscope.sources.snapshot_events import (
    KEYS,
    QuickEvents,
    line_and_rank,
    number_of_place,
    number_of_text,
)
from layerscope.sources.snapshot_events import OTHER as OTHER_ENTRY

# What the allocator did, by the number that it has here; what else there is does not matter.
OTHER, ALLOC, FREE_REQUESTED, FREE_COMPLETED = range(4)
SEGMENT_ALLOC, SEGMENT_FREE, OUT_OF_MEMORY, SNAPSHOT = range(4, 8)
_ACTIONS = {
    "alloc": ALLOC,
    "free_requested": FREE_REQUESTED,
    "free_completed": FREE_COMPLETED,
    "segment_alloc": SEGMENT_ALLOC,
    "segment_map": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE,
    "segment_unmap": SEGMENT_FREE,
    "oom": OUT_OF_MEMORY,
    "snapshot": SNAPSHOT,
}
# Whether a tensor has the block; what waits for a stream has been released by the program.
_IS_LIVE = {"active_allocated": 1}
# Rows that are kept as objects before they become columns.
_ROWS = 1 << 15
_MOST_LINES, _OTHER_LINES = 1 << 20, "(other lines)"
# As long as those that the agent records.
_LINE_LETTERS = 200
_NOTHING, _OF_LIBRARY, _OWN = range(3)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3(\.\d+)?/|^<")
_NO_LINE = re.compile(r"/(site|dist)-packages/torch/|^<frozen |^torch/|^/?$")
_PYTHON = re.compile(r"\.pyw?$|^<")
_MOST = 1 << 62
# Events that are read at most: some gigabytes of memory.
_MOST_EVENTS = 100_000_000


class _Place:
    """The line of the program that a stack comes from; `rank`: how good it is."""

    __slots__ = ("line", "rank")

    def __init__(self, line: int, rank: int) -> None:
        self.line = line
        self.rank = rank


# The key of the place in a frame: no pickle has it.
_KEY: Any = object()
_NO_PLACE = _Place(-1, _NOTHING)


Types = tuple[type[np.integer[Any]], ...]


class SnapshotRows:
    """Rows of numbers that come some at a time; `of`: the list that they stand in; `types`: of the
    columns.
    """

    def __init__(self, of: list[Any], types: Types) -> None:
        self.of = of
        self._types = types
        self._waiting: list[list[Any]] = [[] for _ in types]
        self._parts: list[list[np.ndarray]] = [[] for _ in types]

    def add(self, *columns: list[Any]) -> None:
        """Some rows, as columns."""
        for waiting, values in zip(self._waiting, columns, strict=True):
            waiting += values
        if len(self._waiting[0]) >= _ROWS:
            self._flush()

    def add_columns(self, columns: np.ndarray) -> None:
        """Many rows, an array for each column."""
        self._flush()
        self._keep(list(columns))

    def columns(self) -> list[np.ndarray]:
        """All rows: an array for each column. They are handed over, one column after the other, so
        that not all of them are there twice.
        """
        self._flush()
        found = []
        for kind, parts in zip(self._types, self._parts, strict=True):
            found.append(np.concatenate([np.zeros(0, kind), *parts]))
            parts.clear()
        return found

    def _flush(self) -> None:
        if self._waiting[0]:
            self._keep([_integers(values) for values in self._waiting])
        for values in self._waiting:
            values.clear()

    def _keep(self, columns: list[np.ndarray]) -> None:
        all_ = zip(self._types, self._parts, columns, strict=True)
        for kind, parts, values in all_:
            narrow = values.astype(kind)
            parts.append(narrow)


def _integers(values: list[Any]) -> np.ndarray:
    """Whole numbers; -1 for everything else."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([integer(value) for value in values], np.int64)


def integer(value: Any) -> int:
    """A whole number, -1 where there is none or an impossible one."""
    if type(value) is float and abs(value) < _MOST:
        return int(value)
    return value if type(value) is int and 0 <= value < _MOST else -1


class SnapshotRecords:
    """Reads the pickle and keeps its records. `lines`: the texts of lines by their number, which
    grow. `root`: the rest of it.
    """

    # Columns of events and of blocks. Of an event without memory that was free, -1.
    EVENTS = ("action", "address", "size", "time_us", "line", "free")
    BLOCKS = ("address", "size", "requested", "is_live", "line")
    _EVENT_TYPES = (np.int8, np.int64, np.int64, np.int64, np.int32, np.int64)
    _BLOCK_TYPES = (np.int64, np.int64, np.int64, np.int8, np.int32)

    def __init__(self, pieces: Iterator[bytes], name: str, lines: dict[str, int]) -> None:
        self._lines = lines
        self._events: dict[int, SnapshotRows] = {}
        self._blocks: dict[int, SnapshotRows] = {}
        self._count = 0
        self._places: dict[int, _Place] = {}
        library = compiled()
        if library is None:
            self._pickle = PlainPickle(pieces, name, self._take)
        else:
            self._quick = QuickEvents(library, self._number_of, self._entry_of, self._text_of)
            self._pickle = PlainPickle(pieces, name, self._take, self._read_on, KEYS[0])
        self._name = name
        root = self._pickle.read()
        self._pickle.forget()
        if type(root) is list:  # of torch.cuda.memory_snapshot()
            root = {"segments": root}
        if type(root) is not dict:
            raise ReadError(f"{name} is a pickle, but holds no snapshot of PyTorch's memory")
        self.root: dict[str, Any] = root

    def events_of(self, trace: Any) -> dict[str, np.ndarray]:
        """The events of one device, a list of `device_traces`, as columns."""
        return self._columns(self._events.get(id(trace)), self.EVENTS, self._EVENT_TYPES)

    def blocks_of(self, blocks: Any) -> dict[str, np.ndarray]:
        """The blocks of a segment as columns."""
        return self._columns(self._blocks.get(id(blocks)), self.BLOCKS, self._BLOCK_TYPES)

    @staticmethod
    def _columns(
        rows: SnapshotRows | None, names: tuple[str, ...], types: Types
    ) -> dict[str, np.ndarray]:
        if rows is None:
            rows = SnapshotRows([], types)
        columns = rows.columns()
        return dict(zip(names, columns, strict=True))

    def _take(self, into: list[Any], items: list[Any]) -> list[Any]:
        """What is appended to a list: records become rows."""
        # Whatever else stands between records: where it stands does not matter.
        first = next((item for item in items if type(item) is dict), None)
        if first is None:
            return items
        if _KEY in first or "filename" in first:
            return self._take_frames(into, items)
        if "action" in first:
            found = [item for item in items if type(item) is dict]
            self._take_events(self._rows(self._events, into, self._EVENT_TYPES), found)
            return []
        if "state" in first and "size" in first:
            found = [item for item in items if type(item) is dict]
            self._take_blocks(self._rows(self._blocks, into, self._BLOCK_TYPES), found)
            return []
        return items

    @staticmethod
    def _rows(known: dict[int, SnapshotRows], into: list[Any], types: Types) -> SnapshotRows:
        rows = known.get(id(into))
        if rows is None:
            rows = known[id(into)] = SnapshotRows(into, types)
        return rows

    def _read_on(self, into: list[Any], data: bytes, at: int, memo: list[Any]) -> int:
        """Have the events read that follow in the list `into`."""
        rows = self._rows(self._events, into, self._EVENT_TYPES)
        while True:
            columns, reached = self._quick.read(data, at, memo)
            if reached == at:
                return at
            at = reached
            rows.add_columns(columns)
            self._add_count(columns.shape[1])

    def _number_of(self, entry: Any) -> int:
        """What the compiled reader calls an entry of the memo."""
        if type(entry) is str:
            return number_of_text(entry, _ACTIONS)
        if type(entry) is dict and ("filename" in entry or _KEY in entry):
            place = entry.get(_KEY) or self._place(entry)
            return number_of_place(place.line, place.rank, is_stack=False)
        if type(entry) is list and len(entry) == 1:
            (entry,) = entry
        if type(entry) is _Place:
            return number_of_place(entry.line, entry.rank, is_stack=True)
        return OTHER_ENTRY

    def _entry_of(self, number: int) -> _Place:
        """What stands in the memo for a stack that the compiled reader has read."""
        place = self._places.get(number)
        if place is None:
            line, rank = line_and_rank(number)
            place = self._places[number] = _Place(line, rank)
        return place

    def _text_of(self, octets: bytes) -> str:
        return self._pickle.text(octets)

    def _add_count(self, count: int) -> None:
        self._count += count
        if self._count > _MOST_EVENTS:
            raise ReadError(
                f"{self._name} has more than {_MOST_EVENTS:,} events: write a snapshot with fewer "
                "max_entries"
            )

    def _take_events(self, rows: SnapshotRows, items: list[dict[str, Any]]) -> None:
        self._add_count(len(items))
        actions = [item.get("action") for item in items]
        rows.add(
            [_ACTIONS.get(one, OTHER) if type(one) is str else OTHER for one in actions],
            [item.get("addr", -1) for item in items],
            [item.get("size", -1) for item in items],
            [item.get("time_us", -1) for item in items],
            self._lines_of(items),
            [item.get("device_free", -1) for item in items],
        )
        self._pickle.take_out(items)

    def _take_blocks(self, rows: SnapshotRows, items: list[dict[str, Any]]) -> None:
        states = [item.get("state") for item in items]
        # Before PyTorch 2.2 a block had the requested size and the stack in its history.
        past = [_first(item.get("history")) for item in items]
        requested = [
            item.get("requested_size", of.get("real_size", item.get("size", -1)))
            for item, of in zip(items, past, strict=True)
        ]
        rows.add(
            [item.get("address", of.get("addr", -1)) for item, of in zip(items, past, strict=True)],
            [item.get("size", -1) for item in items],
            requested,
            [_IS_LIVE.get(one, 0) if type(one) is str else 0 for one in states],
            self._lines_of(
                [item if "frames" in item else of for item, of in zip(items, past, strict=True)]
            ),
        )
        self._pickle.take_out(items)

    def _lines_of(self, items: list[dict[str, Any]]) -> list[int]:
        """The lines of records with stacks, -1 where none is known."""
        stacks = [item.get("frames") for item in items]
        empty = [stack for stack in stacks if type(stack) is list and not stack]
        if empty:
            self._pickle.take_out(empty)
        return [_line(stack) for stack in stacks]

    def _take_frames(self, into: list[Any], items: list[Any]) -> list[Any]:
        """Of a stack the innermost line of the program, else that of a library but PyTorch."""
        best = into[0] if into and type(into[0]) is _Place else _NO_PLACE
        for frame in items:
            if best.rank == _OWN:
                break
            if type(frame) is dict:
                place = frame.get(_KEY) or self._place(frame)
                if place.rank > best.rank:
                    best = place
        into.clear()
        if best.rank == _OWN:
            self._pickle.put_in_place(into, best)
        return [best]

    def _place(self, frame: dict[Any, Any]) -> _Place:
        file, number = frame.get("filename"), frame.get("line")
        place = _NO_PLACE
        if type(file) is str and type(number) is int and 0 < number < 1 << 31:
            is_line = _PYTHON.search(file) and not _NO_LINE.search(file)
            if is_line:
                rank = _OF_LIBRARY if _LIBRARY.search(file) else _OWN
                place = _Place(self._line_number(f"{file}:{number}"), rank)
        frame[_KEY] = place
        return place

    def _line_number(self, text: str) -> int:
        text = text[-_LINE_LETTERS:]
        if len(self._lines) > _MOST_LINES:
            text = _OTHER_LINES
        return self._lines.setdefault(text, len(self._lines))


def _first(history: Any) -> dict[str, Any]:
    """The newest of what happened to a block."""
    if type(history) is list and history and type(history[0]) is dict:
        newest: dict[str, Any] = history[0]
        return newest
    return {}


def _line(stack: Any) -> int:
    """The line that a stack comes from."""
    if type(stack) is list:
        stack = stack[0] if stack else None
    return stack.line if type(stack) is _Place else -1
