"""Stacks of other programs where a recording is expected: perf.data, the text of perf script,
folded stacks.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.sources import perf_file, perf_records
from tests.sources import perf_writer as pw

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "perf"
FILES = ("file.data", "pipe.data", "file.txt", "pipe.txt", "stacks.folded")
# What `known_answer.c` does in the kernel while it waits, as perf script prints it.
SLEEPS = """w 10 [000] 1.000000: sched:sched_switch: prev_comm=w prev_pid=10 prev_prio=120 prev_state={state} ==> \
next_comm=swapper/0 next_pid=0 next_prio=120
\tffffffff82200000 __schedule+0x10 ([kernel.kallsyms])
\tffffffff81400000 {inner}+0x10 ([kernel.kallsyms])
\tffffffff81300000 {call}+0x10 ([kernel.kallsyms])
\t          401136 {function}+0x20 (/usr/lib/libc.so.6)

swapper 0 [000] 1.250000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> \
next_comm=w next_pid=10 next_prio=120
\tffffffff82200000 __schedule+0x10 ([kernel.kallsyms])

"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in FILES[:-1]:
        shutil.copy(GOLDEN / name, tmp_path / name)
    (tmp_path / "stacks.folded").write_text("main;outer;inner 5\nmain 2\n")
    return tmp_path


def rows(path: Path, question: str) -> list[dict[str, object]]:
    with Reader(open_run(path)) as reader:
        found: list[dict[str, object]] = reader.query(question).to_pylist()
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("words", [["table", "functions"], ["table", "threads"], ["table", "processes"],
                                   ["query", "SELECT count(*) AS n FROM samples"], ["flame"]])  # fmt: skip
