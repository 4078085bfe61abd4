"""Questions about the spans of a large recording: answers are those of its tables, bad ones are
refused, and what is kept for them goes when it should.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope import cli
from layerscope.analyse import self_times
from layerscope.analyse.timeline import kept, picture, selection
from layerscope.analyse.timeline.kept import KeptColumns
from layerscope.ingest.open import open_run
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from layerscope.show.report.contents import ReportContents
from layerscope.show.report.live_contents import LiveContents
from layerscope.show.report.server import Server
from tests.browser.bad_input import FOREIGN, several_ranks
from tests.browser.timeline_page import training
from tests.recordings import MS, Recording
from tests.show.report_page import serving
from tests.show.test_report_server import ask, ask_as_user

STEPS = 25
CALLS = 6


@pytest.fixture(autouse=True)
def _large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recording is too large for a page."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", 0)


def written(path: Path) -> Run:
    """Calls of some names at random on two threads."""
    chance = random.Random(3)
    recording = Recording()
    other = recording.add_thread(recording.process, 101, "worker")
    for step in range(STEPS):
        for call in range(CALLS):
            start_ns = (step * CALLS + call) * 1000 + chance.randrange(300)
            track = chance.choice([recording.thread, other])
            about = {"step": step, "track": track}
            outer = recording.add_span(f"call {chance.randrange(4)}", start_ns, 600, **about)
            recording.add_span("inner", start_ns + 9, chance.randrange(400), outer)
    return with_id(recording.write(path))


def with_id(run: Run) -> Run:
    """The recording, with its name as its identity: all others of the tests share one."""
    file = run.path / "run.json"
    about = json.loads(file.read_bytes())
    file.write_text(json.dumps({**about, "run_id": run.path.stem}))
    return Run.open(run.path)


@contextlib.contextmanager
def asked(run: Run) -> Iterator[Server]:
    with serving(run) as server:
        yield server
        assert server.contents.timeline is not None
        server.contents.timeline.close()


def answered(server: Server, question: str) -> Any:
    answer = ask_as_user(server, question)
    assert answer.status == 200, answer.text
    return json.loads(answer.body)


def folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "layerscope" / cache.TIMELINES).glob("*"))


_BY_NAME = """
    SELECT name, layer, count(*), sum(dur_ns)::BIGINT, sum(self_ns)::BIGINT, min(dur_ns),
           quantile_disc(dur_ns, 0.5), quantile_disc(dur_ns, 0.99), max(dur_ns)
    FROM spans WHERE start_ns - {origin} >= ? AND start_ns - {origin} < ? AND step >= ? AND step < ?
    GROUP BY ALL"""


@pytest.mark.parametrize("is_compiled", [True, False])
def test_statistics_of_a_stretch_are_those_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(selection, "compiled", lambda: None)
    chance = random.Random(5)
    run = written(tmp_path / "train.layerscope")
    sql = _BY_NAME.format(origin=run.info.start_ns)
    with asked(run) as server, Reader(run) as reader:
        about = answered(server, "/about-spans")
        for _ in range(20):
            start, end = sorted(chance.randrange(STEPS * CALLS * 1000) for _ in range(2))
            first, last = sorted(chance.randrange(STEPS + 1) for _ in range(2))
            rows = answered(
                server,
                f"/statistics?by=name&start={start - 0.5}&end={end}&steps={first}-{last}",
            )
            named = [(about["names"][row[0]], about["layers"][row[1]], *row[2:]) for row in rows]
            found = reader.query(sql, [start, end, first, last])
            expected = zip(*(column.to_pylist() for column in found.columns), strict=True)
            assert sorted(named) == sorted(expected)
            assert [row[4] for row in rows] == sorted((row[4] for row in rows), reverse=True)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_steps_that_there_cannot_be_have_no_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """Whatever stands in an address: the page asks for it as it asks for others."""
    if not is_compiled:
        monkeypatch.setattr(selection, "compiled", lambda: None)
    with asked(written(tmp_path / "train.layerscope")) as server:
        for first in (STEPS, 10**13, 10**21):
            assert answered(server, f"/statistics?by=name&steps={first}-{first + 1}") == []
            picture = "/picture?start=0&end=9&width=9&margin=0&lanes=0"
            assert ask_as_user(server, f"{picture}&steps={first}-{first + 1}").status == 200


def test_parents_are_the_same_with_and_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reader(training().write(tmp_path / "train.layerscope")) as reader:
        read = reader.arrays("spans", ["track", "depth", "start_ns", "dur_ns"])
    order = np.lexsort((read["depth"], read["start_ns"], read["track"]))
    columns = [read[name][order] for name in ("track", "depth", "start_ns", "dur_ns")]
    compiled = self_times.nested_parents(*columns)
    monkeypatch.setattr(self_times, "compiled", lambda: None)

    assert (compiled >= 0).any()
    assert compiled.tolist() == self_times.nested_parents(*columns).tolist()


@pytest.mark.parametrize(
    "question",
    [
        "/picture?start=0&end=0&width=100&margin=0&lanes=0",
        "/picture?start=nan&end=1&width=100&margin=0&lanes=0",
        "/picture?start=0&end=1e99&width=100&margin=0&lanes=0",
        "/picture?start=0&end=100&width=0&margin=0&lanes=0",
        "/picture?start=0&end=100&width=99999999&margin=0&lanes=0",
        "/picture?start=0&end=100&width=100&margin=0&lanes=99",
        "/picture?start=0&end=100&width=100&margin=0&lanes=-1",
        "/picture?start=0&end=100&width=100&margin=0&lanes=L99",
        "/picture?start=0&end=100&width=100&margin=0&lanes=" + "0," * 2000,
        "/picture?start=0&end=100&width=100&margin=0&lanes=0&found=%21",
        "/picture?start=0&end=100&width=100&margin=0&lanes=0&classes=" + "A" * 400,
        "/statistics",
        "/statistics?by=nothing",
        "/statistics?by=name&by=kind",
        "/statistics?by=name&steps=1",
        "/statistics?by=name&tracks=x",
        "/statistics?by=name&path=/etc/passwd",
        "/span",
        "/span?row=99999",
        "/span?row=-1",
        "/span?row=1.5",
        "/spans?rows=" + "1," * 2000 + "1",
        "/place?lane=0&place=99999",
        "/hit?at=0&row=0&direction=1",
        "/hit?at=0&row=0&direction=7&found=AQ",
        "/same?row=0&direction=0",
        "/shown?start=0",
        "/lanes?arranged=nothing",
        "/statistics?" + "&".join(f"x{at}=1" for at in range(50)),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_a_sentence(
    tmp_path: Path, question: str
) -> None:
    with asked(written(tmp_path / "train.layerscope")) as server:
        answer = ask_as_user(server, question)

    assert answer.status == 400
    assert len(answer.text.split()) > 3
    assert "Traceback" not in answer.text


def test_questions_need_the_cookie_and_a_large_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = written(tmp_path / "train.layerscope")
    with asked(run) as server:
        assert ask(server, "/statistics?by=name").status == 403
        assert ask_as_user(server, "/statistics?by=name", Origin="http://other").status == 403
        assert ask_as_user(server, "/statistics?by=name", "POST").status == 405
        assert ask_as_user(server, "/block/spans").status == 404
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", 2_000_000)
    with serving(run) as server:
        assert ask_as_user(server, "/statistics?by=name").status == 404
        assert ask_as_user(server, "/block/spans").status == 200


def test_columns_are_made_once_and_again_for_other_tables(tmp_path: Path) -> None:
    run = written(tmp_path / "train.layerscope")
    with asked(run) as server, asked(run) as other:
        assert answered(server, "/spans?rows=0") == answered(other, "/spans?rows=0")
    [folder] = folders(tmp_path)
    made = (folder / kept.ABOUT).stat().st_ino
    with asked(run) as server:
        answered(server, "/spans?rows=0")
    assert folders(tmp_path) == [folder]
    assert (folder / kept.ABOUT).stat().st_ino == made
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    shutil.rmtree(run.path)
    changed = Recording()
    changed.add_span("only", 0, MS)
    run = with_id(changed.write(tmp_path / "train.layerscope"))
    with asked(run) as server:
        assert answered(server, "/about-spans")["count"] == 1
    assert folder not in folders(tmp_path)
    assert len(folders(tmp_path)) == 1


@pytest.mark.parametrize("name", [kept.ABOUT, "start.npy", "weight.npy", "lanes_rows.npy"])
@pytest.mark.parametrize("how", ["gone", "empty", "cut", "zeros"])
def test_columns_that_were_damaged_are_made_again(tmp_path: Path, name: str, how: str) -> None:
    """As after a loss of power."""
    run = written(tmp_path / "train.layerscope")
    with asked(run) as server:
        known = [answered(server, question) for question in ("/about-spans", "/span?row=7")]
    [folder] = folders(tmp_path)
    file = folder / name
    data = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes({"empty": b"", "cut": data[:-9], "zeros": bytes(len(data))}[how])

    with asked(run) as server:
        assert [answered(server, one) for one in ("/about-spans", "/span?row=7")] == known

    assert folders(tmp_path) == [folder]
    assert file.read_bytes() == data


def test_others_that_were_used_long_ago_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    for name in ("one", "other"):
        with asked(written(tmp_path / f"{name}.layerscope")) as server:
            answered(server, "/spans?rows=0")

    assert [folder.name.partition("-")[0] for folder in folders(tmp_path)] == ["other"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, where there is no cache."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(kept.tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(cache, "caches", lambda _: [])
    return temporary


def test_without_a_cache_a_temporary_folder_goes_before_the_first_answer(
    tmp_path: Path, temporary: Path
) -> None:
    with asked(written(tmp_path / "train.layerscope")) as server:
        assert answered(server, "/about-spans")["count"] == 2 * STEPS * CALLS
        assert list(temporary.iterdir()) == []
        # What nobody has looked at yet is there nevertheless.
        assert answered(server, "/statistics?by=name")
        assert answered(server, "/span?row=7")


# Prepares a timeline without a cache, and says so while its columns are made.
_PREPARES = """
import sys, time
from pathlib import Path
from layerscope.analyse.timeline.kept import KeptColumns
from layerscope.model import cache
from layerscope.recording.run import Run
cache.caches = lambda _: []
def make(self, folder):
    (folder / "start.npy").write_bytes(bytes(1000))
    print(folder, flush=True)
    time.sleep(600)
