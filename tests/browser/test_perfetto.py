"""Exported traces in the Perfetto interface: it must find exactly the spans that the recording
holds.

Two files of one recording are compared with its tables, slice by slice, by the interface's own SQL
in a Chromium without a window. Whatever is not on this machine cannot be reached from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show import exports
from tests.browser import chromium, perfetto
from tests.recorded import record
from tests.recordings import MS, Recording
from tests.show.exported import NAMES, REALTIME_NS, depths, read_fxt, read_json, write_pieces

pytestmark = pytest.mark.slow
FORMATS = pytest.mark.parametrize("suffix", [".json", ".json.gz", ".fxt"])
READERS = {".json": read_json, ".json.gz": read_json, ".fxt": read_fxt}

_SLICES = """
    SELECT process.name, thread.name, slice.name, category, ts, dur, depth
    FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)
    WHERE category LIKE '{like}'"""
_FLOWS = """
    SELECT cause.name, cause.ts, effect.name, effect.ts
    FROM flow JOIN slice cause ON cause.id = slice_out JOIN slice effect ON effect.id = slice_in"""
_ARGUMENT = "SELECT extract_arg(arg_set_id, '{key}') FROM slice WHERE category LIKE 'operators,%'"
_LOST = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
_COUNTERS = "SELECT track.name, value FROM counter JOIN counter_track track ON track.id = track_id"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: chromium.Page) -> Iterator[chromium.Page]:
    yield browser
    browser.open("about:blank")
    assert browser.answered_from_outside() == []


def shown(name: str, suffix: str) -> str:
    """What the interface makes of a name: of JSON it leaves control characters escaped as they
    stand in the file.
    """
    escaped = name.replace("\n", "\\n").replace("\t", "\\t").replace("\x01", "\\u0001")
    return name if suffix == ".fxt" else escaped


def load(page: chromium.Page, run: Run, suffix: str) -> int:
    """Export a recording and open the file in the interface. The zero of the file's times on
    CLOCK_REALTIME.
    """
    file = run.path.parent / f"trace{suffix}"
    with Reader(run) as reader:
        exports.export(reader, file)
    with perfetto.served(run.path.parent) as address:
        perfetto.load(page, address, file.name)
    assert perfetto.ask(page, _LOST) == []
    trace = READERS[suffix](file)
    # Our own reading of the same file: the depths that nesting alone gives.
    wanted = Counter(
        (trace.processes[span.pid], trace.threads[span.pid, span.tid], shown(span.name, suffix), span.category,
         span.start_ns, span.dur_ns, depth)
        for span, depth in depths(trace)
    )  # fmt: skip
    slices = [
        row for like in ("%,%", "steps") for row in perfetto.ask(page, _SLICES.format(like=like))
    ]
    assert Counter(row for row in slices if not row[3].startswith("marks")) == wanted
    return trace.zero_ns or 0


def made(folder: Path) -> Recording:
    """Two ranks, 300 threads, every odd name, spans that cross, flows, counters, marks, losses,
    steps.
    """
    recording = Recording()
    recording.rows["tracks"][0]["name"] = "main"
    second = recording.add_process(200, rank=1, argv="second")
    recording.rows["clock_readings"] = [
        {"clock": "realtime", "clock_value": REALTIME_NS, "run_ns": 0, "error_ns": 1}
    ]
    recording.rows["args"] = [{"args": 0, "json": '{"size": [3, 4], "name": "\\u00e4"}'}]
    recording.rows["modules"] = [{"module": 0, "path": "Net.conv1", "class": "Conv2d"}]
    threads = [
        recording.add_thread(second, 1000 + number, f"worker {number}") for number in range(300)
    ]
    for number, thread in enumerate(threads):
        recording.add_span(NAMES[number % len(NAMES)], number * 100, 1000, track=thread)
    outer = recording.add_span(
        "outer", 0, 50 * MS, args=0, module=0, step=0, phase="forward", sequence=7
    )
    for number in range(500):
        middle = recording.add_span(
            "middle", number * 1000, 900, parent=outer, unfinished=number == 3
        )
        recording.add_span("same start", number * 1000, 900, parent=middle)
        recording.add_span("no time", number * 1000 + 900, 0, parent=middle)
        if number % 10 == 0:
            recording.add_span("crosses", number * 1000 + 500, 700, parent=middle)
            recording.add_span("crosses the crossing", number * 1000 + 600, 2000, parent=middle)
    # Of spans that start in the same nanosecond the interface gives a flow in JSON to the
    # innermost.
    by_start = sorted(recording.rows["spans"], key=lambda span: span["start_ns"])
    ends = [span["span"] for span in by_start if span["name"] not in ("outer", "middle")]
    recording.rows["links"] = [
        {"from_span": ends[number], "to_span": ends[number + 40], "kind": "forward_backward"}
        for number in range(0, 1000, 7)
    ]
    recording.add_step(0, 0, (1, 2, 3, 4, 5))
    recording.add_counter(0, "rss_bytes", [(10, 5), (20, 2**40)], "bytes")
    recording.add_gap("ring_full", 1204, track=0)
    recording.rows["marks"] = [
        {"track": 0, "at_ns": 55, "kind": "marker", "name": "a mark", "args": 0}
    ]
    return recording


@FORMATS
def test_the_interface_finds_what_was_recorded(
    page: chromium.Page, tmp_path: Path, suffix: str
) -> None:
    recording = made(tmp_path)
    run = write_pieces(recording, tmp_path / "made.layerscope", [700, 1200])

    zero_ns = load(page, run, suffix)

    spans = recording.rows["spans"]
    tracks = recording.rows["tracks"]
    found = Counter(
        (thread.partition(" (crossing")[0], name, ts + zero_ns, dur)
        for _, thread, name, _, ts, dur, _ in perfetto.ask(page, _SLICES.format(like="operators,%"))
    )
    assert found == Counter(
        (
            tracks[s["track"]]["name"],
            shown(s["name"], suffix),
            s["start_ns"] + REALTIME_NS,
            s["dur_ns"],
        )
        for s in spans
    )
    by_key = {
        span["span"]: (shown(span["name"], suffix), span["start_ns"] + REALTIME_NS)
        for span in spans
    }
    flows = [(a, b + zero_ns, c, d + zero_ns) for a, b, c, d in perfetto.ask(page, _FLOWS)]
    assert Counter(flows) == Counter(
        by_key[link["from_span"]] + by_key[link["to_span"]] for link in recording.rows["links"]
    )
    assert sorted(value for _, value in perfetto.ask(page, _COUNTERS)) == [5, 2**40]
    names = {
        name
        for (name,) in perfetto.ask(page, "SELECT name FROM slice WHERE category LIKE 'marks,%'")
    }
    assert names == {"a mark"}
    assert (1,) in perfetto.ask(
        page, "SELECT count(*) FROM slice WHERE name = '1,204 records lost'"
    )
    for key, value in (("module", "Net.conv1"), ("phase", "forward"), ("sequence", 7), ("step", 0)):
        key = key if suffix == ".fxt" else f"args.{key}"
        assert {row[0] for row in perfetto.ask(page, _ARGUMENT.format(key=key))} == {value, None}


PROGRAM = """
import threading, torch
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
threads = [threading.Thread(target=lambda: [torch.ones(4).add(1) for _ in range(300)]) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(4, 1, 8, 8)).sum().backward()
    optimizer.step()
