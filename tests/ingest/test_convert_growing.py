"""The same tables, whether a recording is converted while its files grow or long after, in one
batch or in many.
"""

from __future__ import annotations

import shutil
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.ingest import conversion as conversion_module
from layerscope.ingest.conversion import RunConversion
from layerscope.ingest.limits import IngestLimits
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.ingest.raw_file import RawFile
from tests.ingest.threads import Span, threads
from tests.recordings import run_info

KINDS = [0, 0, 1, 2, 3, 4]
# Rows without the keys, which depend on who was read first.
SPANS = (
    "SELECT pid, tid, s.start_ns, s.dur_ns, s.self_ns, s.depth, s.kind, s.name, s.sequence, s.unfinished, s.step, s.phase, "
    "p.start_ns AS parent_start, p.depth AS parent_depth FROM spans s JOIN tracks USING (track) "
    "JOIN processes USING (process) LEFT JOIN spans p ON p.span = s.parent ORDER BY 1, 2, 3, 6"
)
OTHERS = (
    "SELECT pid, ppid, host, argv, start_ns, end_ns FROM processes ORDER BY 1",
    "SELECT pid, t.kind, tid, t.name, t.start_ns, t.end_ns FROM tracks t JOIN processes USING (process) ORDER BY ALL",
    "SELECT pid, t.* EXCLUDE (process, total) FROM totals t JOIN processes USING (process) ORDER BY ALL",
    "SELECT pid, tid, g.start_ns, g.end_ns, g.lost, g.reason FROM gaps g LEFT JOIN tracks USING (track) "
    "LEFT JOIN processes p ON p.process = g.process ORDER BY ALL",
    "SELECT pid, s.* EXCLUDE (process) FROM steps s JOIN processes USING (process) ORDER BY ALL",
    "SELECT * FROM clock_readings ORDER BY ALL",
    "SELECT at_ns, name, value, unit FROM counters ORDER BY ALL",
    "SELECT * FROM problems ORDER BY ALL",
)

Thread = tuple[list[Span], list[int]]


def write_process(raw: Path, pid: int, several: list[Thread], tsc: bool) -> None:
    """A raw file with the spans of a few threads, in chunks that end where their batches do."""
    file = RawFile(raw, pid, tsc=tsc)
    file.poll(1)
    borders = sorted({border for _, borders in several for border in borders})
    before = -1
    for at, border in enumerate(borders):
        for ring, (spans, _) in enumerate(several):
            ended = sorted(
                (s for s in spans if before < s.end <= border), key=lambda span: span.end
            )
            records = file.thread_begin(1, pid + ring, ring + 1) if at == 0 else []
            lost = [span.end for span in ended if span.lost]
            if lost:
                records += file.lost(lost[0], lost[-1], len(lost))
            for span in ended:
                if not span.lost:
                    kind = KINDS[span.start % len(KINDS)]
                    name = f"op {span.start % 7}"
                    records += file.span(
                        10 * span.start, 10 * span.end, span.depth, name, kind, seq=span.start
                    )
            if records:
                file.records(ring, records)
        file.sample(10 * border + 1, border)
        file.poll(10 * border + 2)
        before = border
    file.threads({pid: "main"})
    file.end(10 * borders[-1] + 3)


def tables(run: Run) -> list[Any]:
    with Reader(run) as reader:
        return [reader.query(sql).to_pylist() for sql in (SPANS, *OTHERS)]


def differences(found: list[Any], expected: list[Any]) -> list[Any]:
    """The rows that differ, table by table."""
    pairs = [
        pair
        for tables in zip(found, expected, strict=True)
        for pair in zip_longest(*tables)
        if pair[0] != pair[1]
    ]
    return pairs[:10]


def without_steps(made: list[Any]) -> list[Any]:
    """Tables without the columns that steps decide, and sums of totals by name."""
    spans = [
        {name: value for name, value in row.items() if name not in ("step", "phase")}
        for row in made[0]
    ]
    totals: dict[tuple[Any, ...], list[int]] = {}
    for row in made[3]:
        sums = totals.setdefault((row["pid"], row["kind"], row["name"]), [0, 0, 0])
        for at, name in enumerate(("count", "total_ns", "self_ns")):
            sums[at] += row[name]
    return [spans, made[1], made[2], sorted(totals.items()), made[4], *made[6:]]