KeptColumns._make = make
KeptColumns(Run.open(Path(sys.argv[1])), []).folder()
"""


def test_what_a_killed_viewer_was_making_goes_at_the_next_start(
    tmp_path: Path, temporary: Path
) -> None:
    run = written(tmp_path / "train.layerscope")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", _PREPARES, str(run.path)]
    viewers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    try:
        killed, alive = (Path(_line(viewer)) for viewer in viewers)
        viewers[0].kill()
        viewers[0].wait()
        assert sorted(temporary.iterdir()) == sorted([killed, alive])
        for folder in (killed, alive):
            os.utime(folder, (0, 0))  # both are as old as what was left long ago

        with asked(run) as server:
            answered(server, "/about-spans")
        assert list(temporary.iterdir()) == [alive]
    finally:
        for viewer in viewers:
            viewer.kill()
            viewer.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_no_room_anywhere_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: KeptColumns, folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(KeptColumns, "_make", full)
    with asked(written(tmp_path / "train.layerscope")) as server:
        answer = ask_as_user(server, "/about-spans")

    assert answer.status == 503
    assert "No space left on device" in answer.text
    assert "make room there, or name another folder" in answer.text


def test_clean_removes_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "other"):
        with asked(written(tmp_path / f"{name}.layerscope")) as server:
            answered(server, "/spans?rows=0")
    assert cli.main(["clean", "-q"]) == 0
    assert len(folders(tmp_path)) == 2  # they were used lately

    assert cli.main(["clean", "one", "-q"]) == 0
    assert [folder.name.partition("-")[0] for folder in folders(tmp_path)] == ["other"]
    shutil.rmtree(tmp_path / "other.layerscope")
    assert cli.main(["clean", "-q"]) == 0
    assert folders(tmp_path) == []


def test_what_is_kept_of_filters_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those too that keep nothing: whoever types a search makes one with each letter."""
    made: list[picture.Pictures] = []
    before = picture.Pictures.__init__

    def init(self: picture.Pictures, *words: Any) -> None:
        before(self, *words)
        made.append(self)

    monkeypatch.setattr(picture.Pictures, "__init__", init)
    monkeypatch.setattr(picture, "_MOST_KEPT_BYTES", 20_000)
    with asked(written(tmp_path / "train.layerscope")) as server:
        timeline = server.contents.timeline
        assert timeline is not None
        words = {"start": "0", "end": "9", "width": "9", "margin": "0", "lanes": "0,1"}
        for step in range(100):
            steps = f"{STEPS + step}-{STEPS + step + 1}"
            timeline.answer("/picture", {**words, "steps": steps})

    assert 0 < len(made[0]._kept) <= 40


