"""A folder with traces of ranks where a recording is expected."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.ingest import rank_pool
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader

BASE_NS = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for traces, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def write(path: Path, rank: int | None, count: int, start_us: int = 0) -> None:
    """A trace with so many operators of a microsecond, ten apart."""
    told: dict[str, Any] = {"baseTimeNanoseconds": BASE_NS}
    if rank is not None:
        told["distributedInfo"] = {"rank": rank, "world_size": 8}
    about = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 7, "dur": 1}
    events = [{**about, "name": f"op{at}", "ts": start_us + 10 * at} for at in range(count)]
    path.write_text(json.dumps({"schemaVersion": 1, **told, "traceEvents": events}))


def spans_by_rank(path: Path) -> dict[int | None, int]:
    question = """SELECT rank, count(*) AS n FROM spans JOIN tracks USING (track)
        JOIN processes USING (process) GROUP BY rank ORDER BY rank"""
    with Reader(open_run(path)) as reader:
        rows = reader.query(question).to_pylist()
    return {row["rank"]: row["n"] for row in rows}


def problems(path: Path) -> dict[str, str]:
    with Reader(open_run(path)) as reader:
        rows = reader.query("SELECT code, what FROM problems").to_pylist()
    return {row["code"]: row["what"] for row in rows}


def test_a_file_is_a_rank_and_what_it_tells_wins_over_its_name(traces: Path) -> None:
    write(traces / "rank-5.json", 0, 3)
    write(traces / "rank-1.json", None, 4)
    write(traces / "worker2.json", 2, 5)

    assert spans_by_rank(traces) == {0: 3, 1: 4, 2: 5}
    assert problems(traces) == {}


def test_times_of_different_files_are_on_one_clock(traces: Path) -> None:
    write(traces / "a.json", 0, 1, start_us=1_000)
    write(traces / "b.json", 1, 1, start_us=1_250)

    with Reader(open_run(traces)) as reader:
        rows = reader.query("SELECT start_ns FROM spans ORDER BY start_ns").to_pylist()

    assert rows[1]["start_ns"] - rows[0]["start_ns"] == 250_000


def test_a_bad_rank_is_named_and_the_others_are_there(traces: Path) -> None:
    write(traces / "rank-0.json", 0, 3)
    (traces / "rank-1.json").write_text("no trace at all")
    (traces / "notes.txt").write_text("what I did")

    assert spans_by_rank(traces) == {0: 3}
    assert "rank-1.json is no trace" in problems(traces)["trace_unknown"]


def test_a_rank_that_two_files_tell_is_shown_once(traces: Path) -> None:
    write(traces / "a.json", 3, 1)
    write(traces / "b.json", 3, 2)
    write(traces / "c.json", 4, 1)

    assert spans_by_rank(traces) == {3: 1, 4: 1}
    assert problems(traces)["rank_doubled"].startswith("b.json and a.json both are of rank 3")


def test_a_file_without_a_rank_gets_the_first_that_is_free(traces: Path) -> None:
    write(traces / "a.json", None, 1)
    write(traces / "b.json", 0, 2)

    assert spans_by_rank(traces) == {0: 2, 1: 1}
    assert "a.json" in problems(traces)["rank_assumed"]


def test_what_has_not_changed_is_not_read_again(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(traces / "rank-0.json", 0, 3)
    write(traces / "rank-1.json", 1, 3)
    spans_by_rank(traces)
    with monkeypatch.context() as without_converters:
        without_converters.setattr(rank_pool, "_convert", None)
        assert spans_by_rank(traces) == {0: 3, 1: 3}

    write(traces / "rank-1.json", 1, 6)
    assert spans_by_rank(traces) == {0: 3, 1: 6}


def test_a_recording_of_a_folder_can_be_packed_and_outlives_its_files(
    traces: Path, tmp_path: Path
) -> None:
    write(traces / "rank-0.json", 0, 3)
    write(traces / "rank-1.json", 1, 4)
    kept = tmp_path / "kept.layerscope.zip"

    assert open_run(traces).info.host_fact("cpu", "granted") is None  # no trace tells
    assert cli.main(["pack", str(traces), "-o", str(kept), "-q"]) == 0
    shutil.rmtree(traces)
    shutil.rmtree(tmp_path / "cache")

    assert spans_by_rank(kept) == {0: 3, 1: 4}


def test_a_question_to_a_folder(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(traces / "rank-0.json", 0, 3)

    assert cli.main(["query", str(traces), "SELECT count(*) AS n FROM spans", "--csv"]) == 0

    assert capsys.readouterr().out.split() == ["n", "3"]


def test_a_folder_without_a_slash_stands_before_the_question_too(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(traces / "rank-0.json", 0, 3)
    monkeypatch.chdir(traces.parent)

    assert cli.main(["query", traces.name, "SELECT count(*) AS n FROM spans", "--csv"]) == 0

    assert capsys.readouterr().out.split() == ["n", "3"]


def test_a_folder_without_traces_is_refused(traces: Path) -> None:
    (traces / "notes.txt").write_text("nothing here")

    with pytest.raises(ReadError, match="is not a layerscope recording: the folder has neither"):
        open_run(traces)


def test_a_converter_that_dies_leaves_the_other_files(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(4):
        write(traces / f"rank-{rank}.json", rank, 2)
    kill = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import layerscope.ingest.open as o; "
        "from layerscope.ingest import rank_converter as c; f = c.open_run; "
        "c.open_run = lambda p: os.kill(os.getpid(), 9) if 'rank-1' in p.name else f(p); "
    )
    monkeypatch.setattr(rank_pool, "_START", kill + rank_pool._START)

    assert spans_by_rank(traces) == {0: 2, 2: 2, 3: 2}
    assert (
        "rank-1.json could not be read: its converter was killed" in problems(traces)["rank_unread"]
    )
    assert os.path.isfile(traces / "rank-1.json")
