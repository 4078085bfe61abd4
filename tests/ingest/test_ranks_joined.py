"""Ranks that are converted each by itself and read together: the same numbers as of each alone, and
one that fails leaves the others.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import tables
from layerscope.analyse.summary import summarise
from layerscope.ingest import rank_pool
from layerscope.ingest.join import join
from layerscope.ingest.open import convert_into, open_run
from layerscope.ingest.ranks import problems_of_tables
from layerscope.model.errors import ReadError
from layerscope.model.schema import TABLES
from layerscope.rawfile.json_files import read_session
from layerscope.recording import ranks
from layerscope.recording.complete import COMPLETE
from layerscope.recording.rank_keys import RankKeys, read_joined
from layerscope.recording.reader import Reader, table_files
from layerscope.recording.run import Run
from tests.ingest.raw_file import MODULE, OPTIMIZER, RawFile
from tests.ingest.sampler_file import SamplerFile
from tests.recorded import ask
from tests.recordings import run_info

MS = 1_000_000


class Ranks:
    """A recording of ranks that all run the same operators, each a little longer than the one
    before, in modules that each meets in another order.
    """

    def __init__(self, folder: Path, count: int = 3, steps: int = 4) -> None:
        self.path = folder / "train.layerscope"
        self.steps = steps
        launch = ranks.LaunchInfo("job", "Slurm", "4711", count)
        for rank in range(count):
            part = ranks.join(self.path, launch, rank, run_info(run_id=f"rank-{rank}"))
            assert part is not None
            self.write(rank)

    def raw(self, rank: int) -> Path:
        return self.path / "ranks" / str(rank) / "raw"

    def write(self, rank: int, step: str = "Optimizer.step#SGD.step") -> None:
        """The raw files of a rank."""
        shutil.rmtree(self.raw(rank), ignore_errors=True)
        self.raw(rank).mkdir()
        file = RawFile(self.raw(rank), 100 + rank, rank=rank, world_size=3)
        file.poll(600)
        names = ["Net.one\nLinear\nnet.py:1", "Net.two\nReLU\nnet.py:2"]
        modules = [file.number(name) for name in (names if rank % 2 else names[::-1])]
        records = file.thread_begin(1000, 100 + rank, 1)
        for number in range(self.steps):
            at = (1 + number) * MS
            for place, module in enumerate(modules):
                begin = at + place * 10_000
                inner = file.span(
                    begin + 10, begin + 1010 + rank, 1, f"aten::op{place}", module=module
                )
                records += [*inner, *file.span(begin, begin + 2000, 0, names[0], MODULE)]
            if not step:
                records += file.span(at, at + 50_000, 0, "Net\nNet\nnet.py:0", MODULE, seq=0)
            else:
                records += file.span(at + 30_000, at + 40_000, 0, step, OPTIMIZER, optimizer=1)
        file.records(1, records)
        file.sample(2 * MS, 7)
        file.end(10 * MS)
        stacks = SamplerFile(self.raw(rank), 100 + rank, 600)
        stacks.thread(0, 100 + rank, 600)
        stacks.cpu(MS + 500, 0, stacks.stack("main", "py:train", f"py:of_{rank}"), 1_000_000)
        stacks.end(10 * MS)


OPERATORS = """SELECT name, path, sum(weight)::BIGINT AS calls, sum(dur_ns)::BIGINT AS total,
    sum(self_ns)::BIGINT AS self FROM spans LEFT JOIN modules USING (module)
    WHERE layer = 'operators' GROUP BY ALL"""
SUMS = {
    "spans": "SELECT spans.name, spans.kind, spans.start_ns, dur_ns, self_ns, step, path, class, tid, rank "
    "FROM spans JOIN tracks USING (track) JOIN processes USING (process) "
    "LEFT JOIN modules USING (module)",
    "parents": "SELECT inner_.name, outer_.name AS around, outer_.start_ns "
    "FROM spans inner_ JOIN spans outer_ ON inner_.parent = outer_.span",
    "samples": "SELECT at_ns, weight_ns, tid, spans.name, frames.name AS innermost, rank FROM samples "
    "JOIN tracks USING (track) JOIN processes USING (process) LEFT JOIN spans USING (span) "
    "JOIN stacks USING (stack) JOIN frames USING (frame)",
    "totals": "SELECT totals.name, kind, path, step_class, count, total_ns, self_ns, rank "
    "FROM totals JOIN processes USING (process) LEFT JOIN modules USING (module)",
    "steps": "SELECT step, rule, steps.start_ns, dur_ns, rank FROM steps JOIN processes USING (process)",
    "counters": "SELECT at_ns, counters.name, value, rank FROM counters JOIN tracks USING (track) "
    "JOIN processes USING (process)",
}


def in_order(rows: list[dict]) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.parametrize("what", SUMS)
def test_the_tables_of_all_ranks_are_those_of_each_rank_alone(what: str, tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    alone = [
        row
        for part in ranks.parts(recording.path).values()
        for row in ask(open_run(part.path), SUMS[what])
    ]

    together = ask(open_run(recording.path), SUMS[what])

    assert together
    assert in_order(together) == in_order(alone)


def test_sums_over_ranks_are_those_of_all_ranks_added_up(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    alone: dict[tuple[str, str], list[int]] = {}
    for part in ranks.parts(recording.path).values():
        for row in ask(open_run(part.path), OPERATORS):
            sums = alone.setdefault((row["name"], row["path"]), [0, 0, 0])
            for place, name in enumerate(("calls", "total", "self")):
                sums[place] += row[name]

    with Reader(open_run(recording.path)) as reader:
        rows = tables.build(reader, "operators", "module").data.to_pylist()
        by_module = tables.build(reader, "modules").data.to_pylist()
        summary = summarise(reader)

    # Only what is in a module: the optimizer is in none.
    found = {
        (row["name"], row["module"]): [row["count"], row["total_ns"], row["self_ns"]]
        for row in rows
        if row["module"].startswith("Net.")
    }
    assert found == {key: sums for key, sums in alone.items() if key[1]}
    assert [row["path"] for row in by_module if row["calls"] is not None or row["self_ns"]].count(
        "Net.one"
    ) == 1
    assert summary.modules is not None
    assert summary.ranks == 3
    assert summary.steps is not None
    assert (summary.steps.count, summary.steps.processes) == (12, 3)


def test_no_two_ranks_have_a_key_in_common(tmp_path: Path) -> None:
    run = open_run(Ranks(tmp_path).path)

    for name in ("processes", "tracks", "spans", "modules", "args", "totals", "frames", "stacks"):
        key = TABLES[name].columns[0].name
        (row,) = ask(run, f'SELECT count(*) AS n, count(DISTINCT "{key}") AS keys FROM "{name}"')
        assert row["n"] == row["keys"], name
        assert row["n"] > 0 or name == "args"


def test_columns_read_without_the_database_are_those_of_the_views(tmp_path: Path) -> None:
    run = open_run(Ranks(tmp_path).path)

    with Reader(run) as reader:
        for name, table in TABLES.items():
            numbers = [c.name for c in table.columns if c.type in ("int64", "int32")]
            if not numbers:
                continue
            listed = ", ".join(f'coalesce("{column}", -1) AS "{column}"' for column in numbers)
            asked = reader.query(f'SELECT {listed} FROM "{name}"')
            whole = reader.arrays(name, numbers)
            pieces = list(reader.pieces(name, numbers))
            for column in numbers:
                expected = sorted(asked[column].to_pylist())
                assert sorted(whole[column].tolist()) == expected, (name, column)
                in_pieces = np.concatenate([piece[column] for piece in pieces]) if pieces else []
                assert sorted(np.array(in_pieces).tolist()) == expected, (name, column)


def test_each_rank_is_converted_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Ranks(tmp_path)
    started: list[tuple[str, int]] = []
    popen = rank_pool.subprocess.Popen

    class Watched(popen):  # type: ignore[misc, valid-type]
        def __init__(self, command: list[str], **more: object) -> None:
            super().__init__(command, **more)
            started.append((Path(command[-1]).name, self.pid))

    monkeypatch.setattr(rank_pool.subprocess, "Popen", Watched)
    open_run(recording.path)

    assert sorted(rank for rank, _ in started) == ["0", "1", "2"]
    assert len({pid for _, pid in started} | {os.getpid()}) == 4


def test_a_second_opening_converts_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Ranks(tmp_path)
    first = open_run(recording.path)
    files = {path: path.stat().st_mtime_ns for path in recording.path.rglob("*") if path.is_file()}
    monkeypatch.setattr(rank_pool, "_convert", None)

    second = open_run(recording.path)

    assert second.joined == first.joined
    assert files == {
        path: path.stat().st_mtime_ns for path in recording.path.rglob("*") if path.is_file()
    }


def test_nothing_of_a_rank_is_copied(tmp_path: Path) -> None:
    run = open_run(Ranks(tmp_path).path)

    assert [path.name for path in run.path.iterdir() if path.is_dir()] != []
    written = {path.name for path in run.path.iterdir() if path.is_dir()}
    assert written == {"ranks", "modules", "problems"}
    assert {file.parts[-4] for file in table_files(run, "spans")} == {"ranks"}


def test_a_rank_that_changed_is_converted_again_alone(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    open_run(recording.path)
    before = {
        rank: (part.path / COMPLETE).stat().st_mtime_ns
        for rank, part in ranks.parts(recording.path).items()
    }
    recording.steps = 5
    recording.write(1)

    run = open_run(recording.path)

    changed = {
        rank
        for rank, part in ranks.parts(run.path).items()
        if (part.path / COMPLETE).stat().st_mtime_ns != before[rank]
    }
    assert changed == {1}
    steps = ask(
        run,
        "SELECT rank, count(*) AS n FROM steps JOIN processes USING (process) GROUP BY rank ORDER BY rank",
    )
    assert [row["n"] for row in steps] == [4, 5, 4]


def problems(run: Run) -> dict[str, str]:
    return {row["code"]: row["what"] for row in ask(run, "SELECT code, what FROM problems")}


def spans_by_rank(run: Run) -> list[int]:
    rows = ask(
        run,
        "SELECT DISTINCT rank FROM spans JOIN tracks USING (track) JOIN processes USING (process) ORDER BY rank",
    )
    return [row["rank"] for row in rows]


def test_a_rank_that_cannot_be_read_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    open_run(recording.path)
    part = ranks.parts(recording.path)[1]
    shutil.rmtree(part.raw)
    next((part.path / "spans").glob("*.parquet")).write_bytes(b"nothing of a table")

    run = open_run(recording.path)

    assert spans_by_rank(run) == [0, 2]
    assert "rank 1 could not be read" in problems(run)["rank_unread"]


def test_a_rank_whose_run_json_is_lost_is_read_from_its_raw_files(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    (recording.path / "ranks" / "2" / "run.json").write_text("{")

    run = open_run(recording.path)

    assert spans_by_rank(run) == [0, 1, 2]
    assert "rank 2" in problems(run)["session_killed"]


def test_a_converter_that_is_killed_is_said_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Ranks(tmp_path)
    kill = "import os, sys; sys.argv[3].endswith('/1') and os.kill(os.getpid(), 9); "
    monkeypatch.setattr(rank_pool, "_START", kill + rank_pool._START)

    run = open_run(recording.path)

    assert spans_by_rank(run) == [0, 2]
    assert problems(run)["rank_unread"].startswith(
        "rank 1 could not be read: its converter was killed (signal 9)"
    )
    monkeypatch.undo()
    assert spans_by_rank(open_run(recording.path)) == [0, 1, 2]
    assert "rank_unread" not in problems(open_run(recording.path))


def test_a_converter_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Ranks(tmp_path)
    monkeypatch.setattr(rank_pool, "_START", "raise SystemError('no luck')")

    with pytest.raises(ReadError, match=r"its converter ended with status 1: SystemError: no luck"):
        open_run(recording.path)


def test_requests_of_a_rank_are_none_where_another_rank_trains(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    recording.write(2, step="")
    alone = ask(open_run(ranks.parts(recording.path)[2].path), "SELECT DISTINCT rule FROM steps")
    run = open_run(recording.path)

    assert alone == [{"rule": "request"}]
    assert ask(run, "SELECT DISTINCT rule FROM steps") == [{"rule": "optimizer"}]
    of_rank = "FROM spans JOIN tracks USING (track) JOIN processes USING (process) WHERE rank = 2"
    assert ask(
        run, f"SELECT count(*) > 0 AS some, count(step) AS n, count(phase) AS p {of_rank}"
    ) == [{"some": True, "n": 0, "p": 0}]
    classes = "SELECT DISTINCT step_class FROM totals JOIN processes USING (process) WHERE rank = 2"
    assert ask(run, classes) == [{"step_class": "outside"}]
    with Reader(run) as reader:
        assert reader.rows("steps") == 8


def test_problems_of_ranks_are_each_said_once() -> None:
    def problem(code: str, what: str) -> dict[str, str]:
        return {"layer": "operators", "code": code, "what": what, "remedy": "", "lost": ""}

    unread = "/proc/PID/io of {} could not be read: EACCES"
    own = {
        "0": [("all", "of all"), ("no_step_mark", "no"), ("io", unread.format("process 7"))],
        "1": [("all", "of all"), ("one", "of one"), ("io", unread.format("3 processes"))],
    }
    found = problems_of_tables(
        {rank: [problem(*about) for about in of_rank] for rank, of_rank in own.items()}
    )

    assert [row["what"] for row in found] == [
        "of all",
        "of one (rank 1)",
        "/proc/PID/io of 4 processes could not be read: EACCES",
    ]


def test_the_clocks_are_known_after_the_raw_files_are_gone(tmp_path: Path) -> None:
    recording = Ranks(tmp_path)
    run = open_run(recording.path)
    state = read_joined(run.path)
    assert state is not None
    parts = {rank: open_run(part.path) for rank, part in ranks.parts(run.path).items()}
    state.ranks = [
        RankKeys(keys.rank, 1000 * keys.rank, keys.first, keys.modules) for keys in state.ranks
    ]
    for part in parts.values():
        shutil.rmtree(part.raw)
    (tmp_path / "new").mkdir()

    join(tmp_path / "new", parts, [], state)

    found = read_joined(tmp_path / "new")
    assert found is not None
    assert [keys.shift_ns for keys in found.ranks] == [0, 1000, 2000]


def test_a_recording_that_cannot_be_written_has_its_tables_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    recording = Ranks(tmp_path)
    for folder in (recording.path, *(part.path for part in ranks.parts(recording.path).values())):
        (folder / ".lock").mkdir()  # nobody can write there, root neither

    run = open_run(recording.path)

    assert spans_by_rank(run) == [0, 1, 2]
    assert tmp_path / "cache" in run.tables_path.parents
    assert all(tmp_path / "cache" in folder.parents for _, folder in run.joined)


@pytest.mark.parametrize("rank", [0, 1])
def test_histograms_of_ranks_that_were_not_thinned_are_made_of_their_spans(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rank that was thinned a file has them: here all of them, to compare."""
    recording = Ranks(tmp_path, count=2)
    counted = {}
    for number, part in ranks.parts(recording.path).items():
        conversion = convert_with_histograms(part, is_counted=number == rank)
        counted[number] = conversion
    run = open_run(recording.path)
    by_rank = """SELECT rank, totals.name, from_ns, sum(histograms.count)::BIGINT AS n
        FROM histograms JOIN totals USING (total) JOIN processes USING (process) GROUP BY ALL"""
    mixed = ask(run, by_rank)
    other = ranks.parts(recording.path)[1 - rank]
    convert_with_histograms(other, is_counted=True)
    both = ask(open_run(recording.path), by_rank)

    assert {row["rank"] for row in mixed} == {0, 1}
    assert in_order(mixed) == in_order(both)


def convert_with_histograms(part: Run, is_counted: bool) -> None:
    """The tables of a rank, as if it was thinned if `is_counted`."""
    from layerscope.ingest import parts as parts_of_spans

    init = parts_of_spans.Parts.__init__

    def as_thinned(parts: parts_of_spans.Parts, *asked: Any) -> None:
        init(parts, *asked)
        parts.is_thinned = is_counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts_of_spans.Parts, "__init__", as_thinned)
        convert_into(part.raw, part.path, read_session(part.raw))
