"""Runs that are too long to look at as a whole: in epochs as in one go, and thinned with exact
sums.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from layerscope.analyse import thinned
from layerscope.analyse.aggregates import aggregates
from layerscope.analyse.tables import modules, operators, processes, threads
from layerscope.ingest import conversion as conversion_module
from layerscope.ingest.conversion import RunConversion
from layerscope.ingest.limits import NEVER, IngestLimits
from layerscope.rawfile import raw_file
from layerscope.recording import thinning
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.ingest import long_run
from tests.ingest.raw_file import RawFile
from tests.recorded import ask
from tests.recordings import run_info

STEPS = 400
SPANS = """
    SELECT s.start_ns, s.dur_ns, s.self_ns, s.depth, s.kind, s.name, s.step, s.phase, m.path, p.start_ns AS parent
    FROM spans s LEFT JOIN spans p ON p.span = s.parent LEFT JOIN modules m ON m.module = s.module ORDER BY 1, 4"""
TOTALS = """
    SELECT kind, name, path, step_class, count, total_ns, self_ns, min_ns, max_ns
    FROM totals LEFT JOIN modules USING (module) ORDER BY ALL"""
STEP_COLUMNS = "SELECT * EXCLUDE (weight) FROM steps ORDER BY step"
LINKS = """
    SELECT f.start_ns, b.start_ns AS backward FROM links
    JOIN spans f ON f.span = from_span JOIN spans b ON b.span = to_span ORDER BY ALL"""


def converted(raw: Path, folder: Path, limits: IngestLimits | None = None) -> Run:
    """The recording of these raw files, with all of it looked at in one go, or within `limits`."""
    run = Run.create(folder, run_info())
    whole = IngestLimits(NEVER, NEVER, NEVER, NEVER, NEVER)
    with (
        patch.object(conversion_module, "limits_of", lambda *_: limits or whole),
        patch.object(conversion_module, "BATCH_RECORDS", 100),
    ):
        RunConversion(RawRecording(raw), run.tables_path).finish({})
    return run


def rows(run: Run, *questions: str) -> list[list[dict[str, Any]]]:
    return [ask(run, sql) for sql in questions]


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("rule", list(long_run.LOOPS))
def test_in_epochs_a_run_has_the_same_tables_as_in_one_go(
    rule: str, around: bool, tmp_path: Path
) -> None:
    long_run.write(tmp_path / "raw", rule, STEPS, around)
    whole = converted(tmp_path / "raw", tmp_path / "whole")
    epochs = converted(
        tmp_path / "raw", tmp_path / "epochs", IngestLimits(NEVER, NEVER, 400, NEVER, NEVER)
    )

    assert len(list((epochs.path / "spans").glob("part-*"))) > 5
    for sql in (STEP_COLUMNS, SPANS, TOTALS, LINKS):
        assert ask(epochs, sql) == ask(whole, sql), sql
    steps = ask(whole, "SELECT rule, count(*) AS steps FROM steps GROUP BY rule")
    assert steps == ([{"rule": rule, "steps": STEPS}] if rule != "none" else [])


def thin(raw: Path, folder: Path) -> Run:
    """A recording that keeps 2,000 spans in detail, 300 of them at each end of the run."""
    with patch.object(thinning, "SLICE_SPANS", 20):
        return converted(raw, folder, IngestLimits(2000, 300, 250, NEVER, NEVER))


@pytest.mark.parametrize("rule", list(long_run.LOOPS))
def test_thinned_and_full_have_the_same_sums_and_steps(rule: str, tmp_path: Path) -> None:
    long_run.write(tmp_path / "raw", rule, STEPS, around=True)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    for sql in (STEP_COLUMNS, TOTALS):
        assert ask(some, sql) == ask(full, sql), sql
    kept = {(row["start_ns"], row["depth"]): row for row in ask(some, SPANS)}
    everything = {(row["start_ns"], row["depth"]): row for row in ask(full, SPANS)}
    assert len(kept) <= 2000 < len(everything)
    for key, row in kept.items():
        assert row == everything[key] | (
            {"phase": row["phase"]} if row["name"] == "all of it" else {}
        )


def test_the_weights_of_the_kept_steps_add_up_to_all_steps_and_all_their_calls(
    tmp_path: Path,
) -> None:
    long_run.write(tmp_path / "raw", "loader", STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    weights = {row["step"]: row["weight"] for row in ask(some, "SELECT step, weight FROM steps")}
    assert sum(weights.values()) == len(weights) == STEPS
    kept = {
        row["step"] for row in ask(some, "SELECT DISTINCT step FROM spans WHERE step IS NOT NULL")
    }
    assert kept == {step for step, weight in weights.items() if weight}
    by_name = "SELECT name, sum(weight)::INT AS calls FROM spans WHERE step IS NOT NULL GROUP BY name ORDER BY name"
    assert ask(some, by_name) == ask(full, by_name)


def test_the_first_and_the_last_spans_are_all_there_and_none_has_lost_its_parent(
    tmp_path: Path,
) -> None:
    long_run.write(tmp_path / "raw", "optimizer", STEPS, around=True)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    for order in ("", "DESC"):
        first = (
            f"SELECT start_ns, name, weight FROM spans ORDER BY start_ns {order}, depth LIMIT 250"
        )
        assert ask(some, first) == ask(full, first)
    dangling = "SELECT * FROM spans WHERE parent NOT IN (SELECT span FROM spans)"
    assert ask(some, dangling) == []
    (outer,) = ask(some, "SELECT weight FROM spans WHERE name = 'all of it'")
    assert outer == {"weight": 1}
    ends = "SELECT * FROM links WHERE from_span NOT IN (SELECT span FROM spans) OR to_span NOT IN (SELECT span FROM spans)"
    assert ask(some, ends) == []


@pytest.mark.parametrize("by", [None, "kind", "module"])
@pytest.mark.parametrize("rule", ["optimizer", "request", "none"])
def test_the_table_of_operators_is_exact_but_for_percentiles(
    rule: str, by: str | None, tmp_path: Path
) -> None:
    long_run.write(tmp_path / "raw", rule, STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )
    with Reader(full) as one, Reader(some) as other:
        assert (thinned.is_thinned(one), thinned.is_thinned(other)) == (False, True)
        expected, found = (
            operators.build(one, by).data.to_pylist(),
            operators.build(other, by).data.to_pylist(),
        )
    assert len(expected) == len(found)
    for exact, row in zip(expected, found, strict=True):
        for name in ("p50_ns", "p99_ns"):
            assert row.pop(name) == pytest.approx(exact.pop(name), rel=0.006, abs=1)
        assert row == exact


def test_shares_by_weight_are_within_the_error_that_is_stated(tmp_path: Path) -> None:
    long_run.write(tmp_path / "raw", "optimizer", STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )
    with Reader(full) as one, Reader(some) as other:
        stated = thinned.share_error(other)
        sentence = operators.build(other, "thread").sentences[0]
        shares = "SELECT name, sum(self_ns * weight) / sum(sum(self_ns * weight)) OVER () AS share FROM spans GROUP BY name"
        exact = {row["name"]: row["share"] for row in one.query(shares).to_pylist()}
        weighted = {row["name"]: row["share"] for row in other.query(shares).to_pylist()}
    largest = max(abs(exact[name] - weighted.get(name, 0)) for name in exact)
    assert 0 < largest == pytest.approx(stated)
    assert f"off by at most {max(100 * stated, 0.01):.2f} points" in sentence


def test_requests_of_a_worker_are_none_when_another_process_makes_steps_later(
    tmp_path: Path,
) -> None:
    for pid, rule in ((100, "request"), (200, "loader")):
        loop = long_run.Loop(tmp_path / "raw", pid)
        long_run.LOOPS[rule](loop, STEPS)
        loop.end()
    run = converted(
        tmp_path / "raw", tmp_path / "run", IngestLimits(NEVER, NEVER, 700, NEVER, NEVER)
    )

    assert ask(run, "SELECT DISTINCT rule, pid FROM steps JOIN processes USING (process)") == [
        {"rule": "loader", "pid": 200}
    ]
    of_worker = "SELECT count(*) AS n FROM spans JOIN tracks USING (track) WHERE process = 0 AND step IS NOT NULL"
    assert ask(run, of_worker) == [{"n": 0}]
    sums = "SELECT step_class, sum(count)::INT AS n FROM totals WHERE process = 0 GROUP BY ALL"
    (left,) = ask(run, sums)
    assert left == {"step_class": "outside", "n": 9 * STEPS}


def test_a_stronger_rule_that_shows_late_takes_the_place_of_a_weaker_one(tmp_path: Path) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    long_run.loader(loop, STEPS)
    long_run.optimizer(loop, STEPS)
    loop.end()
    run = converted(
        tmp_path / "raw", tmp_path / "run", IngestLimits(NEVER, NEVER, 700, NEVER, NEVER)
    )

    assert ask(run, "SELECT rule, count(*) AS n FROM steps GROUP BY rule") == [
        {"rule": "optimizer", "n": STEPS}
    ]
    steps = "SELECT count(DISTINCT step) AS n FROM spans WHERE step IS NOT NULL"
    assert ask(run, steps) == [{"n": STEPS}]
    counted = "SELECT step_class, sum(count)::INT AS n FROM totals GROUP BY ALL ORDER BY 1"
    classes = "if(step IS NULL, 'outside', 'step') AS step_class"
    told = f"SELECT {classes}, count(*)::INT AS n FROM spans GROUP BY ALL ORDER BY 1"
    assert ask(run, counted) == ask(run, told)


def test_a_step_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    long_run.loader(loop, 20)
    loop.forward(3000)
    long_run.loader(loop, 20)
    loop.end()
    run = converted(
        tmp_path / "raw", tmp_path / "run", IngestLimits(NEVER, NEVER, 500, NEVER, NEVER)
    )
    whole = converted(tmp_path / "raw", tmp_path / "whole")

    assert ask(run, STEP_COLUMNS) == ask(whole, STEP_COLUMNS)
    assert (
        max(
            row["rows"]
            for row in ask(run, "SELECT count(*) AS rows FROM spans GROUP BY start_ns // 100000")
        )
        > 0
    )
    assert ask(run, "SELECT count(*) AS n FROM spans") == ask(
        whole, "SELECT count(*) AS n FROM spans"
    )


def test_steps_that_are_as_large_as_a_part_are_thinned_too(tmp_path: Path) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    for _ in range(60):
        loop.forward(100)
        loop.mark()
    loop.end()
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    assert ask(full, "SELECT count(*) AS n FROM spans") == [{"n": 12000}]
    (kept,) = ask(some, "SELECT count(*) AS n FROM spans")
    assert kept["n"] <= 2000
    for sql in (STEP_COLUMNS, TOTALS):
        assert ask(some, sql) == ask(full, sql), sql
    assert ask(some, "SELECT sum(weight)::INT AS n FROM steps") == [{"n": 60}]
    assert ask(some, "SELECT sum(weight)::INT AS n FROM spans") == [{"n": 12000}]


def test_requests_that_overlap_are_thinned_whole(tmp_path: Path) -> None:
    long_run.write_overlapping(tmp_path / "raw", STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    for sql in (STEP_COLUMNS, TOTALS):
        assert ask(some, sql) == ask(full, sql), sql
    assert ask(full, "SELECT rule, count(*) AS n FROM steps GROUP BY rule") == [
        {"rule": "request", "n": STEPS}
    ]
    assert ask(some, "SELECT sum(weight)::INT AS n FROM steps") == [{"n": STEPS}]
    (kept,) = ask(some, "SELECT count(*) AS n FROM spans")
    assert kept["n"] <= 2000
    dangling = "SELECT * FROM spans WHERE parent NOT IN (SELECT span FROM spans)"
    assert ask(some, dangling) == []


def test_a_run_that_makes_no_steps_any_more_keeps_the_weights_of_those_it_made(
    tmp_path: Path,
) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    long_run.loader(loop, STEPS // 2)
    loop.forward(2000)
    long_run.loader(loop, STEPS // 2)
    loop.end()
    run = thin(tmp_path / "raw", tmp_path / "run")

    assert ask(run, "SELECT sum(weight)::INT AS n FROM steps") == [{"n": STEPS}]
    whole = "SELECT step FROM steps WHERE weight > 0 AND step NOT IN (SELECT step FROM spans WHERE step IS NOT NULL)"
    assert ask(run, whole) == []
    # The step that went on for long is in several parts.
    gone = ask(
        run, "SELECT DISTINCT step FROM spans JOIN steps USING (step) WHERE steps.weight = 0"
    )
    assert [row["step"] for row in gone if row["step"] != STEPS // 2 - 1] == []


def test_what_was_thinned_is_said_when_its_steps_turn_out_to_be_none(tmp_path: Path) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    long_run.loader(loop, STEPS)
    long_run.optimizer(loop, 10)
    loop.end()
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )

    (weight,) = ask(some, "SELECT max(weight) AS most FROM spans")
    assert weight["most"] > 1
    by_name = "SELECT kind, name, sum(count)::INT AS n, sum(self_ns)::INT AS ns FROM totals GROUP BY ALL ORDER BY ALL"
    assert ask(some, by_name) == ask(full, by_name)
    binned = """SELECT totals.total FROM totals LEFT JOIN histograms USING (total) GROUP BY totals.total, totals.count
                HAVING coalesce(sum(histograms.count), 0) <> totals.count"""
    assert ask(some, binned) == []


def test_what_was_stripped_is_in_the_sums_also_of_a_recording_that_was_killed(
    tmp_path: Path,
) -> None:
    file = RawFile(tmp_path / "raw", 100)
    file.poll(1)
    waiting = file.thread_begin(5, 100, 1)
    for part, count in enumerate((10, 30)):
        for at in range(1000 * part + 10, 1000 * part + 10 * count + 10, 10):
            waiting += file.span(at, at + 5, 1, "aten::add")
        file.records(0, waiting)
        waiting = []
        file.poll(1000 * part + 900)
        if part == 0:
            file.sums()
            file.rotate()
    assert raw_file.strip(raw_file.segments(file.path)[0]) > 0
    run = converted(tmp_path / "raw", tmp_path / "run")

    sums = "SELECT step_class, count, total_ns FROM totals ORDER BY count"
    assert ask(run, sums) == [
        {"step_class": "unknown", "count": 10, "total_ns": 50},
        {"step_class": "outside", "count": 30, "total_ns": 150},
    ]
    assert ask(run, "SELECT lost FROM gaps WHERE reason = 'max_size'") == [{"lost": 10}]


def test_raw_files_of_processes_that_have_ended_make_room(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for pid in range(100, 104):
        loop = long_run.Loop(raw, pid)
        long_run.optimizer(loop, STEPS)
        loop.end()
    full = converted(raw, tmp_path / "full")
    before = raw_file.raw_bytes(raw)
    run = Run.create(tmp_path / "run", run_info())
    most = before // 2 + sum(file.stat().st_size for file in (full.path / "spans").iterdir())
    with patch.object(
        conversion_module, "limits_of", lambda *_: IngestLimits(NEVER, NEVER, NEVER, NEVER, most)
    ):
        conversion = RunConversion(RawRecording(raw), run.tables_path)
        conversion.advance()
        conversion.keep_within_size()
        assert 0 < raw_file.raw_bytes(raw) < before
        assert conversion.backlog_share() == 0
        conversion.finish({"pid": 100}, keeps_within_size=True)

    assert [row["code"] for row in ask(run, "SELECT code FROM problems")] == ["raw_removed"]
    assert ask(run, "SELECT count(*) AS n FROM gaps") == [{"n": 0}]
    for sql in (STEP_COLUMNS, TOTALS):
        assert ask(run, sql) == ask(full, sql), sql
    # What is left of the raw files has the same sums, and says what went.
    again = converted(raw, tmp_path / "again")
    by_name = "SELECT process, kind, name, sum(count)::INT AS n, sum(total_ns)::INT AS ns FROM totals GROUP BY ALL"
    assert ask(again, f"{by_name} ORDER BY ALL") == ask(full, f"{by_name} ORDER BY ALL")
    (gone,) = ask(again, "SELECT sum(lost)::INT AS n FROM gaps WHERE reason = 'max_size'")
    (unknown,) = ask(again, "SELECT sum(count)::INT AS n FROM totals WHERE step_class = 'unknown'")
    assert gone == unknown


@pytest.mark.parametrize("table", [modules, processes, threads])
def test_tables_that_count_by_weight_say_so(table: Any, tmp_path: Path) -> None:
    long_run.write(tmp_path / "raw", "request", STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )
    with Reader(full) as one, Reader(some) as other:
        assert not any("thinned" in sentence for sentence in table.build(one).sentences)
        assert any("The run was thinned" in sentence for sentence in table.build(other).sentences)


def test_aggregates_count_by_weight(tmp_path: Path) -> None:
    long_run.write(tmp_path / "raw", "loader", STEPS)
    full, some = (
        converted(tmp_path / "raw", tmp_path / "full"),
        thin(tmp_path / "raw", tmp_path / "some"),
    )
    with Reader(full) as one, Reader(some) as other:
        calls = [
            {row[1]: row[2] for row in aggregates(run, 0, 2**62, 100)["times"]}
            for run in (one, other)
        ]
    assert calls[0] == calls[1]


def test_parts_of_several_processes_are_in_the_order_of_time(tmp_path: Path) -> None:
    for pid in (100, 200, 300):
        loop = long_run.Loop(tmp_path / "raw", pid)
        long_run.optimizer(loop, STEPS)
        loop.end()
    run = converted(
        tmp_path / "raw", tmp_path / "run", IngestLimits(NEVER, NEVER, 3000, NEVER, NEVER)
    )

    files = sorted((run.path / "spans").glob("part-*"))
    assert len(files) > 3
    first = [
        pq.read_table(file, columns=["start_ns"])["start_ns"].to_numpy().min() for file in files
    ]
    assert first == sorted(first)
    with Reader(run) as reader:
        rows = reader.query(
            "SELECT process, min(step) AS a, max(step) AS b FROM steps GROUP BY ALL ORDER BY ALL"
        )
    assert rows.to_pylist() == [{"process": number, "a": 0, "b": STEPS - 1} for number in range(3)]


def test_what_is_stripped_while_it_is_read_is_read_to_the_end(tmp_path: Path) -> None:
    loop = long_run.Loop(tmp_path / "raw")
    long_run.optimizer(loop, STEPS // 2)
    loop.file.rotate()
    long_run.optimizer(loop, STEPS // 2)
    loop.end()
    full = converted(tmp_path / "raw", tmp_path / "full")
    run = Run.create(tmp_path / "run", run_info())
    with patch.object(conversion_module, "BATCH_RECORDS", 100):
        conversion = RunConversion(RawRecording(tmp_path / "raw"), run.tables_path)
        take, left = conversion._take, iter(range(5))

        def stripping(process: Any, last: bool = False) -> None:
            take(process, last)
            if next(left, 0) == 4:  # another process keeps the recording within its size
                assert raw_file.strip(raw_file.segments(loop.file.path)[0]) > 0

        with patch.object(conversion, "_take", stripping):
            conversion.finish({})

    assert ask(run, "SELECT count(*) AS n FROM gaps") == [{"n": 0}]
    assert ask(run, TOTALS) == ask(full, TOTALS)


def test_large_steps_of_several_processes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    for pid in range(100, 104):
        loop = long_run.Loop(tmp_path / "raw", pid)
        for _ in range(4):
            loop.call(long_run.NEXT, long_run.LOADER)
            loop.forward(700)
        loop.end()
    run = converted(
        tmp_path / "raw", tmp_path / "run", IngestLimits(NEVER, NEVER, 500, NEVER, NEVER)
    )
    whole = converted(tmp_path / "raw", tmp_path / "whole")

    steps = STEP_COLUMNS.replace("step", "process, step").replace("process, steps", "steps")
    assert ask(run, steps) == ask(whole, steps)
    by_name = "SELECT process, name, sum(count)::INT AS n, sum(self_ns)::INT AS ns FROM totals GROUP BY ALL"
    assert ask(run, f"{by_name} ORDER BY ALL") == ask(whole, f"{by_name} ORDER BY ALL")
    assert ask(run, "SELECT count(*) AS n FROM spans") == ask(
        whole, "SELECT count(*) AS n FROM spans"
    )
