"""From a raw file with known content to the tables: every row of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from layerscope.capture.link import own_command
from layerscope.ingest.conversion import RunConversion
from layerscope.rawfile import raw_file
from layerscope.rawfile.json_files import read_session
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.ingest.raw_file import (
    BACKWARD,
    LOADER,
    OPTIMIZER,
    RANGE,
    REALTIME_OFFSET_NS,
    RawFile,
    ticks,
)
from tests.recordings import run_info

SESSION = {"pid": 100, "end_ns": 50_000, "exit": 3}
NEXT = "enumerate(DataLoader)#_Iter.__next__"
STEP = "Optimizer.step#SGD.step"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


class Converted:
    """The tables of a raw folder."""

    def __init__(self, raw: Path, session: dict[str, Any] | None = None) -> None:
        folder = raw.parent / "converted.layerscope"
        self.run = Run.create(folder, run_info())
        self.conversion = RunConversion(RawRecording(raw), folder)
        self.conversion.finish(SESSION if session is None else session)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with Reader(self.run) as reader:
            return reader.query(sql).to_pylist()

    def table(self, name: str, *columns: str, order: str = "1") -> list[tuple[Any, ...]]:
        listed = ", ".join(columns)
        return [
            tuple(row.values())
            for row in self.rows(f"SELECT {listed} FROM {name} ORDER BY {order}")
        ]


def iteration(file: RawFile, at: int, seq: int) -> list[tuple]:
    """One step of a training loop on the main thread; 4000 ns."""
    return [
        *file.span(at, at + 500, 0, NEXT, LOADER),
        *file.span(at + 700, at + 1100, 1, "aten::convolution", seq=seq),
        *file.span(at + 600, at + 1200, 0, "aten::conv2d"),
        *file.span(at + 3100, at + 3200, 1, "aten::add_"),
        *file.span(at + 3000, at + 3600, 0, STEP, OPTIMIZER, optimizer=1),
    ]


def test_processes_tracks_spans_counters_clocks_and_totals_are_what_was_recorded(raw: Path) -> None:
    file = RawFile(raw, 100, 500, ppid=99, argv=["python", "train.py", "--api-key", "hidden"])
    file.poll(600)
    file.records(0, [*file.thread_begin(1000, 100, 1), *iteration(file, 1000, 7)])
    file.records(
        1,
        [
            *file.thread_begin(2500, 101, 2),
            *file.span(2500, 2900, 0, "ConvBackward", BACKWARD, seq=7),
        ],
    )
    file.sample(5000, 11, 22, 33, 44, 55, 66, 77)
    file.threads({100: "python", 101: "pt_autograd_0"})
    file.poll(5000)
    file.records(1, [*file.thread_end(5200, 2)])
    file.records(0, iteration(file, 6000, 8))
    file.poll(1_000_000_700)
    file.end(1_000_000_800)
    made = Converted(raw)

    assert made.table(
        "processes", "process", "pid", "ppid", "host", "argv", "start_ns", "end_ns", "exit"
    ) == [(0, 100, 99, "machine-one", "python train.py --api-key ***", 500, 50_000, 3)]
    assert made.table("tracks", "kind", "tid", "name", "start_ns", "end_ns", order="track") == [
        ("thread", 100, "python", 1000, None), ("thread", 101, "pt_autograd_0", 2500, 5200),
        ("counter", None, "process", 500, None),
    ]  # fmt: skip
    spans = made.rows(
        "SELECT s.start_ns, s.dur_ns, s.self_ns, s.depth, s.kind, s.name, s.sequence, tid, p.name AS parent, s.layer, "
        "s.weight, s.unfinished FROM spans s JOIN tracks USING (track) LEFT JOIN spans p ON p.span = s.parent "
        "WHERE s.start_ns < 6000 ORDER BY s.start_ns"
    )
    assert [tuple(row.values())[:9] for row in spans] == [
        (1000, 500, 500, 0, "loader", NEXT, None, 100, None),
        (1600, 600, 200, 0, "function", "aten::conv2d", None, 100, None),
        (1700, 400, 400, 1, "function", "aten::convolution", 7, 100, "aten::conv2d"),
        (2500, 400, 400, 0, "backward", "ConvBackward", 7, 101, None),
        (4000, 600, 500, 0, "optimizer", STEP, None, 100, None),
        (4100, 100, 100, 1, "function", "aten::add_", None, 100, STEP),
    ]
    assert {(row["layer"], row["weight"], row["unfinished"]) for row in spans} == {
        ("operators", 1, False)
    }
    assert made.table("counters", "at_ns", "name", "value", "unit", order="value") == [
        (5000, "cpu_ns", 11, "ns"), (5000, "user_ns", 22, "ns"), (5000, "system_ns", 33, "ns"),
        (5000, "faults_minor", 44, "count"), (5000, "faults_major", 55, "count"), (5000, "rss_bytes", 66, "bytes"),
        (5000, "threads", 77, "count"),
    ]  # fmt: skip
    readings = made.table(
        "clock_readings", "run_ns", "clock", "clock_value", "error_ns", order="1, 2"
    )
    kept = [600, 1_000_000_700, 1_000_000_800]
    assert readings == [
        row
        for at in kept
        for row in ((at, "realtime", at + REALTIME_OFFSET_NS, 5), (at, "tsc", ticks(at), 5))
    ]
    assert made.table("totals", "kind", "name", "count", "total_ns", "min_ns", "max_ns", order="1, 2") == [
        ("backward", "ConvBackward", 1, 400, 400, 400), ("function", "aten::add_", 2, 200, 100, 100),
        ("function", "aten::conv2d", 2, 1200, 600, 600), ("function", "aten::convolution", 2, 800, 400, 400),
        ("loader", NEXT, 2, 1000, 500, 500), ("optimizer", STEP, 2, 1200, 600, 600),
    ]  # fmt: skip
    assert made.table("gaps", "*") == made.table("problems", "*") == []


def test_steps_come_from_the_optimizer_and_their_phases_add_up(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(100)
    begin = file.thread_begin(1000, 100, 1)
    file.records(
        0, begin + [record for i in range(4) for record in iteration(file, 1000 + 4000 * i, i)]
    )
    file.poll(100_000)
    file.end(100_100)
    made = Converted(raw)

    steps = made.rows("SELECT * FROM steps ORDER BY step")
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    assert {(row["process"], row["rule"]) for row in steps} == {(0, "optimizer")}
    for row in steps:
        phases = [
            row[name]
            for name in ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
        ]
        assert sum(phases) == row["dur_ns"]
        assert (row["load_ns"], row["optimizer_ns"]) == (500, 600)
    assert made.table(
        "spans", "count(*)", "count(step)", "count(DISTINCT step)", "count(phase)"
    ) == [(20, 20, 4, 20)]


def test_what_was_open_at_the_end_is_unfinished_and_never_told_twice(raw: Path) -> None:
    """The program died between a record and the pop of its slot: that span is in both places."""
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(
        0,
        [
            *file.thread_begin(100, 100, 1),
            *file.span(300, 400, 1, "done"),
            *file.span(500, 700, 2, "twin"),
        ],
    )
    file.poll(1000)
    file.open_spans(
        0, 1, 100, [(200, "outer", RANGE, False), (450, "inner", 0, False), (500, "twin", 0, False)]
    )
    file.open_spans(
        1, 2, 101, [(600, "of another thread", 0, False), (650, "ended elsewhere", RANGE, True)]
    )
    file.end(2000)
    made = Converted(raw)

    assert made.rows(
        "SELECT s.start_ns, s.dur_ns, s.self_ns, s.name, s.depth, s.unfinished, p.name AS parent, tid "
        "FROM spans s JOIN tracks USING (track) LEFT JOIN spans p ON p.span = s.parent ORDER BY s.start_ns"
    ) == [
        dict(
            zip(
                ("start_ns", "dur_ns", "self_ns", "name", "depth", "unfinished", "parent", "tid"),
                row,
                strict=True,
            )
        )
        for row in (
            (200, 1800, 150, "outer", 0, True, None, 100),
            (300, 100, 100, "done", 1, False, "outer", 100),
            (450, 1550, 1350, "inner", 1, True, "outer", 100),
            (500, 200, 200, "twin", 2, False, "inner", 100),
            (600, 1400, 1400, "of another thread", 0, True, None, 101),
        )
    ]
    assert made.table("totals", "name", "count") == [("done", 1), ("twin", 1)]


def test_a_twin_whose_record_went_with_an_earlier_batch_is_dropped_too(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerscope.ingest.conversion.BATCH_RECORDS", 1)
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(200, 300, 0, "twin")])
    file.poll(1000)
    file.poll(2000)
    file.open_spans(0, 1, 100, [(200, "twin", 0, False)])
    file.end(3000)

    assert Converted(raw).table("spans", "name", "dur_ns", "unfinished") == [("twin", 100, False)]


def test_losses_are_gaps_with_their_exact_count_and_thread(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(
        0,
        [*file.thread_begin(100, 100, 1), *file.span(200, 300, 0, "a"), *file.lost(400, 500, 7, 2)],
    )
    file.records(0, file.span(600, 700, 0, "b"))
    file.records(1, [*file.thread_begin(100, 101, 2), *file.span(200, 300, 0, "a")])
    file.poll(1000)
    account = {
        "lost_without_ring": 4,
        "lost_without_ring_first": ticks(50),
        "lost_without_ring_last": ticks(60),
    }
    file.end(2000, [[1, 5, 11, 0, 800, 900]], **account)
    made = Converted(raw)

    gaps = made.rows(
        "SELECT g.start_ns, g.end_ns, g.lost, g.reason, tid FROM gaps g LEFT JOIN tracks USING (track) ORDER BY 1, 3"
    )
    assert [tuple(row.values()) for row in gaps] == [
        (50, 60, 4, "no_ring", None), (400, 500, 2, "too_deep", 100), (400, 500, 7, "ring_full", 100),
        (800, 900, 11, "ring_full", 101), (1000, 1000, 5, "after_end", 101),
    ]  # fmt: skip


def test_a_last_word_that_a_full_disk_made_the_drainer_repeat_counts_once(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(
        0, [*file.thread_begin(100, 100, 1), *file.lost(150, 160, 3), *file.span(200, 300, 1, "a")]
    )
    file.poll(1000)
    file.open_spans(0, 1, 100, [(180, "open", 0, False)])
    file.end(1500, [[0, 5, 11, 0, 800, 900]])
    file.open_spans(0, 1, 100, [(180, "open", 0, False)])
    file.end(2000, [[0, 6, 11, 0, 800, 900]])
    made = Converted(raw)

    assert made.table("gaps", "lost", "reason") == [
        (3, "ring_full"),
        (6, "after_end"),
        (11, "ring_full"),
    ]
    assert made.table("spans", "name", order="name") == [("a",), ("open",)]


def test_a_drainer_that_died_before_it_could_say_so_counts_nothing_twice(raw: Path) -> None:
    """The second one writes the same records, and more, and the names from their beginning."""
    file = RawFile(raw, 100)
    file.poll(10)
    begin, first = file.thread_begin(100, 100, 1), file.span(200, 300, 0, "first")
    file.records(0, begin + first)
    names = next(
        chunk for chunk in raw_file.SpoolReader(file.path).chunks() if chunk.kind == raw_file.NAMES
    ).payload
    second = b"\x02\0\0\0\x06\0\0\0second\0\0"
    file.write(raw_file.NAMES, names + second, 0, 0, 0)
    file._names["second"], file._segment_bytes = 2, len(names + second)
    file.records(0, begin + first + file.span(400, 600, 0, "second"), first=0)
    file.records(0, file.span(700, 800, 0, "third"))
    file.poll(1000)
    file.end(2000)
    made = Converted(raw)

    assert made.table("spans", "start_ns", "name") == [
        (200, "first"),
        (400, "second"),
        (700, "third"),
    ]
    assert made.table("problems", "*") == []


def test_a_name_that_arrives_after_its_first_span_is_waited_for(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new segment of names travels another way than the records that use it."""
    monkeypatch.setattr("layerscope.ingest.conversion.BATCH_RECORDS", 1)
    file = RawFile(raw, 100)
    file.poll(10)
    file._names["late"] = 1
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(200, 300, 0, "late")])
    file.poll(1000)
    file.write(raw_file.NAMES, b"\x01\0\0\0\x04\0\0\0late\0\0\0\0", 0, 0, 0)
    file.poll(1500)
    file.end(2000)

    assert Converted(raw).table("spans", "name") == [("late",)]