def test_many_questions_at_once(tmp_path: Path) -> None:
    with asked(written(tmp_path / "train.layerscope")) as server:
        questions = [
            "/lanes?arranged=layer",
            "/statistics?by=name",
            "/span?row=7",
            "/picture?start=0&end=150000&width=1000&margin=10&lanes=0,1,2,3&steps=2-9",
        ]
        alone = [ask_as_user(server, question).body for question in questions]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda one: ask_as_user(server, one).body, questions * 8))

    assert answers == alone * 8


def test_the_answer_of_a_process_of_its_own_is_the_block(tmp_path: Path) -> None:
    run = written(tmp_path / "train.layerscope")
    with asked(run) as server:
        columns = ask_as_user(server, "/block/table%20operators")
        about = ask_as_user(server, "/block/about%20table%20operators")

    with Reader(run) as reader:
        contents = ReportContents(reader, is_live=True, has_many_spans=True)
        made = {block.name: block for block in contents.made_with("table operators")}
    for answer, name in ((columns, "table operators"), (about, "about table operators")):
        assert zlib.decompress(answer.body, -15) == zlib.decompress(made[name].packed, -15)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FOREIGN, "several_ranks"])
def test_whatever_can_be_viewed_can_be_asked(name: str, tmp_path: Path) -> None:
    path = tmp_path / (name if name in FOREIGN else f"{name}.layerscope")
    {**FOREIGN, "several_ranks": several_ranks}[name](path)
    reader = Reader(open_run(path))
    contents = LiveContents(reader)
    try:
        if contents.timeline is None:
            assert reader.rows("spans") == 0
            return
        about = contents.timeline.answer("/about-spans", {}).value
        rows = contents.timeline.answer("/statistics", {"by": "track"}).value
        assert about["count"] == reader.rows("spans") == sum(row.spans for row in rows)
        assert contents.timeline.answer("/span", {"row": "0"}).value.span.row == 0
    except ReadError as error:
        pytest.fail(str(error))
    finally:
        contents.close()
