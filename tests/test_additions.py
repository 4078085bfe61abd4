"""A format, a table, a check, an export and a command are one new file each, found by its folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from layerscope import cli, sources
from layerscope.analyse import tables
from layerscope.checks import judge, machine
from layerscope.show import exports
from tests.checks.machines import seen

Add = Callable[[ModuleType, str, str], None]

FORMAT = '''
"""Lines of a toy: when, how long, how deep, what."""
import numpy as np
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack

MEANING = "a log of the toy"

def recognises(head):
    return head.startswith(b"toy ")

def read(path):
    rows = [line.split() for line in path.read_text().splitlines()[1:]]
    start, dur, depth = (np.array([int(row[at]) for row in rows]) for at in range(3))
    names = sorted({row[3] for row in rows})
    zeros = np.zeros(len(rows), np.int64)
    return Imported(
        start_ns=start, dur_ns=dur, depth=depth, track=zeros, kind=zeros, args=zeros - 1,
        name=np.array([names.index(row[3]) for row in rows]), names=names,
        tracks=[ImportedTrack(0, "toy")], processes=[ImportedProcess("toy")],
    )
'''
TABLE = '''
"""Longest: the longest span of each name.

name       what ran
longest_ns its longest duration
"""
from layerscope.analyse.result import NS, Result, ResultColumn

BY = ()
REFUSED = {}
COLUMNS = (
    ResultColumn("name", "string", "", "what ran"),
    ResultColumn("longest_ns", "int64", NS, "its longest duration"),
)
TOP = 0
EMPTY = "Nothing ran."
NEXT = "layerscope summary"

def build(reader, by=None):
    query = "SELECT name, max(dur_ns) AS longest_ns FROM spans GROUP BY name"
    return Result("longest", COLUMNS, reader.connection().sql(query), order="longest_ns DESC")
'''
CHECK = '''
"""The toy: whether it is there."""
from layerscope.checks.check import OK, Check

ORDER = 0

def check(seen):
    yield Check("toy", "toy", OK, "it is there")
'''
EXPORT = '''
"""The names of all spans, one a line."""
from layerscope.show.exports import Exported

SUFFIXES = (".names",)
OPEN = "any editor"

def write(reader, stream, steps):
    names = [row["name"] for row in reader.query("SELECT name FROM spans").to_pylist()]
    stream.write("".join(f"{name}\\n" for name in names).encode())
    return Exported(len(names))
'''
COMMAND = '''
"""Greet the toy."""

def configure(parser):
    parser.add_argument("name")

def run(options):
    print("hello,", options.name)
    return 0
'''
LOG = "toy log\n0 100 0 outer\n10 30 1 inner\n50 20 1 inner\n"


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Puts a file with this content, toy.py or longest.py, beside those of a package."""

    def put(package: ModuleType, name: str, content: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(content)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        full = f"{package.__name__}.{name}"
        monkeypatch.setitem(sys.modules, full, ModuleType(full))
        del sys.modules[full]
        tables.names.cache_clear()

    yield put
    tables.names.cache_clear()


@pytest.fixture
def log(add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the toy's format, which is known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    add(sources, "toy", FORMAT)
    path = tmp_path / "toy.log"
    path.write_text(LOG)
    return path


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[list[object]]:
    """The rows that a command prints with --json."""
    assert cli.main([*words, "--json"]) == 0
    rows: list[list[object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_a_format_is_one_file(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT name, count(*), sum(self_ns), count(parent) FROM spans GROUP BY name ORDER BY 1"
    assert answer(["query", str(log), query], capsys) == [["inner", 2, 50, 2], ["outer", 1, 50, 0]]


def test_a_table_is_one_file(log: Path, add: Add, capsys: pytest.CaptureFixture[str]) -> None:
    add(tables, "longest", TABLE)
    rows = answer(["table", str(log), "longest"], capsys)
    assert rows == [["outer", 100], ["inner", 30]]


def test_a_check_is_one_file(add: Add) -> None:
    add(machine, "toy", CHECK)

    assert [check.evidence for check in judge.judged(seen()) if check.code == "toy"] == [
        "it is there"
    ]


def test_an_export_is_one_file(log: Path, add: Add, tmp_path: Path) -> None:
    add(exports, "toy", EXPORT)
    out = tmp_path / "out.names"
    assert cli.main(["export", str(log), str(out)]) == 0
    assert sorted(out.read_text().split()) == ["inner", "inner", "outer"]


def test_a_command_is_one_file(add: Add, capsys: pytest.CaptureFixture[str]) -> None:
    add(cli, "toy", COMMAND)
    assert cli.main(["toy", "you"]) == 0
    assert capsys.readouterr().out == "hello, you\n"