def convert(raw: Path, folder: Path) -> list[Any]:
    run = Run.create(folder, run_info())
    RunConversion(RawRecording(raw), run.tables_path).finish({})
    return tables(run)


def convert_while_it_grows(whole: Path, folder: Path, pieces: list[tuple[int, int]]) -> list[Any]:
    """Copy the raw files piece by piece, (which file, how many bytes), with a look at each in
    between.
    """
    run = Run.create(folder, run_info())
    conversion = RunConversion(RawRecording(run.raw), run.tables_path)
    files = sorted(whole.glob("*/spool"))
    for which, size in [*pieces, *((number, 1 << 30) for number in range(len(files)))]:
        source = files[which % len(files)]
        target = run.raw / source.parent.name / "spool"
        target.parent.mkdir(exist_ok=True)
        done = target.stat().st_size if target.exists() else 0
        with target.open("ab") as file:
            file.write(source.read_bytes()[done : done + size])
        conversion.advance()
    conversion.finish({})
    return tables(run)


def folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="layerscope-convert-")


processes = st.lists(
    st.tuples(st.lists(threads(losses=True), min_size=1, max_size=2), st.booleans()),
    min_size=1,
    max_size=2,
)
pieces = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 600)), max_size=10)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(processes, pieces, st.integers(1, 20))
@pytest.mark.slow
def test_a_file_that_grows_gives_the_same_tables_as_one_that_is_complete(
    recorded: list[tuple[list[Thread], bool]], growth: list[tuple[int, int]], batch: int
) -> None:
    with folder() as name, patch.object(conversion_module, "BATCH_RECORDS", batch):
        raw = Path(name) / "raw"
        for number, (several, tsc) in enumerate(recorded):
            write_process(raw, 100 * (number + 1), several, tsc)

        grown = convert_while_it_grows(raw, Path(name) / "grown", growth)
        assert differences(grown, convert(raw, Path(name) / "whole")) == []


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(threads(), min_size=1, max_size=2),
    st.booleans(),
    st.integers(1, 20),
    st.integers(1, 30),
)
@pytest.mark.slow
def test_the_size_of_batches_and_epochs_changes_no_span(
    several: list[Thread], tsc: bool, batch: int, epoch: int
) -> None:
    """What is a step of these random spans depends on where an epoch ends; nothing else does."""
    with folder() as name:
        raw = Path(name) / "raw"
        write_process(raw, 100, several, tsc)
        one_batch = convert(raw, Path(name) / "one")
        with (
            patch.object(conversion_module, "BATCH_RECORDS", batch),
            patch.object(
                conversion_module, "limits_of", lambda *_: IngestLimits(epoch_spans=epoch)
            ),
        ):
            many = convert(raw, Path(name) / "many")
        assert differences(without_steps(many), without_steps(one_batch)) == []


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(threads(), min_size=1, max_size=2), st.integers(0, 10_000))
@pytest.mark.slow
def test_a_file_cut_anywhere_converts_to_a_beginning_of_the_whole(
    several: list[Thread], cut: int
) -> None:
    with folder() as name:
        raw, short = Path(name) / "raw", Path(name) / "short"
        write_process(raw, 100, several, tsc=False)
        shutil.copytree(raw, short)
        (file,) = short.glob("*/spool")
        with file.open("r+b") as content:
            content.truncate(min(cut, file.stat().st_size))
        whole, part = convert(raw, Path(name) / "w"), convert(short, Path(name) / "p")

        def spans(made: list[Any]) -> set[tuple[Any, ...]]:
            return {
                (row["tid"], row["start_ns"], row["dur_ns"], row["depth"], row["sequence"])
                for row in made[0]
            }

        assert spans(part) <= spans(whole)
        if cut >= (raw / "machine-one-100-0" / "spool").stat().st_size:
            assert differences(part, whole) == []