def test_commands_take_them(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([words[0], name, *words[1:]]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", ["file.data", "stacks.folded"])
def test_tables_in_parts_hold_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the numbers of stacks, which are given in the order in which they are seen."""
    questions = [
        "SELECT * FROM frames ORDER BY ALL",
        """SELECT inner_.frame, inner_.depth, outer_.frame AS around
           FROM stacks inner_ LEFT JOIN stacks outer_ ON inner_.parent = outer_.stack ORDER BY ALL""",
        """SELECT samples.* EXCLUDE (stack), stacks.frame, stacks.depth
           FROM samples LEFT JOIN stacks USING (stack) ORDER BY ALL""",
    ]
    whole = [rows(Path(name), question) for question in questions]
    Path(name).touch()
    monkeypatch.setattr("layerscope.ingest.foreign_stacks.MOST_ROWS", 2)
    assert [rows(Path(name), question) for question in questions] == whole


@pytest.mark.parametrize("name", FILES[:-1])
def test_the_tables_hold_together(folder: Path, name: str) -> None:
    """Every sample has a track and a stack that are there, and the stacks are a tree of the
    frames.
    """
    path = folder / name
    [told] = rows(
        path, "SELECT count(*) AS n, sum(weight_ns) AS ns FROM samples WHERE kind = 'cpu'"
    )
    assert int(str(told["n"])) > 20
    # 99 a second of CPU time.
    assert told["ns"] == int(str(told["n"])) * 10_101_010
    joined = (
        "FROM samples JOIN tracks USING (track) JOIN stacks USING (stack) JOIN frames USING (frame)"
    )
    assert rows(path, f"SELECT count(*) AS n {joined} WHERE samples.kind = 'cpu'") == [
        {"n": told["n"]}
    ]
    wrong = "SELECT s.stack FROM stacks s LEFT JOIN stacks p ON s.parent = p.stack WHERE "
    assert rows(path, wrong + "s.depth <> coalesce(p.depth + 1, 0) OR s.parent >= s.stack") == []
    assert (
        rows(path, "SELECT name FROM tracks WHERE name <> 'known_answer' AND kind = 'thread'") == []
    )


def test_what_a_file_says_about_its_machine(folder: Path) -> None:
    run = open_run(folder / "file.data")
    assert run.info.host == {"name": "example"}
    assert run.info.command[:2] == ["/usr/bin/perf", "record"]
    assert run.info.environment["clock"] == "CLOCK_MONOTONIC"
    [reading] = rows(
        folder / "file.data", "SELECT clock_value - run_ns AS began FROM clock_readings"
    )
    assert int(str(reading["began"])) > 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("state", "inner", "call", "function", "expected"),
    [("S", "do_nanosleep", "__x64_sys_clock_nanosleep", "usleep", "sleep"),
     ("S", "futex_wait", "__x64_sys_futex", "pthread_cond_wait@@GLIBC_2.3.2", "lock"),
     ("S", "futex_wait", "__x64_sys_futex", "gomp_team_barrier_wait_end", "barrier"),
     ("S", "pipe_read", "__x64_sys_read", "read", "pipe"), ("S", "sock_poll", "__x64_sys_poll", "poll", "socket"),
     ("S", "ep_poll", "__x64_sys_epoll_wait", "epoll_wait", "event"),
     ("S", "unix_stream_read_generic", "__x64_sys_recvfrom", "recv", "socket"),
     ("D", "folio_wait_bit", "asm_exc_page_fault", "memcpy", "page_fault"),
     ("R", "do_nanosleep", "__x64_sys_clock_nanosleep", "usleep", "preempted"),
     ("S", "x", "__x64_sys_wait4", "wait4", "child")],
)  # fmt: skip
def test_waits_have_the_state_that_their_functions_tell(
    folder: Path, state: str, inner: str, call: str, function: str, expected: str
) -> None:
    (folder / "waits.txt").write_text(
        SLEEPS.format(state=state, inner=inner, call=call, function=function)
    )
    found = rows(folder / "waits.txt", "SELECT kind, state, weight_ns, exact FROM samples")
    assert found == [{"kind": "offcpu", "state": expected, "weight_ns": 250_000_000, "exact": True}]


def test_what_was_lost_is_a_gap(folder: Path) -> None:
    writer = pw.Writer()
    writer.event()
    writer.sample(5, 10, [pw.USER, 1])
    writer.lost(7, 42)
    (folder / "perf.data").write_bytes(writer.file())
    assert rows(folder / "perf.data", "SELECT start_ns, lost, reason FROM gaps") == [
        {"start_ns": 7, "lost": 42, "reason": "ring_full"}
    ]


@pytest.mark.parametrize("name", ["file.data", "file.txt"])
def test_times_count_from_the_start_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Not from zero of its clock, which was about 3470 s before."""
    [told] = rows(
        folder / name, "SELECT min(at_ns) AS first, max(at_ns) AS last, count(*) AS n FROM samples"
    )
    [threads] = rows(folder / name, "SELECT min(start_ns) AS first FROM tracks")
    start_ns = open_run(folder / name).info.start_ns
    assert start_ns == threads["first"]
    assert 0 <= int(str(told["first"])) - start_ns < 10_000_000
    assert cli.main(["query", name, "SELECT min(at_ns) AS at_ns FROM samples"]) == 0
    assert re.search(r"\b0\.00\d{4} s", capsys.readouterr().out)
    assert cli.main(["flame", name, "--time", "0:5", "-o", "all.svg"]) == 0
    assert cli.main(["flame", name, "--time", "0:0.5", "-o", "half.folded"]) == 0
    assert cli.main(["flame", name, "-o", "all.folded"]) == 0
    whole, half = (
        sum(int(line.rpartition(" ")[2]) for line in (folder / part).read_text().splitlines())
        for part in ("all.folded", "half.folded")
    )
    assert 0 < half < whole
    capsys.readouterr()
    assert cli.main(["flame", name, "--time", "5:9", "-o", "none.svg"]) != 0
    assert "nothing of kind cpu" in capsys.readouterr().err


def test_an_unfinished_file_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((folder / "file.data").read_bytes())
    content[48:56] = bytes(8)
    (folder / "killed.data").write_bytes(content)
    assert cli.main(["table", "killed.data", "functions", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "perf was killed" in str(told["problems"])


def test_what_cannot_be_read_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "foreign.data").write_bytes(b"2ELIFREP" + bytes(100))
    assert cli.main(["table", "foreign.data", "functions"]) == 125
    error = capsys.readouterr().err
    assert "order of bytes" in error
    assert "Traceback" not in error


@pytest.mark.slow
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.sampled_from(["file.data", "pipe.data"]), st.data())
def test_a_damaged_file_is_a_picture_or_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, data: st.DataObject
) -> None:
    content = bytearray((GOLDEN / name).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    (folder / "damaged.data").write_bytes(content)

    status = cli.main(["flame", "damaged.data", "--by", "thread", "-o", "damaged.svg", "--force"])

    said = capsys.readouterr().err
    assert status == 0 or (status == 125 and said.startswith("layerscope: "))
    assert "Traceback" not in said


def test_a_file_that_ends_behind_any_record_has_the_samples_before(folder: Path) -> None:
    content = (GOLDEN / "file.data").read_bytes()
    (records, *_) = perf_file.open_file(GOLDEN / "file.data").records
    is_sample = records.type == perf_records.SAMPLE
    assert is_sample.any()
    for row in np.linspace(0, len(records.end) - 1, 40).astype(int).tolist():
        (folder / "cut.data").write_bytes(content[: int(records.end[row])])
        file = perf_file.open_file(folder / "cut.data")
        assert len(perf_records.decoded(file).samples.time) == np.count_nonzero(
            is_sample[: row + 1]
        )
