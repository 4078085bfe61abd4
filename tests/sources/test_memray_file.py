"""Files of memray, by a memray that is not there, one that answers as it does, and one that fails.
memray itself is not installed beside the tests: what it writes was written by version 1.20.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import known, memray_file

# How a file begins, packed by LZ4 and not.
PACKED = bytes.fromhex("04224d184040c0ba9e0000f9056d656d726179000d000000f00f0b030000652d")
PLAIN = b"memray\0\x0d\0\0\0\0\0\0\0"
PEAK = 4_000_001 + 500 + 90
ROWS = """\
allocator,num_allocations,size,tid,thread_name,stack_trace
MALLOC,3,4000001,1,0x1,ones;/opt/lib/python3.11/site-packages/numpy/numeric.py;232|grow;/srv/a.py;5|<module>;/srv/a.py;9
CALLOC,1,500,2,reader (0x2),temporary;/srv/a.py;8
MMAP,2,90,1,0x1,exec_module;<frozen importlib._bootstrap>;940
MALLOC,0,-5,1,0x1,
"""
STATISTICS = {
    "total_num_allocations": 6735,
    "total_bytes_allocated": 53_003_168,
    "metadata": {
        "start_time": "2026-11-26 15:49:33.979000+00:00",
        "end_time": "2026-11-26 15:49:34.162000+00:00",
        "peak_memory": PEAK,
        "pid": 21106,
        "command_line": "memray run a.py",
    },
}
# Stands in the place of memray: answers with the files beside it, as far as there are some.
COMMAND = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
    stats) answer=$here/stats.json; shift 4;;
    transform) answer=$here/rows.csv; shift 3;;
esac
test -f "$answer" || { echo "Traceback" >&2; echo "OSError: not a file of mine" >&2; exit 1; }
cp "$answer" "$1"
"""


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that memray wrote."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "memray.a.py.1.bin"
    path.write_bytes(PACKED + bytes(100))
    return path


@pytest.fixture
def memray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a memray that knows nothing yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "memray"
    command.write_text(COMMAND)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_blocks_have_line_bytes_and_number(recorded: Path, memray: Path) -> None:
    (memray / "rows.csv").write_text(ROWS)
    (memray / "stats.json").write_text(json.dumps(STATISTICS))
    with Reader(open_run(recorded)) as reader:
        found = reader.query(
            "SELECT line, allocator, device, sum(bytes)::BIGINT AS bytes, count(*) AS n, count(dur_ns) AS e"
            " FROM allocations GROUP BY ALL ORDER BY bytes DESC"
        ).to_pylist()
        names = reader.query("SELECT DISTINCT name FROM tracks WHERE kind = 'thread'").to_pylist()
        codes = [row["code"] for row in reader.query("SELECT code FROM problems").to_pylist()]
        marks = reader.query("SELECT name FROM marks").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("/srv/a.py:5", "malloc", "cpu", 4_000_001, 3, 0),
        ("/srv/a.py:8", "calloc", "cpu", 500, 1, 0),
        ("", "mmap", "cpu", 90, 2, 0),
    ]
    assert {row["name"] for row in names} == {"thread 0x1", "reader (0x2)"}
    assert codes == ["peak_only", "events_rejected"]
    assert f"memray: {PEAK:,} bytes at the peak" in marks[0]["name"]


def test_a_file_that_memray_summed_up_has_no_statistics(recorded: Path, memray: Path) -> None:
    (memray / "rows.csv").write_text(ROWS)
    found = memray_file.read(recorded)
    assert int(found.memory.column("bytes").sum()) == PEAK
    assert found.realtime_ns is None


def test_very_many_blocks_are_one_for_each_stack(
    recorded: Path, memray: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memray / "rows.csv").write_text(ROWS.replace("MALLOC,3,", f"MALLOC,{1 << 40},"))
    found = memray_file.read(recorded)
    assert len(found.memory) == 3
    assert int(found.memory.column("bytes").sum()) == PEAK
    assert "blocks_joined" in [problem.code for problem in found.problems]


def test_without_memray_its_file_is_refused_with_the_remedy(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(memray_file, "find_spec", lambda name: None)
    with pytest.raises(ReadError, match="written by memray, which alone can read it: install"):
        open_run(recorded)


def test_what_memray_says_of_a_file_that_it_cannot_read_is_said(
    recorded: Path, memray: Path
) -> None:
    with pytest.raises(ReadError, match="OSError: not a file of mine"):
        open_run(recorded)


@pytest.mark.parametrize(
    "rows",
    ["", "a,b\n1,2\n", ROWS.replace("stack_trace", "trace"), "\0\n" * 10],
    ids=["empty", "other", "without stacks", "zeros"],
)
def test_a_memray_that_writes_something_else_is_said(
    rows: str, recorded: Path, memray: Path
) -> None:
    (memray / "rows.csv").write_text(rows)
    with pytest.raises(ReadError, match="another table"):
        memray_file.read(recorded)


def test_memray_is_known_by_how_its_files_begin() -> None:
    for head in (PACKED, PLAIN):
        assert [one.MEANING for one in known() if one.recognises(head)] == [memray_file.MEANING]
    assert not memray_file.recognises(b"\x04\x22\x4d\x18" + bytes(100))
    assert not memray_file.recognises(b"a memray")
