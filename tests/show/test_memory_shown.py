"""Memory in files for other programs and in the report: bytes are bytes there, and the highest point
of the counter is the peak.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from layerscope.analyse.memory.counters import memory_counters
from layerscope.analyse.stacks import graphs
from layerscope.analyse.stacks.flame_layout import draw
from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.recording.reader import Reader
from layerscope.show import exports
from layerscope.show.exports import trace_moments
from layerscope.show.exports.trace import Windowed, write
from layerscope.show.flame import Picture, formats, terminal_tree
from layerscope.show.report import moments
from layerscope.show.report.contents import ReportContents
from tests.analyse.stacks.made import compared, opened
from tests.recorded import Recorded
from tests.recordings import MS, Recording
from tests.replayed import replay
from tests.show.exported import ReadTrace, read_fxt, read_json
from tests.show.report_page import unpacked

BOTH = pytest.mark.parametrize("suffix", [".json", ".fxt"])
COUNTER = "live_bytes of cpu"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("memory", tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def reader(recorded: Recorded) -> Iterator[Reader]:
    with Reader(recorded.run) as opened:
        yield opened


@pytest.fixture(scope="module")
def live(reader: Reader) -> Graph:
    return graphs.build(reader, Look("live"))


def traced(reader: Reader, folder: Path, suffix: str, steps: range | None = None) -> ReadTrace:
    path = folder / f"trace{suffix}"
    exports.export(reader, path, steps)
    return read_json(path) if suffix == ".json" else read_fxt(path)


def points(trace: ReadTrace) -> list[tuple[int, int]]:
    """When and how much of the counter of memory."""
    return [(at_ns, value) for _, name, at_ns, value in trace.counters if name == COUNTER]


@BOTH
def test_the_highest_point_of_the_counter_is_the_peak(
    reader: Reader, live: Graph, tmp_path: Path, suffix: str
) -> None:
    found = points(traced(reader, tmp_path, suffix))

    assert max(value for _, value in found) == live.whole
    assert found == sorted(found)
    # When Python has ended nothing is left but what was never released.
    assert found[0][1] > 0
    assert found[-1][1] == 0


@BOTH
@pytest.mark.parametrize("most", [1, 2, 10])
def test_of_few_points_one_is_the_peak(
    reader: Reader, live: Graph, tmp_path: Path, suffix: str, most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(trace_moments, "_MOST_POINTS", most)

    found = points(traced(reader, tmp_path, suffix))

    assert len(found) <= max(most, 2)
    assert max(value for _, value in found) == live.whole


@BOTH
def test_steps_have_what_was_live_before_them_too(
    recorded: Recorded, reader: Reader, tmp_path: Path, suffix: str
) -> None:
    step = range(3, 4)

    found = points(traced(reader, tmp_path, suffix, step))

    of_step = graphs.build(reader, Look("live", replace(Look().choice, steps=step)))
    assert max(value for _, value in found) == of_step.whole
    (row,) = recorded.rows("SELECT start_ns, dur_ns FROM steps WHERE step = 3")
    assert found[-1][0] - found[0][0] < row["dur_ns"]
    assert found[0][1] > 2 << 20


def test_a_window_of_the_run_has_the_counter_of_that_time(
    recorded: Recorded, tmp_path: Path
) -> None:
    (row,) = recorded.rows("SELECT start_ns, start_ns + dur_ns AS end_ns FROM steps WHERE step = 3")
    path = tmp_path / "window.json"

    write(recorded.run, path, row["start_ns"], row["end_ns"])

    (whole,) = _counters(recorded)
    expected = whole.between(row["start_ns"], row["end_ns"]).curve
    found = points(read_json(path))
    assert [value for _, value in found] == expected.live_bytes.tolist()
    assert expected.at_ns[0] == row["start_ns"]


def _counters(recorded: Recorded) -> Any:
    with Windowed(recorded.run, 0, 1) as reader:
        return memory_counters(reader)


@pytest.mark.parametrize("most", [moments._MOST_POINTS, 20])
def test_the_report_has_the_counter(
    reader: Reader, live: Graph, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(moments, "_MOST_POINTS", most)
    blocks = moments.counter_blocks(reader, reader.run.info.start_ns)

    names, columns = map(unpacked, blocks)
    mine = names["names"].index(COUNTER)
    rows = [row for row, name in enumerate(columns["name"]) if name == mine]
    assert max(columns["value"][row] for row in rows) == live.whole
    assert {names["units"][columns["unit"][row]] for row in rows} == {"bytes"}
    assert len(rows) <= most
    # It stands with what the system says of the process.
    (track,) = {columns["track"][row] for row in rows}
    rss = names["names"].index("rss_bytes")
    assert {columns["track"][row] for row, name in enumerate(columns["name"]) if name == rss} == {
        track
    }


def test_the_counter_needs_no_counters_of_the_system() -> None:
    recording = Recording()
    _allocate(recording, 0, 100)
    other = recording.add_process(200)
    thread = recording.add_thread(other, 200, "worker")
    _allocate(recording, 1, 30, track=thread, allocator="numpy")
    _allocate(recording, 2, 70, track=thread)

    names, columns = _report_counters(recording)

    found: dict[tuple[int, str], int] = {}
    for track, name, value in zip(
        *(columns[key] for key in ("track", "name", "value")), strict=True
    ):
        key = (track, names["names"][name])
        found[key] = max(found.get(key, 0), value)
    assert found == {
        (recording.thread, COUNTER): 100,
        (thread, COUNTER): 100,
        (thread, "live_numpy_bytes of cpu"): 30,
        (thread, "live_tensor_bytes of cpu"): 70,
    }


def _report_counters(recording: Recording) -> tuple[Any, Any]:
    with opened(recording) as reader:
        names, columns = map(unpacked, moments.counter_blocks(reader, 0))
    return names, columns


def _allocate(
    recording: Recording, at_ms: int, size: int, dur_ns: int | None = 10 * MS, **more: Any
) -> None:
    recording.add_block(size, at_ms * MS, dur_ns, **more)


def test_the_report_offers_flame_graphs_of_memory_that_was_recorded(
    reader: Reader, live: Graph
) -> None:
    contents = ReportContents(reader)
    (page,) = contents.made_with("page flame")

    assert unpacked(page)["kinds"]["live"] == {
        "title": "Memory live at its highest moment",
        "unit": "bytes",
        "what": "live at the peak",
        "noun": "block",
    }
    about = unpacked(contents.made_with("flame live")[0])
    assert (about["whole"], about["unit"], about["noun"]) == (live.whole, "bytes", "block")
    assert about["says"] == "12.7 MB live at the peak in 34 blocks"


def test_the_report_offers_none_of_a_recording_without_memory() -> None:
    with opened(Recording()) as reader:
        (page,) = ReportContents(reader).made_with("page flame")
        kinds = unpacked(page)["kinds"]

    assert "live" not in kinds
    assert "cpu" in kinds


def _written(graph: Graph, suffix: str, folder: Path) -> str:
    path = folder / f"flame{suffix}"
    with path.open("wb") as stream:
        formats()[suffix].write(Picture(graph, "title", "python", "", graph.notes), stream)
    return path.read_text()


def test_files_have_bytes(live: Graph, tmp_path: Path) -> None:
    profile = json.loads(_written(live, ".speedscope.json", tmp_path))["profiles"][0]
    assert profile["unit"] == "bytes"
    assert sum(profile["weights"]) == profile["endValue"] == live.whole
    folded = [line.rpartition(" ") for line in _written(live, ".folded", tmp_path).splitlines()]
    assert sum(int(size) for _, _, size in folded) == live.whole
    assert ("aten::empty;program.py:31", str(10 << 20)) in {(way, size) for way, _, size in folded}
    svg = _written(live, ".svg", tmp_path)
    ElementTree.fromstring(svg)
    assert "12.7 MB live at the peak in 34 blocks" in svg
    assert "Most memory of their own" in _written(live, ".html", tmp_path)


def test_the_terminal_has_sizes(live: Graph) -> None:
    text = terminal_tree.text(Picture(live, "title", "python", "", live.notes), draw(live))

    assert "    memory  frame\n" in text
    assert " 82.2 %  82.2 %    10.5 MB    program.py:31\n" in text
    assert text.splitlines()[-1].startswith("The highest moment of recording is ")


def test_the_terminal_shows_a_leak_that_is_gone() -> None:
    before, after = (_leaking(size) for size in (100, 0))

    graph = compared(after, before, Look("leak"))

    text = terminal_tree.text(Picture(graph, "title", "", "", ()), draw(graph))
    assert "  0.0 %   0.0 %    0 bytes  -100 bytes  gone: aten::empty\n" in text


def _leaking(size: int) -> Recording:
    recording = Recording()
    for step in range(10):
        recording.add_step(step, 100 * step * MS, (0, 100 * MS, 0, 0, 0))
        _allocate(recording, 100 * step, 1)
        if size:
            _allocate(recording, 100 * step, size, dur_ns=None)
    _allocate(recording, 2000, 1)
    return recording
