"""Databases of nvprof, made by hand, and that of the corpus."""

from __future__ import annotations

import random
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from layerscope import sources
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS
from layerscope.recording.reader import Reader
from layerscope.sources import nvprof
from tests.corpus import corpus
from tests.sources.nsys_written import Rows, write

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
OWN = "_id_ INTEGER PRIMARY KEY AUTOINCREMENT"
EPOCH_NS = 1_559_681_431_000_000_000
OBJECT = struct.pack("<III", 70, 0xFFFF_FFF0, 0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def database(path: Path, tables: dict[str, Rows]) -> Path:
    texts = ["trainer", "_Z3addPf", "step", "mine", "here"]
    return write(path, {"StringTable": [{"value": text} for text in texts], **tables}, create=OWN)


def call(number: int, start: int, end: int, correlation: int) -> dict[str, Any]:
    about = {"cbid": number, "start": EPOCH_NS + start, "end": EPOCH_NS + end}
    return {**about, "processId": 70, "threadId": -16, "correlationId": correlation}


def work(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    about = {"start": EPOCH_NS + start, "end": EPOCH_NS + end, "correlationId": correlation}
    return {**about, "deviceId": 1, "streamId": 14, **more}


def marker(flags: int, at: int, number: int, name: int, domain: int = 0) -> dict[str, Any]:
    about = {"flags": flags, "timestamp": EPOCH_NS + at, "id": number, "objectKind": 2}
    return {**about, "objectId": OBJECT, "name": name, "domain": domain}


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def small(path: Path) -> Path:
    return database(
        path,
        {
            f"{ACTIVITY}NAME": [{"objectKind": 1, "objectId": OBJECT, "name": 1}],
            f"{ACTIVITY}RUNTIME": [call(211, 10, 20, 9), call(165, 60, 95, 10)],
            f"{ACTIVITY}DRIVER": [call(307, 12, 18, 0), call(9999, 100, 101, 0)],
            f"{ACTIVITY}CONCURRENT_KERNEL": [work(50, 90, 9, name=2, gridX=4, gridY=2, gridZ=1)],
            f"{ACTIVITY}MEMCPY": [work(30, 40, 8, bytes=80, copyKind=1, srcKind=1, dstKind=3)],
            f"{ACTIVITY}MEMSET": [work(41, 42, 8, bytes=8, memoryKind=3)],
            f"{ACTIVITY}CONTEXT": [{"contextId": 5, "deviceId": 1}],
            f"{ACTIVITY}SYNCHRONIZATION": [
                {
                    "type": 3,
                    "start": EPOCH_NS + 70,
                    "end": EPOCH_NS + 90,
                    "contextId": 5,
                    "streamId": 14,
                }
            ],
            f"{ACTIVITY}MARKER": [
                marker(2, 5, 1, 3, 4),
                marker(2, 6, 2, 5),
                marker(4, 98, 1, 0),
                marker(4, 99, 7, 0),
                marker(1, 7, 3, 5),
            ],
        },
    )


SPANS = """SELECT s.name, s.kind, t.name, s.start_ns - (SELECT min(start_ns) FROM spans), s.dur_ns
    FROM spans s JOIN tracks t USING (track) ORDER BY s.start_ns, s.depth"""


def test_kernels_calls_and_ranges_of_a_database(tmp_path: Path) -> None:
    path = small(tmp_path / "run.nvvp")
    assert rows(path, SPANS) == [
        ("step", "task", "thread 0xfffffff0", 0, 93),
        ("here", "task", "thread 0xfffffff0: ranges (2)", 1, 95),
        ("cudaLaunchKernel", "launch", "thread 0xfffffff0", 5, 10),
        ("cuLaunchKernel", "launch", "thread 0xfffffff0", 7, 6),
        ("Memcpy HtoD (Pageable -> Device)", "memcpy", "stream 14", 25, 10),
        ("Memset (Device)", "memset", "stream 14", 36, 1),
        ("add(float*)", "kernel", "stream 14", 45, 40),
        ("cudaDeviceSynchronize", "sync", "thread 0xfffffff0", 55, 35),
        ("Stream Sync", "sync", "stream 14", 65, 20),
        ("cu call 9999", "runtime", "thread 0xfffffff0", 95, 1),
    ]
    links = """SELECT l.kind, a.name, b.name FROM links l JOIN spans a ON a.span = l.from_span
        JOIN spans b ON b.span = l.to_span"""
    assert rows(path, links) == [("launch_gpu", "cudaLaunchKernel", "add(float*)")]
    assert rows(path, "SELECT argv FROM processes") == [("trainer",)]
    assert rows(path, "SELECT name FROM marks WHERE kind = 'marker'") == [("here",)]
    assert [problem.code for problem in nvprof.read(path).problems] == ["ends_unpaired"]
    assert nvprof.read(path).realtime_ns == EPOCH_NS + 5


def test_ranges_without_a_thread_lie_on_one_of_their_own(tmp_path: Path) -> None:
    row = {"flags": 2, "timestamp": EPOCH_NS, "id": 1, "name": 3}
    found = nvprof.read(database(tmp_path / "run.nvvp", {f"{ACTIVITY}MARKER": [row]}))
    assert [found.names[one] for one in found.name.tolist()] == ["step"]
    assert found.more["unfinished"].tolist() == [True]


def test_a_database_of_nvprof_is_no_export_of_nsight_systems(tmp_path: Path) -> None:
    head = small(tmp_path / "run.nvvp").read_bytes()
    assert [one.__name__.rpartition(".")[2] for one in sources.known() if one.recognises(head)] == [
        "nvprof"
    ]


def test_cut_and_mutated_databases_open_or_are_refused(tmp_path: Path) -> None:
    whole = small(tmp_path / "run.nvvp").read_bytes()
    path = tmp_path / "mutated.nvvp"
    chance = random.Random(3)
    for at in range(60):
        content = bytearray(whole[: chance.randrange(100, len(whole))] if at % 2 else whole)
        for _ in range(chance.choice((0, 4, 50))):
            content[chance.randrange(16, len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            nvprof.read(path)
        except ReadError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_counts_and_sums_of_the_corpus_are_those_of_sql() -> None:
    path = corpus("nvprof/basic_nvprof_output.nvvp")
    found = nvprof.read(path)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)

    def sums(*tables: str) -> tuple[int, int]:
        each = [
            connection.execute(
                f"SELECT count(*), coalesce(sum(end - start), 0) FROM {ACTIVITY}{table}"
            ).fetchone()
            for table in tables
        ]
        return sum(one[0] for one in each), sum(one[1] for one in each)

    def ours(*kinds: str) -> tuple[int, int]:
        is_kind = sum(found.kind == KINDS.index(kind) for kind in kinds) > 0
        return int(is_kind.sum()), int(found.dur_ns[is_kind].sum())

    assert ours("kernel") == sums("CONCURRENT_KERNEL")
    assert ours("memcpy") == sums("MEMCPY")
    assert ours("memset") == sums("MEMSET")
    assert ours("launch", "sync", "runtime") == sums("RUNTIME", "DRIVER", "SYNCHRONIZATION")
    assert ours("event") == sums("OVERHEAD")
    connection.close()
