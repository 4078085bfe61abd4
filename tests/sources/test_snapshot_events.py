"""Histories of memory by the compiled reader: it makes of any file what Python makes of it, keeps
no more of it, and reads nearly all of a usual one.
"""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.model.compiled import compiled
from layerscope.model.errors import ReadError
from layerscope.sources import plain_pickle, snapshot_records, torch_snapshot
from layerscope.sources.imported import Imported
from tests.sources.snapshot_written import SITE, TORCH, columns, frame, long_history

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
pytestmark = pytest.mark.skipif(compiled() is None, reason="the library is not compiled")

FRAMES = [TORCH, frame("/srv/a.py", 1), frame(f"{SITE}/timm/x.py", 5), frame("/srv/b.py", 2)]
# As PyTorch writes events, in all its versions, and with other things in them.
EVENT = st.fixed_dictionaries(
    {"action": st.sampled_from(["alloc", "free_requested", "free_completed", "snapshot", "new"])},
    optional={
        "addr": st.integers(-1, 3) | st.integers(0x7F00_0000_0000, 0x7F00_0000_0003),
        "size": st.integers(0, 1 << 40) | st.integers(-(1 << 70), 1 << 70) | st.none(),
        "stream": st.sampled_from([0, 0x5600_1234_5678]) | st.floats() | st.booleans(),
        "time_us": st.integers(1_760_000_000_000_000, 1_760_000_000_000_300),
        "frames": st.lists(st.sampled_from(FRAMES), max_size=5),
        "device_free": st.integers(0, 1 << 33),
        "pool_id": st.tuples(st.integers(0, 300), st.integers(0, 3)),
        "user_metadata": st.text(max_size=3) | st.text(min_size=300, max_size=300),
        "compile_context": st.sampled_from(["N/A", "0/1"]).map(lambda text: f"{text}"),
        "more": st.lists(st.integers()) | st.just({"a": 1}) | st.just(()),
    },
)


def both(path: Path) -> tuple[Imported | None, Imported | None]:
    """What the compiled reader and Python make of a file; None: it is damaged."""
    found: list[Imported | None] = []
    for library in (compiled(), None):
        with (
            patch.object(snapshot_records, "compiled", lambda library=library: library),
            contextlib.suppress(ReadError),
        ):
            found.append(torch_snapshot.read(path))
            continue
        found.append(None)
    return found[0], found[1]


def same(one: Imported | None, other: Imported | None) -> bool:
    if one is None or other is None:
        return one is other
    moments = one.moments, other.moments
    texts = [
        [found.names[number] if number >= 0 else "" for number in found.memory.column("line")]
        for found in (one, other)
    ]
    return (
        texts[0] == texts[1]
        and columns(one)[:4] == columns(other)[:4]
        and moments[0].value.tolist() == moments[1].value.tolist()
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    traces=st.lists(st.lists(EVENT, max_size=12), min_size=1, max_size=2),
    repeat=st.sampled_from([1, 200]),
    protocol=st.sampled_from(PROTOCOLS),
    piece_bytes=st.sampled_from([700, 1 << 20]),
)
def test_the_compiled_reader_reads_what_python_reads(
    traces: list[list[Any]], repeat: int, protocol: int, piece_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot.pickle"
    long = [[dict(entry) for _ in range(repeat) for entry in trace] for trace in traces]
    content = {"segments": [], "device_traces": long}
    path.write_bytes(pickle.dumps(content, protocol))
    with patch.object(torch_snapshot, "_PIECE_BYTES", piece_bytes):
        one, other = both(path)
    assert one is not None
    assert same(one, other)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_compiled_reader_refuses_a_damaged_file_or_makes_of_it_what_python_makes(
    data: st.DataObject, tmp_path: Path
) -> None:
    """It has given events away already that damage may change afterwards: then it refuses."""
    path = long_history(8).write(tmp_path / "snapshot.pickle")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    one, other = both(path)
    assert one is None or same(one, other)


def new(text: str) -> str:
    """The same text as another object: pickles tell them apart."""
    return "".join(list(text))


@pytest.mark.parametrize("text", ["/srv/late.py", "free_completed", "action", "frames"])
def test_a_text_that_was_in_an_event_first_may_mean_anything_later(
    text: str, tmp_path: Path
) -> None:
    """As a file, an action or a key, also where it stood there twice."""
    written = long_history(50)
    for number in range(1000, 1004):
        written.event(
            "alloc", addr=number, size=8, note=new("other text"), more=(late := new(text))
        )
    written.event("alloc", addr=1004, size=8, frames=[{"filename": late, "line": 3, "name": "f"}])
    written.event(late, addr=1003, size=8)
    last = written.traces[0][-1]
    written.traces[0].append({late if key == text else key: value for key, value in last.items()})
    one, other = both(written.write(tmp_path / "snapshot.pickle"))
    assert one is not None
    assert same(one, other)
    assert (f"{text}:3" in one.names) == text.endswith(".py")


def test_the_compiled_reader_reads_nearly_all_of_a_usual_history(tmp_path: Path) -> None:
    """Each event of newer versions of PyTorch has a text of its own, which is always the same."""
    written = long_history(5_000)
    for entry in written.traces[0] + written.traces[1]:
        entry["compile_context"] = new("N/A")
    path = written.write(tmp_path / "snapshot.pickle")
    read = 0

    class Counting(snapshot_records.QuickEvents):
        def read(self, data: bytes, at: int, memo: list[Any]) -> tuple[Any, int]:
            nonlocal read
            found, reached = super().read(data, at, memo)
            read += found.shape[1]
            return found, reached

    with patch.object(snapshot_records, "QuickEvents", Counting):
        torch_snapshot.read(path)
    assert read > 0.99 * (3 * 5_000 - 6)


@pytest.mark.parametrize("place", [0, 1, 40])
def test_what_is_no_event_does_not_change_those_behind_it(place: int, tmp_path: Path) -> None:
    written = long_history(50)
    expected = len(torch_snapshot.read(written.write(tmp_path / "usual.pickle")).memory)
    written.traces[0].insert(place, None)
    one, other = both(written.write(tmp_path / "snapshot.pickle"))
    assert one is not None
    assert same(one, other)
    assert len(one.memory) == expected


def texts_in_events(path: Path, events: int, texts: int) -> Path:
    """A history of events with so many empty texts each, of which every one is memorized."""
    root = b"\x80\x04}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x0ddevice_traces\x94"
    event = b"}\x94(h\x01h\x02" + b"h\x03\x8c\x00\x94" * texts + b"u"
    path.write_bytes(root + b"]\x94]\x94(" + event * events + b"eau.")
    return path


@pytest.mark.parametrize(("texts", "most"), [(10, "_MOST_MEMORIZED"), (500, "_MOST_HELD")])
def test_a_memo_that_would_fill_the_memory_is_refused(
    texts: int, most: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of usual events by its length; an event that memorizes far more is none that is usual."""
    path = texts_in_events(tmp_path / "snapshot.pickle", 100_000 // texts, texts)
    monkeypatch.setattr(torch_snapshot, "_PIECE_BYTES", 100_000)
    assert len(torch_snapshot.read(path).memory) == 0
    monkeypatch.setattr(plain_pickle, most, 20_000)
    with pytest.raises(ReadError, match="far more in it"):
        torch_snapshot.read(path)
