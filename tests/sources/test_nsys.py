"""Exports of Nsight Systems, made by hand, and those of the corpus."""

from __future__ import annotations

import gzip
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS
from layerscope.recording.reader import Reader
from layerscope.sources import nsys, sqlite_rows
from tests.corpus import corpus
from tests.sources.nsys_written import texts, thread, write

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
MAIN, OTHER = thread(70, 71), thread(80, 81)
NAMES = texts(
    "cudaLaunchKernel_v7000", "add", "void add<float>(float*)", "trainer", "step", "my part"
)
PLACE = {"deviceId": 1, "streamId": 7, "globalPid": thread(70, 0)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(start: int, end: int, correlation: int, of: int = MAIN, name: int = 1) -> dict[str, Any]:
    about = {"start": start, "end": end, "globalTid": of, "nameId": name}
    return {**about, "correlationId": correlation}


def kernel(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    about = {"start": start, "end": end, "correlationId": correlation, **PLACE}
    return {**about, "demangledName": 3, "shortName": 2, **more}


def nvtx(kind: int, start: int, end: int | None, of: int = MAIN, **more: Any) -> dict[str, Any]:
    return {"eventType": kind, "start": start, "end": end, "globalTid": of, **more}


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


SPANS = """SELECT s.name, s.layer, s.kind, t.kind, t.name, s.start_ns - (SELECT min(start_ns) FROM spans),
    s.dur_ns FROM spans s JOIN tracks t USING (track) ORDER BY s.start_ns, s.depth"""
LINKS = """SELECT l.kind, a.name, b.name FROM links l JOIN spans a ON a.span = l.from_span
    JOIN spans b ON b.span = l.to_span ORDER BY l.kind, b.start_ns"""


def small(path: Path) -> Path:
    """One launch in a range, and its kernel."""
    return write(
        path,
        {
            "StringIds": NAMES,
            "PROCESSES": [{"globalPid": thread(70, 0), "pid": 70, "name": "python3"}],
            "ThreadNames": [{"nameId": 4, "globalTid": MAIN}],
            f"{ACTIVITY}RUNTIME": [call(1_010, 1_020, 9)],
            f"{ACTIVITY}KERNEL": [kernel(1_050, 1_090, 9, gridX=4, gridY=1, gridZ=1)],
            "NVTX_EVENTS": [nvtx(59, 1_000, 1_200, textId=5, color=0xFF00FF00)],
        },
    )


def test_a_kernel_a_call_and_a_range_of_an_export(tmp_path: Path) -> None:
    path = small(tmp_path / "report.sqlite")
    assert rows(path, SPANS) == [
        ("step", "ranges", "task", "thread", "trainer", 0, 200),
        ("cudaLaunchKernel", "runtime", "launch", "thread", "trainer", 10, 10),
        ("void add<float>(float*)", "gpu", "kernel", "stream", "stream 7", 50, 40),
    ]
    assert rows(path, LINKS) == [
        ("launch_gpu", "cudaLaunchKernel", "void add<float>(float*)"),
    ]
    assert rows(path, "SELECT json FROM args ORDER BY json") == [
        ('{"color": "#ff00ff00"}',),
        ('{"grid": [4, 1, 1]}',),
    ]
    assert rows(path, "SELECT tid, name FROM tracks WHERE kind = 'thread'") == [(71, "trainer")]
    assert rows(path, "SELECT pid, rank FROM processes") == [(70, 0)]
    assert rows(path, "SELECT device FROM tracks WHERE kind = 'stream'") == [(1,)]


def test_a_packed_export_is_the_same(tmp_path: Path) -> None:
    plain = small(tmp_path / "report.sqlite")
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert rows(packed, SPANS) == rows(plain, SPANS)


def test_copies_fills_and_waits_have_the_names_of_kineto(tmp_path: Path) -> None:
    place = {**PLACE, "correlationId": 0}
    path = write(
        tmp_path / "report.sqlite",
        {
            f"{ACTIVITY}MEMCPY": [
                {
                    "start": 1,
                    "end": 5,
                    **place,
                    "bytes": 64,
                    "copyKind": 1,
                    "srcKind": 0,
                    "dstKind": 2,
                }
            ],
            f"{ACTIVITY}MEMSET": [{"start": 6, "end": 7, **place, "bytes": 8, "memKind": 2}],
            f"{ACTIVITY}SYNCHRONIZATION": [{"start": 8, "end": 9, **place, "syncType": 3}],
            "OSRT_API": [call(2, 4, 0, name=99)],
        },
    )
    query = "SELECT name, layer, kind FROM spans ORDER BY start_ns"
    assert rows(path, query) == [
        ("Memcpy HtoD (Pageable -> Device)", "gpu", "memcpy"),
        ("unknown", "runtime", "sync"),
        ("Memset (Device)", "gpu", "memset"),
        ("Stream Sync", "runtime", "sync"),
    ]


def test_each_process_has_its_own_correlations(tmp_path: Path) -> None:
    path = write(
        tmp_path / "report.sqlite",
        {
            "StringIds": NAMES,
            f"{ACTIVITY}RUNTIME": [call(0, 1, 9), call(2, 3, 9, OTHER)],
            f"{ACTIVITY}KERNEL": [
                kernel(10, 11, 9),
                kernel(12, 13, 9, globalPid=thread(80, 0), deviceId=0),
            ],
        },
    )
    found = rows(
        path,
        """SELECT a.start_ns - b.start_ns FROM links l JOIN spans a ON a.span = l.from_span
        JOIN spans b ON b.span = l.to_span""",
    )
    assert found == [(-10,), (-10,)]
    assert sorted(rows(path, "SELECT pid, rank FROM processes")) == [(70, None), (80, None)]


def test_ranges_that_cross_lie_on_tracks_of_their_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "report.sqlite",
        {
            "StringIds": NAMES,
            "NVTX_EVENTS": [
                nvtx(60, 0, 10, text="one", domainId=3, category=4),
                nvtx(60, 5, 15, text="two"),
                nvtx(60, 20, None, text="open"),
                nvtx(34, 3, None, text="here"),
                nvtx(75, 0, None, text="mine", domainId=3),
                nvtx(33, 0, None, text="kind", domainId=3, category=4),
                nvtx(59, 0, 30, text="all"),
            ],
        },
    )
    found = rows(
        path,
        "SELECT s.name, t.name, dur_ns, depth FROM spans s JOIN tracks t USING (track) ORDER BY s.name",
    )
    assert found == [
        ("all", "thread 71", 30, 0),
        ("one", "thread 71: ranges", 10, 0),
        ("open", "thread 71: ranges", 10, 0),
        ("two", "thread 71: ranges (2)", 10, 0),
    ]
    assert rows(path, "SELECT name FROM marks WHERE kind = 'marker'") == [("here",)]
    assert rows(path, "SELECT json FROM args") == [('{"domain": "mine", "category": "kind"}',)]


def test_what_torch_writes_with_emit_nvtx_is_an_operator(tmp_path: Path) -> None:
    engine = "autograd::engine::evaluate_function: MmBackward0, seq = 5, op_id = 2"
    path = write(
        tmp_path / "report.sqlite",
        {
            "NVTX_EVENTS": [
                nvtx(59, 0, 10, text="aten::mm, seq = 5, op_id = 1, sizes = [[2, 3], [3, 4]]"),
                nvtx(59, 20, 30, text=engine),
                nvtx(59, 21, 29, text="MmBackward0, seq = 5, op_id = 3"),
            ]
        },
    )
    assert rows(path, "SELECT name, kind FROM spans ORDER BY start_ns") == [
        ("aten::mm", "function"),
        ("autograd::engine::evaluate_function: MmBackward0", "backward"),
        ("MmBackward0", "backward"),
    ]
    assert nsys.read(path).more["seq"].tolist() == [5, 5, 5]
    with Reader(open_run(path)) as reader:
        shapes = tables.build(reader, "operators", "shape").data["shape"].to_pylist()
    assert sorted(shapes) == ["[2, 3], [3, 4]", "no tensors", "no tensors"]


def test_tables_that_are_not_read_are_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / "report.sqlite",
        {
            f"{ACTIVITY}KERNEL": [kernel(1, 2, 0)],
            "SCHED_EVENTS": [{"start": 1}, {"start": 2}],
            "NVTX_EVENTS": [nvtx(250, 1, 2, text="new")],
        },
    )
    whats = [problem.what for problem in nsys.read(path).problems]
    assert whats == [
        "tables of the export are not read: SCHED_EVENTS (2)",
        "events of NVTX have types that are not known: 250 (1)",
    ]