def test_a_range_ended_on_another_thread_is_on_the_track_that_began_it(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(300, 400, 1, "below")])
    file.records(
        1, [*file.thread_begin(100, 101, 2), *file.span(200, 500, 0, "carried", RANGE, elsewhere=1)]
    )
    file.poll(1000)
    file.end(2000)

    assert Converted(raw).rows(
        "SELECT s.name, tid, p.name AS parent, s.self_ns FROM spans s JOIN tracks USING (track) "
        "LEFT JOIN spans p ON p.span = s.parent ORDER BY s.start_ns"
    ) == [
        {"name": "carried", "tid": 100, "parent": None, "self_ns": 200},
        {"name": "below", "tid": 100, "parent": "carried", "self_ns": 100},
    ]


def test_threads_that_share_a_ring_and_processes_that_share_a_pid_are_kept_apart(raw: Path) -> None:
    for start in (100, 5000):
        file = RawFile(raw, 100, start)
        file.poll(start)
        file.records(
            0,
            [
                *file.thread_begin(start, 100, 1), *file.span(start + 10, start + 20, 0, "first"),
                *file.thread_end(start + 30, 1), *file.thread_begin(start + 40, 100, 2),
                *file.span(start + 50, start + 60, 0, "second"),
            ],
        )  # fmt: skip
        file.poll(start + 100)
        file.end(start + 200)
    made = Converted(raw)

    assert made.table("processes", "pid", "start_ns", order="start_ns") == [(100, 100), (100, 5000)]
    assert made.table("spans JOIN tracks USING (track)", "spans.start_ns", "process", "track", "tid", "spans.name") == [
        (110, 0, 0, 100, "first"), (150, 0, 1, 100, "second"), (5010, 1, 2, 100, "first"), (5050, 1, 3, 100, "second")
    ]  # fmt: skip


