"""Spans of logs are read as if the agent had recorded them with the others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import raw_file as raw_file_module
from layerscope.rawfile.log_files import ONEDNN_LOG
from layerscope.sources.raw.folder import RawFolder
from layerscope.sources.raw.late_spans import OF_NO_THREAD, LateChunks, LateSpans
from layerscope.sources.raw.onednn_log import place
from layerscope.sources.raw.open_operators import RecordedProcess, owners, read_processes
from tests.ingest.raw_file import CREATE, EXECUTE, FUNCTION, TASK, RawFile

SECOND_NS = 1_000_000_000


def raw_file(raw: Path, tsc: bool) -> Path:
    """Ten seconds, in two segments, of an operator of half a second with another in it each
    second.
    """
    file = RawFile(raw, 7, tsc=tsc)
    file.poll(0)
    file.records(1, file.thread_begin(0, 70, 1))
    for second in range(10):
        start_ns = second * SECOND_NS
        inner = file.span(start_ns + 100_000_000, start_ns + 200_000_000, 1, "aten::inner")
        file.records(1, [*inner, *file.span(start_ns, start_ns + 500_000_000, 0, "aten::outer")])
        file.poll(start_ns + SECOND_NS)
        if second == 4:
            file.rotate()
    file.end(11 * SECOND_NS)
    return file.path


def recorded(raw: Path) -> list[RecordedProcess]:
    """What the agent recorded, by process."""
    return read_processes(RawFolder(raw).new_processes(), 1000) or []


def merged(raw: Path, before: RecordedProcess, late: LateSpans) -> RecordedProcess:
    """The one process below `raw`, read with `late` spans."""
    (process,) = RawFolder(raw).new_processes()
    process.late = LateChunks(before.decoder, late)
    parts = []
    for _ in process.pieces():
        parts += [rows for _, rows in process.decoder.batches()]
    parts += [rows for _, rows in process.decoder.batches(last=True)]
    return RecordedProcess(process.decoder, np.concatenate(parts))


def contents(path: Path) -> list[bytes]:
    """The bytes of the segments of a raw file."""
    return [file.read_bytes() for file in raw_file_module.segments(path)]


@pytest.mark.parametrize("tsc", [True, False])
def test_late_spans_are_read_between_the_others(tmp_path: Path, tsc: bool) -> None:
    path = raw_file(tmp_path, tsc)
    before = contents(path)
    (process,) = recorded(tmp_path)
    start_ns = np.arange(10) * SECOND_NS + 120_000_000
    late = LateSpans(
        track=np.where(np.arange(10) < 9, 1, 5), start_ns=start_ns, end_ns=start_ns + 1_000, depth=np.full(10, 2),
        kind=np.where(np.arange(10) % 2, CREATE, EXECUTE), name=np.zeros(10, int),
        args=np.where(np.arange(10) == 3, -1, 1), texts=["convolution", '{"library": "oneDNN"}'],
    )  # fmt: skip

    after = merged(tmp_path, process, late)

    assert contents(path) == before
    names = np.array(after.decoder.names)[after.spans["name"]]
    woven = after.spans[names == "convolution"]
    assert np.abs(np.sort(woven["start"]) - start_ns).max() <= 2
    assert sorted(np.unique(woven["kind"], return_counts=True)[1].tolist()) == [5, 5]
    assert len(after.spans) == len(process.spans) + 10
    others = after.spans[names != "convolution"][list(process.spans.dtype.names or ())]
    assert np.array_equal(np.sort(others["start"]), np.sort(process.spans["start"]))
    assert np.array_equal(np.sort(others["end"]), np.sort(process.spans["end"]))
    assert int(after.decoder.totals[:, 2].sum()) == after.decoder.records
    assert after.decoder.tracks[5].name == OF_NO_THREAD
    assert after.decoder.tracks[1].tid == 70
    assert after.has_primitives
    assert not process.has_primitives


def test_long_arguments_stay_whole_or_become_none(tmp_path: Path) -> None:
    raw_file(tmp_path, tsc=True)
    (process,) = recorded(tmp_path)
    texts = [json.dumps({"call": "in0:8x3;" * count}) for count in (1_000, 100_000)]
    once = np.ones(3, int)
    late = LateSpans(
        track=once, start_ns=once, end_ns=2 * once, depth=0 * once, kind=EXECUTE * once, name=np.array([0, 0, 0]),
        args=np.array([1, 2, -1]), texts=["n" * 2_000, *texts],
    )  # fmt: skip

    after = merged(tmp_path, process, late)

    assert after.decoder.names[-3:] == ["n" * 1_024, texts[0], '{"library":"oneDNN"}']


def test_a_call_belongs_to_the_only_thread_with_an_operator(tmp_path: Path) -> None:
    raw_file(tmp_path, tsc=True)
    processes = recorded(tmp_path)
    start_ns = np.array([150_000_000, 300_000_000, 600_000_000, 99_999_000, 150_000_000])

    found = owners(
        processes, start_ns, start_ns + 2_000, np.array([True, True, True, True, False]), 1_500
    )

    assert found.process.tolist() == [0, 0, -1, 0, -1]
    assert found.depth.tolist()[:2] == [2, 1]
    assert (
        found.start_ns[3] > 100_000_000
    )  # it lies within what is around it, as far as the clocks can tell
    assert found.depth[3] == 2


def test_a_call_within_operators_of_two_threads_belongs_to_none(tmp_path: Path) -> None:
    raw_file(tmp_path, tsc=True)
    other = RawFile(tmp_path, 8)
    other.poll(0)
    other.records(1, other.thread_begin(0, 80, 1))
    other.records(1, other.span(0, 250_000_000, 0, "aten::other", FUNCTION))
    other.poll(SECOND_NS)
    other.end(2 * SECOND_NS)
    start_ns = np.array([150_000_000, 300_000_000])

    found = owners(recorded(tmp_path), start_ns, start_ns + 10, np.array([True, True]), 100)

    assert found.process.tolist() == [-1, 0]


def test_a_call_of_a_program_without_operators_belongs_to_the_thread_with_a_range(
    tmp_path: Path,
) -> None:
    file = RawFile(tmp_path, 7)
    file.poll(0)
    file.records(1, [*file.thread_begin(0, 70, 1), *file.span(0, 500_000_000, 0, "forward", TASK)])
    file.poll(SECOND_NS)
    file.end(2 * SECOND_NS)
    start_ns = np.array([150_000_000, 600_000_000])

    found = owners(recorded(tmp_path), start_ns, start_ns + 10, np.array([True, True]), 100)

    assert (found.process.tolist(), found.depth.tolist()) == ([0, -1], [1, 0])


@pytest.mark.parametrize("text", ["", "cpu,reorder,jit:uni,undef,src:f32:a:blocked:ab::f0,,,4x4"])
def test_a_library_that_tells_a_collector_kinds_alone_is_named(tmp_path: Path, text: str) -> None:
    file = RawFile(tmp_path, 7)
    file.poll(0)
    told = {"args": file.number(text)} if text else {}
    file.records(
        1, [*file.thread_begin(0, 70, 1), *file.span(0, 1_000, 0, "reorder", EXECUTE, **told)]
    )
    file.poll(SECOND_NS)
    file.end(2 * SECOND_NS)
    with gzip.open(tmp_path / ONEDNN_LOG, "wb") as log:
        log.write(
            b"onednn_verbose,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:ab:f0,,,4x4,0.5\n"
        )

    late, problems = place(tmp_path, recorded(tmp_path), 0)

    assert not late
    assert [problem.code for problem in problems] == ([] if text else ["kinds_alone"])


def test_too_many_spans_are_not_looked_at(tmp_path: Path) -> None:
    raw_file(tmp_path, tsc=True)
    assert read_processes(RawFolder(tmp_path).new_processes(), 10) is None
