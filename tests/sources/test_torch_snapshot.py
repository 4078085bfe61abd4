"""Snapshots of PyTorch's memory with a known history: every block, what was reserved, and where the
most was; in every protocol of pickle, of older versions too, cut, damaged, and with other things
in them.
"""

from __future__ import annotations

import contextlib
import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.analyse.summary import summarise
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.show import summary as summary_text
from layerscope.sources import (
    known,
    memory_counters,
    plain_pickle,
    snapshot_records,
    torch_snapshot,
)
from tests.sources.snapshot_written import (
    MB,
    SITE,
    TORCH,
    Written,
    columns,
    frame,
    history,
    long_history,
)

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rows(path: Path, question: str) -> list[dict[str, Any]]:
    """What the recording made of the file says."""
    with Reader(open_run(path)) as reader:
        return reader.query(question).to_pylist()


BLOCKS = (
    "SELECT device, at_ns, dur_ns, bytes, line, is_lost FROM allocations "
    "ORDER BY at_ns, bytes, device"
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_block_has_its_size_line_device_and_life(protocol: int, tmp_path: Path) -> None:
    path = history().write(tmp_path / "snapshot.pickle", protocol)
    found = [tuple(row.values()) for row in rows(path, BLOCKS)]
    train, model = "/srv/project/train.py", "/srv/project/model.py"
    assert found == [
        # Two from before the history: one of them is released first.
        ("cuda:0", 0, 1_000, MB, "", False),
        ("cuda:0", 0, None, 2 * MB, f"{model}:3", False),
        ("cuda:0", 31_000, 20_000, 5 * MB, f"{train}:7", False),
        ("cuda:0", 41_000, None, 2 * MB, f"{train}:8", False),
        ("cuda:1", 91_000, None, 64, f"{train}:9", False),
    ]


def test_the_summary_is_of_memory(tmp_path: Path) -> None:
    """It does not miss operators, and names the table of the peak."""
    path = history().write(tmp_path / "snapshot.pickle")
    with Reader(open_run(path)) as reader:
        summary = summarise(reader)
    text = " ".join(summary_text.text(summary, "snapshot.pickle").split())
    assert (
        "Tensors: 9.44 MB at the peak on cuda:0, after 41.0 µs: temporary 5.24 MB, other 4.19 MB; "
        "most of /srv/project/train.py:7: 5.24 MB Not recorded: when they were allocated"
    ) in text
    assert "No operators" not in text
    assert text.endswith("Next: layerscope table snapshot.pickle peak")


def test_what_was_reserved_and_not_used_is_counted(tmp_path: Path) -> None:
    path = history().write(tmp_path / "snapshot.pickle")
    question = "SELECT at_ns, value FROM counters WHERE name = '{}' ORDER BY at_ns"
    values = {
        name: [
            (row["at_ns"], row["value"] / MB)
            for row in rows(path, question.format(f"{name}_bytes of cuda:0"))
        ]
        for name in ("allocated", "reserved", "unused")
    }
    allocated = [(0, 3), (1_000, 2), (31_000, 7), (41_000, 9), (51_000, 4), (81_000, 4)]
    assert values["allocated"] == allocated
    assert values["reserved"] == [(0, 4), (21_000, 12), (81_000, 12)]
    assert values["unused"] == [
        (0, 1),
        (1_000, 2),
        (21_000, 10),
        (31_000, 5),
        (41_000, 3),
        (51_000, 8),
        (81_000, 8),
    ]


def test_the_peak_says_what_was_reserved_and_unused(tmp_path: Path) -> None:
    path = history().write(tmp_path / "snapshot.pickle")
    marks = {row["at_ns"]: row["name"] for row in rows(path, "SELECT at_ns, name FROM marks")}
    assert marks[41_000] == (
        f"peak of cuda:0: {9 * MB:,} bytes allocated, {12 * MB:,} reserved, {3 * MB:,} of them "
        "unused (fragments, and what is kept for later)"
    )
    assert marks[71_000] == (
        f"out of memory on cuda:0: {80 * MB:,} bytes asked for, {3 * MB:,} were free"
    )
    assert marks[81_000] == "snapshot of cuda:0"


def test_what_was_there_before_the_history_is_said(tmp_path: Path) -> None:
    path = history().write(tmp_path / "snapshot.pickle")
    problems = rows(path, "SELECT code, what, remedy FROM problems")
    assert [row["code"] for row in problems] == ["history_begins_late"]
    assert f"2 blocks of cuda:0 ({3 * MB:,} bytes)" in problems[0]["what"]


def test_a_packed_snapshot_is_the_same(tmp_path: Path) -> None:
    plain = history().write(tmp_path / "snapshot.pickle")
    packed = tmp_path / "snapshot.pickle.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert rows(packed, BLOCKS) == rows(plain, BLOCKS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_snapshot_is_known_by_what_is_in_it(protocol: int, tmp_path: Path) -> None:
    content = history().write(tmp_path / "snapshot.pickle", protocol).read_bytes()
    empty = pickle.dumps({"segments": [], "device_traces": [[]]}, protocol)
    for head in (content, content[:5000], empty):
        assert [one.MEANING for one in known() if one.recognises(head)] == [torch_snapshot.MEANING]
    other = pickle.dumps({"state_dict": [1, 2, 3]}, protocol)
    assert not [one.MEANING for one in known() if one.recognises(other)]


STACKS = [
    ([TORCH, frame("/srv/a.py", 1), frame("/srv/b.py", 2)], "/srv/a.py:1"),
    ([frame(f"{SITE}/timm/layers.py", 5), TORCH, frame("/srv/a.py", 1)], "/srv/a.py:1"),
    ([TORCH, frame(f"{SITE}/timm/layers.py", 5)], f"{SITE}/timm/layers.py:5"),
    ([TORCH, frame("<string>", 4)], "<string>:4"),
    ([TORCH, frame("<frozen runpy>", 88)], ""),
    ([TORCH], ""),
    ([frame("??", 0), frame("/usr/src/at/native/x.cpp", 12), frame("libtorch.so", 0)], ""),
    ([], ""),
    ([frame("/srv/a.py", -1), frame("/srv/b.py", 1 << 40), frame("/srv/c.py", 3)], "/srv/c.py:3"),
    ([{"filename": 7, "line": "x", "name": None}, frame("/srv/c.py", 3)], "/srv/c.py:3"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_line_is_the_innermost_one_of_the_program(protocol: int, tmp_path: Path) -> None:
    written = Written()
    for number, (stack, _) in enumerate(STACKS):
        written.event("alloc", addr=1 + number, size=100 + number, frames=stack)
    path = written.write(tmp_path / "snapshot.pickle", protocol)
    found = rows(path, "SELECT bytes, line FROM allocations ORDER BY bytes")
    assert [row["line"] for row in found] == [line for _, line in STACKS]


def test_a_release_is_that_which_the_program_asked_for(tmp_path: Path) -> None:
    """Also where the allocator waits for a stream, and where only the end of it is told."""
    written = Written()
    written.alloc(10, 100)  # at 10 us behind the start, and so on
    written.event("free_requested", addr=10, size=100)
    written.alloc(20, 200)
    written.event("free_completed", addr=10, size=100)
    written.event("free_completed", addr=20, size=200)
    path = written.write(tmp_path / "snapshot.pickle")
    found = rows(path, "SELECT bytes, dur_ns FROM allocations ORDER BY at_ns")
    assert [tuple(row.values()) for row in found] == [(100, 10_000), (200, 20_000)]


def test_segments_that_grow_and_shrink_are_reserved(tmp_path: Path) -> None:
    """Those that the allocator maps bit by bit, too; of no segments the least is what is known."""
    written = Written()
    for action, size in (("unmap", 2), ("alloc", 6), ("map", 20), ("free", 6)):
        written.event(f"segment_{action}", addr=0x1000, size=size * MB)
    path = written.write(tmp_path / "snapshot.pickle")
    question = "SELECT value FROM counters WHERE name = 'reserved_bytes of cuda:0' ORDER BY at_ns"
    assert [row["value"] // MB for row in rows(path, question)] == [2, 0, 6, 26, 20]


def test_a_snapshot_with_far_too_many_events_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_records, "_MOST_EVENTS", 1_000)
    path = long_history(500).write(tmp_path / "snapshot.pickle")
    with pytest.raises(ReadError, match=r"more than 1,000 events: .* max_entries"):
        torch_snapshot.read(path)


def test_a_clock_that_went_back_leaves_the_order(tmp_path: Path) -> None:
    written = Written()
    written.alloc(10, 100)
    written.at_us -= 5_000_000
    written.free(10, 100)
    written.alloc(10, 300)
    path = written.write(tmp_path / "snapshot.pickle")
    found = rows(path, "SELECT bytes, dur_ns, is_lost FROM allocations ORDER BY bytes")
    assert [tuple(row.values()) for row in found] == [(100, 0, False), (300, None, False)]


def test_a_snapshot_of_before_pytorch_2_2_has_no_times(tmp_path: Path) -> None:
    """Nor has it addresses of blocks: stack and size are in their history."""
    written = Written()
    written.alloc(0x5000, 100)
    written.event("free_completed", addr=0x5000, size=100)
    for entry in written.traces[0]:
        del entry["time_us"]
    history_ = [{"addr": 0x1200, "real_size": 1000, "frames": written.stack("/srv/old.py", 4)}]
    blocks = [
        {"size": 512, "state": "inactive"},
        {"size": 1024, "state": "active_allocated", "history": history_},
    ]
    written.segments.append(
        {"device": 0, "address": 0x1000, "total_size": 2 * MB, "blocks": blocks}
    )
    path = written.write(tmp_path / "snapshot.pickle")
    found = rows(path, "SELECT bytes, line, dur_ns FROM allocations ORDER BY bytes")
    assert [tuple(row.values()) for row in found] == [
        (100, "/srv/project/train.py:7", 1_000),
        (1000, "/srv/old.py:4", None),
    ]
    assert "no_times" in [row["code"] for row in rows(path, "SELECT code FROM problems")]


def test_a_snapshot_without_a_history_has_what_was_held(tmp_path: Path) -> None:
    written = Written()
    written.segment(0x1000, 4 * MB, [(MB, MB, "active_allocated"), (MB, 9, "active_awaiting_free")])
    for content in (written.snapshot(), written.segments):
        path = tmp_path / f"{type(content).__name__}.pickle"
        path.write_bytes(pickle.dumps(content))
        found = rows(path, "SELECT bytes, line, dur_ns FROM allocations")
        assert [tuple(row.values()) for row in found] == [(MB, "/srv/project/model.py:3", None)]
        assert [row["code"] for row in rows(path, "SELECT code FROM problems")] == ["no_history"]


def test_a_long_history_is_not_kept_as_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far less may be held than there are events."""
    path = long_history(5_000).write(tmp_path / "snapshot.pickle")
    whole = torch_snapshot.read(path)
    assert len(whole.memory) == 2 * 5_000 - 3
    monkeypatch.setattr(plain_pickle, "_MOST_HELD", 25_000)
    monkeypatch.setattr(torch_snapshot, "_PIECE_BYTES", 5_000)
    assert columns(torch_snapshot.read(path)) == columns(whole)


def test_counters_of_a_long_history_keep_its_highest_and_lowest_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = long_history(3_000).write(tmp_path / "snapshot.pickle")
    whole = torch_snapshot.read(path).moments
    monkeypatch.setattr(memory_counters, "MOST_VALUES", 100)
    few = torch_snapshot.read(path).moments
    assert len(few.value) < len(whole.value) // 10
    for name in np.unique(whole.name).tolist():
        all_, kept = whole.value[whole.name == name], few.value[few.name == name]
        assert (kept.max(), kept.min(), kept[-1]) == (all_.max(), all_.min(), all_[-1])


def test_a_cut_snapshot_is_said_to_be_cut(tmp_path: Path) -> None:
    content = history().write(tmp_path / "snapshot.pickle").read_bytes()
    cut = tmp_path / "cut.pickle"
    for end in range(200, len(content) - 1, 97):
        cut.write_bytes(content[:end])
        with pytest.raises(ReadError, match="damaged or cut"):
            torch_snapshot.read(cut)
    packed = gzip.compress(content)
    cut.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ReadError, match="damaged"):
        torch_snapshot.read(cut)


class Runs:
    """Says when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return (Path.touch, (self.path,))


def test_a_snapshot_that_would_run_something_is_refused(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    content = history().snapshot()
    content["device_traces"][0][1]["frames"] = [Runs(ran)]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(
        ReadError, match=r"snapshot\.pickle is refused: .*STACK_GLOBAL.*do not load"
    ):
        open_run(path)
    assert not ran.exists()


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.sampled_from(["alloc", "free_completed", "segment_alloc", "oom", "active_allocated", "x"])
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
    | st.just(history().snapshot()["device_traces"][0])
)
KEYS = st.sampled_from(
    [
        "action",
        "addr",
        "size",
        "time_us",
        "frames",
        "device_free",
        "filename",
        "line",
        "name",
        "state",
        "address",
        "requested_size",
        "history",
        "real_size",
        "blocks",
        "total_size",
        "device",
        "segments",
        "device_traces",
    ]
)
RECORD = st.dictionaries(KEYS, VALUES, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    traces=st.lists(st.lists(RECORD | VALUES, max_size=6) | VALUES, max_size=3),
    segments=st.lists(
        RECORD | st.lists(RECORD, max_size=3).map(lambda b: {"blocks": b}), max_size=4
    ),
    protocol=st.sampled_from(PROTOCOLS),
)
def test_whatever_stands_in_its_place_is_no_fault(
    traces: list[Any], segments: list[Any], protocol: int, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": traces}, protocol))
    found = torch_snapshot.read(path)
    assert (np.diff(found.memory.at_ns) >= 0).all()
    assert (found.memory.column("bytes") >= 0).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_snapshot_ends_in_a_sentence_or_in_blocks(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = history().write(tmp_path / "snapshot.pickle")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(ReadError):
        torch_snapshot.read(path)