def test_a_program_without_a_tsc_is_on_the_run_s_clock_as_it_is(raw: Path) -> None:
    file = RawFile(raw, 100, tsc=False)
    file.poll(10)
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(200, 333, 0, "a")])
    file.poll(1000)
    file.end(2000)

    assert Converted(raw).table("spans", "start_ns", "dur_ns") == [(200, 133)]


@pytest.mark.parametrize("cut_bytes", [1, 40, 90, 200])
def test_a_raw_file_cut_short_opens_with_a_gap(raw: Path, cut_bytes: int) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(200, 300, 0, "a")])
    file.poll(1000)
    file.end(2000)
    size = file.path.stat().st_size
    with file.path.open("r+b") as content:
        content.truncate(size - cut_bytes)
    made = Converted(raw)

    assert made.table("spans", "name") == [("a",)]
    assert made.table("gaps", "lost", "reason") == [(None, "damaged")]


def test_an_empty_folder_and_an_empty_file_give_empty_tables(raw: Path) -> None:
    (raw / "machine-100-5").mkdir()
    (raw / "machine-100-5" / "spool").touch()
    made = Converted(raw, {})

    assert made.table("spans", "*") == made.table("gaps", "*") == made.table("totals", "*") == []
    assert len(made.table("processes", "*")) == 1


