"""`layerscope pack`: one file that opens anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.recording.run import Run
from tests.cli.secretive import content, write_secretive
from tests.ingest.raw_file import RawFile
from tests.recorded import ask
from tests.recordings import Recording, run_info

pytestmark = pytest.mark.usefixtures("folder")


def test_a_recording_that_was_packed_opens_elsewhere_with_every_table_equal(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = content(write_secretive(folder / "train.layerscope"))

    assert cli.main(["pack"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith("train.layerscope.zip: ")
    assert printed.out.endswith(", the tables and the raw files\n")
    assert printed.err == "Next: layerscope table train.layerscope.zip operators\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "train.layerscope.zip", elsewhere / "from alice.zip")
    shutil.rmtree(folder / "train.layerscope")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(tmp_path / "another home"))
    run = open_run(Path("from alice.zip"))
    assert content(run) == original
    assert run.name == "train"
    assert (run.raw / "session.json").exists()
    assert (run.path / "summary.txt").read_text() == "planted_range took long\n"
    assert list(elsewhere.iterdir()) == [elsewhere / "from alice.zip"]


@pytest.mark.parametrize(
    "name", ["train.layerscope.zip", "./train.layerscope.zip", "train.layerscope", "train", None]
)
def test_a_packed_recording_is_named_as_a_folder_is(
    name: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "train", "-q"])
    shutil.rmtree(folder / "train.layerscope")

    assert cli.main(["table", *([name] if name else []), "operators", "--csv", "-q"]) == 0

    assert "aten::mm,1,5000000" in capsys.readouterr().out


def test_it_is_unpacked_once_and_again_when_the_cache_has_lost_a_file(
    folder: Path, tmp_path: Path
) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])

    first = open_run(folder / "train.layerscope.zip").path
    before = (first / "run.json").stat().st_ino
    assert open_run(folder / "train.layerscope.zip").path == first
    assert (first / "run.json").stat().st_ino == before
    shutil.rmtree(first / "spans")
    again = open_run(folder / "train.layerscope.zip")
    assert len(content(again)["spans"]) == 6
    assert [path.name for path in first.parent.parent.iterdir()] == [first.parent.name]
    assert first.is_relative_to(tmp_path / "home" / ".cache" / "layerscope" / "packed")


def test_another_content_under_the_same_name_is_another_recording(folder: Path) -> None:
    for name in ("aten::mm", "aten::bmm"):
        recording = Recording()
        recording.add_span(name, 0, 5)
        recording.write(folder / "train.layerscope")
        assert cli.main(["pack", "--force", "-q"]) == 0
        shutil.rmtree(folder / "train.layerscope")
        assert content(open_run(folder / "train.layerscope.zip"))["spans"][0]["name"] == name


def test_the_same_recording_gives_the_same_bytes(folder: Path) -> None:
    write_secretive(folder / "train.layerscope")
    for option in ([], ["--redact"], ["--drop-raw"]):
        cli.main(["pack", *option, "-o", "one", "--force", "-q"])
        cli.main(["pack", *option, "-o", "two", "--force", "-q"])

        assert (folder / "one.layerscope.zip").read_bytes() == (
            folder / "two.layerscope.zip"
        ).read_bytes()


def test_a_raw_recording_is_converted_first_and_opens_without_its_raw_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run.create(folder / "train.layerscope", run_info())
    file = RawFile(folder / "train.layerscope" / "raw", 100)
    file.poll(600)
    file.records(0, [*file.thread_begin(1000, 100, 1), *file.span(1000, 1500, 0, "aten::mm")])
    file.end(2000)
    before = {
        path: path.read_bytes()
        for path in (folder / "train.layerscope" / "raw").rglob("*")
        if path.is_file()
    }
    original = content(open_run(folder / "train.layerscope"))
    assert original["spans"]

    assert cli.main(["pack", "--drop-raw", "-o", "small.layerscope"]) == 0

    assert "small.layerscope.zip" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before
    with zipfile.ZipFile("small.layerscope.zip") as archive:
        assert not [name for name in archive.namelist() if "/raw/" in name]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    shutil.rmtree(folder / "train.layerscope")
    assert content(open_run(folder / "small.layerscope.zip")) == original


@pytest.mark.parametrize("option", [[], ["--drop-raw"]])
def test_a_recording_of_several_ranks_is_packed_as_one(option: list[str], folder: Path) -> None:
    outer = folder / "train.layerscope"
    Run.create(outer, run_info())
    (outer / "raw").rmdir()
    for rank in range(2):
        Run.create(outer / "ranks" / str(rank), run_info(run_id=f"rank-{rank}"))
        file = RawFile(outer / "ranks" / str(rank) / "raw", 100 + rank, rank=rank)
        file.poll(600)
        file.records(
            0, [*file.thread_begin(1000, 100, 1), *file.span(1000, 1500 + rank, 0, "aten::mm")]
        )
        file.end(2000)
    original = content(open_run(outer))
    assert len(original["spans"]) == 2

    assert cli.main(["pack", *option, "-q"]) == 0

    shutil.rmtree(outer)
    run = open_run(folder / "train.layerscope.zip")
    assert content(run) == original
    assert run.is_joined
    raw = [path for path in run.path.rglob("*") if path.name == "spool"]
    assert bool(raw) == (not option)


def test_a_redacted_recording_of_several_ranks_has_the_spans_of_all(folder: Path) -> None:
    outer = folder / "train.layerscope"
    Run.create(outer, run_info())
    (outer / "raw").rmdir()
    for rank in range(2):
        Run.create(outer / "ranks" / str(rank), run_info(run_id=f"rank-{rank}"))
        file = RawFile(outer / "ranks" / str(rank) / "raw", 100, rank=rank)
        file.poll(600)
        file.records(
            0, [*file.thread_begin(1000, 100, 1), *file.span(1000, 1500 + rank, 0, "aten::mm")]
        )
        file.end(2000)

    assert cli.main(["pack", "--redact", "-q"]) == 0

    run = open_run(folder / "train.layerscope.zip")
    assert not run.is_joined
    question = (
        "SELECT dur_ns, rank FROM spans JOIN tracks USING (track) JOIN processes USING (process) "
        "ORDER BY rank"
    )
    assert ask(run, question) == [{"dur_ns": 500, "rank": 0}, {"dur_ns": 501, "rank": 1}]


def test_a_recording_that_still_grows_is_not_packed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "print('here', flush=True); input()", "layerscope"]
    session = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert session.stdout
    assert session.stdout.readline() == b"here\n"
    try:
        host = {"name": os.uname().nodename}
        Run.create(
            folder / "train.layerscope",
            run_info(state="running", session_pid=session.pid, host=host),
        )
        RawFile(folder / "train.layerscope" / "raw", 100).poll(600)

        assert cli.main(["pack"]) == 125
    finally:
        session.communicate(b"\n", timeout=60)

    assert "is still being recorded. Pack it when the program has ended" in capsys.readouterr().err
    assert not (folder / "train.layerscope.zip").exists()


def test_a_packed_recording_can_be_packed_again(folder: Path) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])

    assert cli.main(["pack", "train.layerscope.zip", "--redact", "-o", "safe.zip", "-q"]) == 0

    assert content(open_run(folder / "safe.zip"))["spans"]


def test_a_file_that_exists_is_kept_unless_forced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secretive(folder / "train.layerscope")
    (folder / "train.layerscope.zip").write_text("mine")

    assert cli.main(["pack"]) == 125
    assert "exists already. --force overwrites it" in capsys.readouterr().err
    assert (folder / "train.layerscope.zip").read_text() == "mine"
    assert cli.main(["pack", "--force"]) == 0
    assert zipfile.is_zipfile("train.layerscope.zip")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["other"], "there is no recording 'other'"),
        (["train", "-o", "nowhere/x"], "there is no folder nowhere"),
        (["train", "-o", "."], "-o . is a folder. Name a file in it"),
    ],
)
def test_what_cannot_be_packed_is_a_sentence(
    words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secretive(folder / "train.layerscope")

    assert cli.main(["pack", *words]) == 125

    assert sentence in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["train.layerscope"]


def test_a_full_disk_leaves_no_half_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secretive(folder / "train.layerscope")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)

    assert cli.main(["pack"]) == 125

    assert [path.name for path in folder.iterdir()] == ["train.layerscope"]