def test_values_that_cannot_be_are_counted_and_no_others_are_lost(tmp_path: Path) -> None:
    odd = [None, "text", 1.5, b"blob", (1 << 63) - 1, -(1 << 63)]
    kernels = [kernel(one, 10, 1) for one in odd]  # type: ignore[arg-type]
    path = write(
        tmp_path / "report.sqlite",
        {f"{ACTIVITY}KERNEL": [*kernels, kernel(9, 3, "x"), kernel(1, 5, 2)]},  # type: ignore[arg-type]
    )
    found = nsys.read(path)
    assert found.dur_ns.tolist() == [4, 0]
    whats = [problem.what for problem in found.problems]
    assert whats[0].startswith("6 events")
    assert whats[1].startswith("1 spans end before")


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "other.sqlite", {"moz_places": [{"url": "x"}]})
    with pytest.raises(ReadError, match="without a table of Nsight Systems"):
        nsys.read(path)
    path = write(tmp_path / "rocpd.db", {"rocpd_string": [{"url": "x"}]})
    with pytest.raises(ReadError, match="rocprofv3 --output-format json"):
        nsys.read(path)


def many(path: Path) -> Path:
    calls = [call(10 * at, 10 * at + 5, at) for at in range(2000)]
    kernels = [kernel(10 * at + 6, 10 * at + 9, at) for at in range(2000)]
    tables = {f"{ACTIVITY}RUNTIME": calls, f"{ACTIVITY}KERNEL": kernels, "StringIds": NAMES}
    return write(path, tables)


