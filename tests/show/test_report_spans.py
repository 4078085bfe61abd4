"""Spans in the report: what the page works out of them is what the tables say, for each span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import ordered_spans
from layerscope.model.layers import KINDS, PHASES, SPAN_LAYERS
from layerscope.recording.reader import Reader
from layerscope.show.report.moments import link_blocks
from layerscope.show.report.spans import span_blocks
from tests.recordings import MS, Recording
from tests.replayed import replay
from tests.show.report_page import unpacked


def blocks_of(reader: Reader) -> tuple[dict[str, Any], list[int]]:
    """The blocks by name, and the spans of the rows."""
    found = span_blocks(reader, reader.run.info.start_ns)
    return {block.name: unpacked(block) for block in found.blocks}, found.keys.tolist()


def as_the_page_reads_them(blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """Each span with what web/src/data/spans.ts works out, written once more in the plainest way."""
    about, columns, details = (blocks[name] for name in ("span_classes", "spans", "span_details"))
    spans: list[dict[str, Any]] = []
    bounds = [*about["begins"], len(columns["dur"])]
    for at, track in enumerate(about["tracks"]):
        start, open_rows = 0, dict[int, int]()
        for row in range(bounds[at], bounds[at + 1]):
            start += columns["start"][row]
            of_class = about["classes"][columns["class"][row]]
            span = dict(zip(("name", "kind", "layer", "module", "line"), of_class, strict=True))
            depth, dur = columns["depth"][row], columns["dur"][row]
            span |= {
                "track": track,
                "start": start,
                "dur": dur,
                "self": dur,
                "depth": depth,
                "parent": -1,
            }
            span |= {name: details[name][row] for name in details} | {"step": columns["step"][row]}
            above = open_rows.get(depth - 1)
            if above is not None and spans[above]["start"] + spans[above]["dur"] >= start:
                span["parent"] = above
            open_rows[depth] = row
            spans.append(span)
    for span in spans:
        around = span["parent"]
        while around >= 0 and spans[around]["layer"] != span["layer"]:
            around = spans[around]["parent"]
        if around >= 0:
            spans[around]["self"] -= span["dur"]
    for row, self_ns in about["self_exceptions"]:
        assert spans[row]["self"] != self_ns  # nothing is told that follows
        spans[row]["self"] = self_ns
    return spans


def compare(reader: Reader) -> int:
    """Compare each span with its row of the table; how many there were."""
    blocks, keys = blocks_of(reader)
    about = blocks["span_classes"]
    rows = {row["span"]: row for row in reader.query("SELECT * FROM spans").to_pylist()}
    assert sorted(keys) == sorted(rows)
    origin_ns = reader.run.info.start_ns
    unfinished = set(about["unfinished"])
    for place, (key, span) in enumerate(zip(keys, as_the_page_reads_them(blocks), strict=True)):
        row = rows[key]
        assert {
            "track": span["track"],
            "start_ns": span["start"] + origin_ns,
            "dur_ns": span["dur"],
            "self_ns": span["self"],
            "depth": span["depth"],
            "name": about["names"][span["name"]],
            "kind": KINDS[span["kind"]],
            "layer": SPAN_LAYERS[span["layer"]],
            "module": None if span["module"] < 0 else span["module"],
            "line": None if span["line"] < 0 else about["lines"][span["line"]],
            "step": span["step"] - 1 if span["step"] else None,
            "phase": PHASES[span["phase"] - 1] if span["phase"] else None,
            "args": span["args"] - 1 if span["args"] else None,
            "weight": span["weight"],
            "unfinished": place in unfinished,
        }.items() <= row.items()
    return len(keys)


@pytest.mark.parametrize("name", ["train", "mxnet"])
def test_spans_of_a_real_recording_come_back(name: str, tmp_path: Path) -> None:
    recorded = replay(name, tmp_path)
    with Reader(recorded.run) as reader:
        assert compare(reader) > 50


def test_self_times_that_do_not_follow_are_told(tmp_path: Path) -> None:
    """A child that ended on another thread, and one of another layer between."""
    recording = Recording()
    outer = recording.add_span("outer", 0, 10 * MS)
    between = recording.add_span("between", MS, 5 * MS, outer, layer="ranges", kind="task")
    recording.rows["spans"][outer]["self_ns"] = 8 * MS  # of its layer there is the inner one only
    recording.add_span("inner", 2 * MS, 2 * MS, between)
    recording.rows["spans"][between]["self_ns"] = 5 * MS
    recording.add_span("told", 20 * MS, MS)
    recording.rows["spans"][-1]["self_ns"] = 7
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        assert compare(reader) == 4
        blocks, _ = blocks_of(reader)
        assert blocks["span_classes"]["self_exceptions"] == [[3, 7]]


def test_links_name_rows_and_leave_out_what_is_not_there(tmp_path: Path) -> None:
    recording = Recording()
    other = recording.add_thread(0, 101, "worker")
    spans = [
        recording.add_span("late", 5 * MS, MS),
        recording.add_span("backward", 9 * MS, MS, track=other),
        recording.add_span("early", 0, MS),
    ]
    recording.rows["links"] = [
        {"from_span": spans[0], "to_span": spans[1], "kind": "backward"},
        {"from_span": spans[2], "to_span": 12345, "kind": "backward"},
    ]
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        keys = span_blocks(reader, 0).keys
        kinds, links = (unpacked(block) for block in link_blocks(reader, keys))
    assert keys.tolist() == [spans[2], spans[0], spans[1]]
    assert (links["from"], links["to"]) == ([1], [1])
    assert kinds == ["backward"]


def test_no_spans_at_all(tmp_path: Path) -> None:
    with Reader(Recording().write(tmp_path / "train.layerscope")) as reader:
        assert compare(reader) == 0


@pytest.mark.parametrize("most", [1, 10**6])
def test_numbers_are_places_among_the_different_ones(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_spans, "_MOST_PAIRS", most)
    pairs = np.array([7, 3, 7, 900, 3, 0])

    found, places = ordered_spans._numbered(pairs)

    assert found.tolist() == [0, 3, 7, 900]
    assert found[places].tolist() == pairs.tolist()