def test_records_that_differ_from_the_sums_of_the_drainer_are_a_problem(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    file.records(0, [*file.thread_begin(100, 100, 1), *file.span(200, 300, 0, "a")])
    file.counts[0, 1][0] += 1
    file.poll(1000)
    file.end(2000)

    (problem,) = Converted(raw).rows("SELECT * FROM problems")
    assert (problem["layer"], problem["code"]) == ("operators", "totals_differ")


def test_the_session_s_problems_are_in_the_table(raw: Path) -> None:
    problem = {
        "layer": "operators",
        "code": "x",
        "what": "something",
        "remedy": "nothing",
        "lost": "all",
    }
    (raw / "session.json").write_text(json.dumps({"problems": [problem]}))
    made = Converted(raw, read_session(raw))

    assert made.rows("SELECT * FROM problems") == [problem]


def test_the_converter_process_reads_while_the_file_grows_and_ends_with_its_input(
    raw: Path,
) -> None:
    file = RawFile(raw, 100)
    file.poll(10)
    run = Run.create(raw.parent / "grown.layerscope", run_info())
    command = own_command("layerscope", "_convert", str(raw), str(run.tables_path), "an-id")
    converter = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    begin = file.thread_begin(100, 100, 1)
    for i in range(20):
        file.records(
            0, (begin if not i else []) + file.span(200 + 100 * i, 250 + 100 * i, 0, f"op {i}")
        )
        file.poll(290 + 100 * i)
    file.end(10_000)
    out, err = converter.communicate(b"", timeout=60)

    assert (converter.returncode, err) == (0, b"")
    told = json.loads(out)
    assert (told["records"], told["dropped"], told["rows"]["spans"]) == (20, 0, 20)