for thread in threads: thread.join()
first, second = torch.profiler.record_function("first"), torch.profiler.record_function("second")
first.__enter__(), second.__enter__(), first.__exit__(None, None, None), second.__exit__(None, None, None)
"""


@pytest.fixture(scope="module")
def recorded(
    program_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    return record(program_python, PROGRAM, tmp_path_factory.mktemp("recorded"))


@FORMATS
def test_a_real_program(page: chromium.Page, recorded: Any, suffix: str) -> None:
    load(page, recorded.run, suffix)

    total = (
        "SELECT count(*) AS count, count(DISTINCT name) AS names, sum(dur{}) AS total FROM {} {}"
    )
    wanted = recorded.rows(total.format("_ns", "spans", ""))[0]
    assert wanted["count"] > 2000
    layers = " OR ".join(
        f"category LIKE '{layer},%'" for layer in ("operators", "modules", "primitives")
    )
    found = perfetto.ask(page, total.format("", "slice", f"WHERE {layers}"))
    assert found == [tuple(wanted.values())]
    by_name = (
        "SELECT name, count(*) AS count, sum(dur{}) AS total, {} FROM {} WHERE {} GROUP BY name"
    )
    own = recorded.rows(
        by_name.format("_ns", "max(depth) AS depth", "spans", "name NOT IN ('first', 'second')")
    )
    theirs = perfetto.ask(
        page,
        by_name.format(
            "",
            "max(depth)",
            "slice",
            "category LIKE '%,%' AND category NOT LIKE 'marks,%' AND name NOT IN ('first', 'second')",
        ),
    )
    assert Counter(theirs) == Counter(tuple(row.values()) for row in own)
    # A primitive lies inside the operator that asked for it: no arrow.
    links = recorded.value("SELECT count(*) FROM links WHERE kind <> 'operator_primitive'")
    assert perfetto.ask(page, "SELECT count(*) FROM flow") == [(links,)]
    assert perfetto.ask(page, "SELECT count(*) FROM slice WHERE category = 'steps'") == [(20,)]
    slices = perfetto.ask(page, _SLICES.format(like="%"))
    assert [name for _, thread, name, *_ in slices if thread.endswith("(crossing)")] == ["second"]
