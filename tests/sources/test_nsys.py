"""Exports of Nsight Systems, made by hand, and those of the corpus against questions in SQL."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import nsys

PID, TID = 77, 78
THREAD = PID << 24 | TID
KIND = "CUPTI_ACTIVITY_KIND_"
STRINGS = ["", "cudaLaunchKernel_v7000", "gemm", "forward", "main thread", "cudaDeviceSynchronize"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, **tables: list[dict[str, Any]]) -> Path:
    """A database with these rows, whose keys are the columns."""
    strings = [{"id": number, "value": text} for number, text in enumerate(STRINGS)]
    with sqlite3.connect(path) as database:
        for name, rows in {"StringIds": strings, **tables}.items():
            columns = ", ".join(f'"{column}"' for column in rows[0])
            database.execute(f'CREATE TABLE "{name}" ({columns})')
            holes = ", ".join("?" * len(rows[0]))
            database.executemany(
                f'INSERT INTO "{name}" VALUES ({holes})', [tuple(row.values()) for row in rows]
            )
    database.close()
    return path


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_an_export_has_work_calls_ranges_and_the_links_between_them(tmp_path: Path) -> None:
    kernel = {"start": 500, "end": 900, "deviceId": 1, "streamId": 7, "correlationId": 3}
    grid = {"gridX": 2, "gridY": 3, "gridZ": 4, "blockX": 5, "blockY": 6, "blockZ": 7}
    copy = {"start": 950, "end": 960, "deviceId": 1, "streamId": 7, "correlationId": 9}
    tables = {
        f"{KIND}KERNEL": [
            {**kernel, "globalPid": PID << 24, "demangledName": 2, "shortName": 2, **grid}
        ],
        f"{KIND}MEMCPY": [{**copy, "globalPid": PID << 24, "bytes": 64, "copyKind": 1}],
        f"{KIND}RUNTIME": [
            {"start": 100, "end": 200, "globalTid": THREAD, "correlationId": 3, "nameId": 1},
            {"start": 970, "end": 990, "globalTid": THREAD, "correlationId": 4, "nameId": 5},
        ],
        "NVTX_EVENTS": [
            {
                "start": 50,
                "end": 250,
                "eventType": 59,
                "globalTid": THREAD,
                "text": None,
                "textId": 3,
            },
            {
                "start": 60,
                "end": None,
                "eventType": 34,
                "globalTid": THREAD,
                "text": "now",
                "textId": None,
            },
            {
                "start": 0,
                "end": None,
                "eventType": 75,
                "globalTid": THREAD,
                "text": "a domain",
                "textId": None,
            },
        ],
        "ThreadNames": [{"nameId": 4, "globalTid": THREAD}],
        "TARGET_INFO_GPU": [{"id": 1, "name": "H100", "smCount": 132}],
    }
    path = write(tmp_path / "report.sqlite", **tables)
    found = """SELECT s.name, layer, s.kind, start_ns, dur_ns, t.name FROM spans s
        JOIN (SELECT track, name FROM tracks) t USING (track) ORDER BY start_ns"""
    assert rows(path, found) == [
        ("forward", "ranges", "task", 0, 200, "main thread"),
        ("cudaLaunchKernel", "runtime", "launch", 50, 100, "main thread"),
        ("gemm", "gpu", "kernel", 450, 400, "stream 7"),
        ("Memcpy HtoD", "gpu", "memcpy", 900, 10, "stream 7"),
        ("cudaDeviceSynchronize", "runtime", "sync", 920, 20, "main thread"),
    ]
    assert rows(path, "SELECT kind FROM links") == [("launch_gpu",)]
    assert rows(path, "SELECT kind, name, at_ns FROM marks") == [("marker", "now", 10)]
    assert rows(path, "SELECT device FROM tracks WHERE kind = 'stream'") == [(1,)]
    arguments = [json.loads(text) for (text,) in rows(path, "SELECT json FROM args ORDER BY args")]
    assert {"grid": [2, 3, 4], "block": [5, 6, 7]} in arguments
    assert {"bytes": 64, "copy kind": 1} in arguments
    ((about,),) = rows(path, "SELECT about FROM processes")
    assert json.loads(about)["deviceProperties"] == [{"id": 1, "name": "H100", "numSms": 132}]


def test_a_damaged_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(3000))
    with pytest.raises(ReadError, match=r"report\.sqlite is damaged"):
        nsys.read(path)


def test_every_export_of_the_corpus_has_all_its_rows() -> None:
    folder = os.environ.get("LAYERSCOPE_CORPUS")
    paths = sorted((Path(str(folder)) / "nsys").glob("*.sqlite")) if folder else []
    if not paths:
        pytest.skip("LAYERSCOPE_CORPUS names no folder with exports of Nsight Systems")
    for path in paths:
        assert nsys.recognises(path.read_bytes()[: 1 << 20])
        found = nsys.read(path)
        with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
            known = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            endings = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")
            wanted = [f"{KIND}{ending}" for ending in endings if f"{KIND}{ending}" in known]
            whole = "SELECT count(*), sum(max(end, start) - start) FROM "
            told = [database.execute(f"{whole}{name}").fetchone() for name in wanted]
            if "NVTX_EVENTS" in known:
                of_ranges = f"{whole}NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NOT NULL"
                told.append(database.execute(of_ranges).fetchone())
        database.close()
        assert len(found.start_ns) == sum(count for count, _ in told), path
        assert int(found.dur_ns.sum()) == sum(total or 0 for _, total in told), path
