"""Allocations and releases become blocks: laws against a second, slow way, and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.ingest import allocations
from layerscope.ingest.allocations import AllocationIngest, pair
from layerscope.ingest.process import IngestedProcess, TrackKeys
from layerscope.ingest.string_table import ProcessStrings, StringTable
from layerscope.model.clocks import Conversion, Identity
from layerscope.rawfile import dtypes, layout
from layerscope.sources.process import MEMORY, STOP, ProcessEvents, SourceProcess
from layerscope.sources.raw.memory import MemoryRecords

EVENTS = st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 9)), max_size=40)


def rows_of(events: list[tuple[bool, int, int]]) -> np.ndarray:
    """`events`: is a release, address, size; one each ns."""
    rows = np.zeros(len(events), MEMORY)
    rows["at_ns"] = np.arange(len(events))
    for name, place in (("is_release", 0), ("address", 1), ("bytes", 2)):
        rows[name] = [event[place] for event in events]
    return rows


@dataclass
class Expected:
    """What one event after the other leaves: blocks as (start, end, size, is_lost)."""

    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    live: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, at: int, is_release: bool, address: int, size: int) -> None:
        before = self.live.pop(address, None)
        if before is not None:
            self.ended.append((*before[:1], at, before[1], not is_release))
        if not is_release:
            self.live[address] = (at, size)


def expected(events: list[tuple[bool, int, int]]) -> Expected:
    found = Expected()
    for at, event in enumerate(events):
        found.add(at, *event)
    return found


@given(EVENTS)
def test_pairs_are_those_of_one_event_after_the_other(events: list[tuple[bool, int, int]]) -> None:
    rows = rows_of(events)

    found = pair(rows)

    right = expected(events)
    ended = rows[found.ended]
    columns = (ended["at_ns"], found.end_ns, ended["bytes"], found.is_lost)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == sorted(right.ended)
    live = rows[found.live]
    assert dict(zip(live["address"].tolist(), zip(live["at_ns"].tolist(), live["bytes"].tolist(), strict=True), strict=True)) == right.live  # fmt: skip


class Batches(ProcessEvents):
    """A process whose events come in batches."""

    batch: list[np.ndarray] = []  # noqa: RUF012 - each test gives its own

    def memory(self, last: bool = False) -> np.ndarray:
        return self.batch.pop(0) if self.batch else np.zeros(0, MEMORY)


def ingest(folder: Path, batches: list[np.ndarray], most_bytes: float = 1e9) -> Any:
    texts = StringTable()
    events = Batches()
    events.batch = list(batches)
    process = IngestedProcess(
        0, SourceProcess(events), ProcessStrings(texts, events.names), TrackKeys()
    )
    found = AllocationIngest(folder, texts, most_bytes)
    for _ in batches:
        found.add(process)
    found.add(process, last=True)
    found.finish()
    return found, pq.read_table(folder / "allocations" / "all.parquet").to_pylist()


@settings(max_examples=30)
@given(EVENTS, st.lists(st.integers(0, 40), max_size=4))
def test_any_cut_into_batches_gives_the_same_blocks(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[bool, int, int]], cuts: list[int]
) -> None:
    rows = rows_of(events)
    parts = np.split(rows, sorted(min(cut, len(rows)) for cut in cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocations, "LEAST_BATCH_ROWS", 1)
        found, blocks = ingest(tmp_path_factory.mktemp("blocks"), parts)

    right = expected(events)
    ended = [(one["at_ns"], one["at_ns"] + (one["dur_ns"] or 0), one["bytes"], one["is_lost"]) for one in blocks if one["dur_ns"] is not None]  # fmt: skip
    assert sorted(ended) == sorted(one for one in right.ended if not one[3])
    lost = [(one["at_ns"], one["bytes"]) for one in blocks if one["is_lost"]]
    assert sorted(lost) == sorted((one[0], one[2]) for one in right.ended if one[3])
    assert found.lost == len(lost)
    assert len(blocks) == len(right.ended) + len(right.live)


def test_sizes_beyond_4_gib_and_large_numbers_of_lines_come_through_the_record() -> None:
    size, line, address = (5 << 32) + 3, (7 << 16) + 9, (1 << 47) + 64
    records = np.zeros(2, dtypes.RECORD)
    records["kind"] = [layout.ALLOCATION, layout.RELEASE]
    records["start"] = [10, 20]
    records["end"] = [address | (size >> 32) << layout.ADDRESS_BITS, address]
    records["seq"][0] = np.array(size & 0xFFFFFFFF, np.uint32).view(np.int32)
    records["depth"][0] = line & 0xFFFF
    records["flags"][0] = line >> 16 | 2 << layout.PHASE_SHIFT | layout.BY_NUMPY
    waiting = MemoryRecords()
    waiting.add(np.array([4, 4], np.int32), records)

    assert len(waiting.known(Identity(), line, last=False)) == 0  # the name of the line is to come
    rows = waiting.known(Identity(), line + 1, last=True)

    fields = ("at_ns", "address", "bytes", "line", "phase", "allocator", "is_release", "track")
    assert [tuple(row[name] for name in fields) for row in rows] == [
        (10, address, size, line, 2, 1, 0, 4),
        (20, address, 0, 0, 0, 0, 1, 4),
    ]


def test_where_there_is_no_room_blocks_that_live_shortly_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "LEAST_BATCH_ROWS", 1)
    monkeypatch.setattr(allocations, "PART_ROWS", 1)
    batches = [rows_of([(False, 1, 100), (True, 1, 0), (False, 2, 7)]) for _ in range(5)]

    found, blocks = ingest(tmp_path, batches, most_bytes=1.0)

    assert [one["bytes"] for one in blocks].count(100) == 1
    assert (found.left_out, found.left_out_bytes) == (4, 400)
    # Those that nobody released stay, and those whose release was lost.
    assert [one["bytes"] for one in blocks].count(7) == 5
    (problem,) = [one for one in found.problems() if one.code == "blocks_left_out"]
    assert problem.what.startswith("4 blocks that lived less than a second")


def records_at(*starts: int) -> np.ndarray:
    records = np.zeros(len(starts), dtypes.RECORD)
    records["kind"] = layout.ALLOCATION
    records["start"] = starts
    records["end"] = starts
    return records


def test_what_is_written_down_a_little_late_comes_in_the_order_of_time() -> None:
    """A thread took the time 90 before the reading at 100, and wrote it down after that."""
    clock = Conversion()
    waiting = MemoryRecords()
    clock.add(0, 0)
    clock.add(100, 100)
    waiting.add(np.array([1, 1], np.int32), records_at(80, 95))
    first = waiting.known(clock, 1, last=False)
    waiting.add(np.array([2], np.int32), records_at(90))
    clock.add(200, 200)
    second = waiting.known(clock, 1, last=False)

    assert (len(first), second["at_ns"].tolist()) == (0, [80, 90, 95])


def test_where_recording_stops_blocks_are_known_to_live_until_then_and_no_longer(
    tmp_path: Path,
) -> None:
    rows = rows_of([(False, 1, 100), (False, 2, 7), (True, 2, 0), (False, 3, 9), (True, 1, 0)])
    rows["is_release"][3] = STOP

    found, blocks = ingest(tmp_path, [rows])

    assert [(one["at_ns"], one["dur_ns"], one["bytes"]) for one in blocks] == [
        (0, 3, 100),
        (1, 1, 7),
    ]
    assert [one.code for one in found.problems()] == ["blocks_of_windows"]


def test_a_stop_comes_with_the_records_around_it() -> None:
    waiting = MemoryRecords()
    waiting.add(np.array([1, 1], np.int32), records_at(10, 30))
    waiting.stop(20)

    rows = waiting.known(Identity(), 1, last=True)

    assert rows["at_ns"].tolist() == [10, 20, 30]
    assert rows["is_release"].tolist() == [0, STOP, 0]