def test_an_export_that_is_cut_opens_to_the_cut_or_is_refused(tmp_path: Path) -> None:
    whole = many(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    counts, refused = [], set()
    for size in range(100, len(whole), 4001):
        path.write_bytes(whole[:size])
        try:
            counts.append(len(nsys.read(path).start_ns))
        except ReadError as error:
            refused.add(str(error).partition(" is ")[2].partition(" (")[0])
    assert refused <= {"damaged"}
    assert len(counts) > 10
    assert max(counts) > 1000


def test_mutated_exports_open_or_are_refused(tmp_path: Path) -> None:
    whole = many(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "mutated.sqlite"
    chance = random.Random(5)
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 4, 50))):
            content[chance.randrange(16, len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            found = nsys.read(path)
        except ReadError:
            continue
        assert len(found.start_ns) <= 10_000


@pytest.mark.parametrize("name", ["h100_2gpu_1s", "healthy_1pct", "healthy_judged_1pct", "mock"])
def test_counts_and_sums_of_the_corpus_are_those_of_sql(name: str) -> None:
    path = corpus(f"nsys/{name}.sqlite")
    found = nsys.read(path)
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    known = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}

    def sums(table: str) -> tuple[int, int]:
        if table not in known:
            return 0, 0
        query = f'SELECT count(*), coalesce(sum("end" - start), 0) FROM {table}'
        count, total = database.execute(query).fetchone()
        return count, total

    def ours(*kinds: str) -> tuple[int, int]:
        is_kind = sum(found.kind == KINDS.index(kind) for kind in kinds) > 0
        return int(is_kind.sum()), int(found.dur_ns[is_kind].sum())

    for kind, table in (("kernel", "KERNEL"), ("memcpy", "MEMCPY"), ("memset", "MEMSET")):
        assert ours(kind) == sums(ACTIVITY + table)
    runtime, waits = sums(f"{ACTIVITY}RUNTIME"), sums(f"{ACTIVITY}SYNCHRONIZATION")
    assert ours("launch", "sync", "runtime") == (runtime[0] + waits[0], runtime[1] + waits[1])
    assert ours("function", "task") == sums("NVTX_EVENTS")
    if f"{ACTIVITY}KERNEL" in known:
        query = f"""SELECT value, count(*) FROM {ACTIVITY}KERNEL JOIN StringIds ON id = demangledName
            GROUP BY value"""
        is_kernel = found.kind == KINDS.index("kernel")
        names = Counter(found.names[one] for one in found.name[is_kernel].tolist())
        assert names == dict(database.execute(query).fetchall())
        query = f"""SELECT count(*) FROM {ACTIVITY}KERNEL JOIN {ACTIVITY}RUNTIME r USING (correlationId)"""
        tied = database.execute(query).fetchone()[0]
        launches = found.more["origin"][found.kind == KINDS.index("launch")]
        of_kernels = found.more["origin"][is_kernel]
        assert sum(one in set(launches.tolist()) for one in of_kernels.tolist()) == tied
    database.close()


def test_a_database_whose_pages_lead_in_a_circle_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = many(tmp_path / "report.sqlite")
    monkeypatch.setattr(sqlite_rows, "_STEP", 1000)
    monkeypatch.setattr(sqlite_rows, "_FREE_STEPS", 20)
    found = nsys.read(path)
    whats = [problem.what for problem in found.problems if problem.code == "table_damaged"]
    assert "its pages lead in a circle" in whats[0]


def test_what_unpacks_to_more_than_a_disk_should_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "_MOST_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.sqlite.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(1 << 22)))
    with pytest.raises(ReadError, match="gunzip"):
        nsys.read(path)
