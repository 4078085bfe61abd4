"""The blocks behind the server of `layerscope view`, when it ends while one is being made."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.show.report import live_contents
from layerscope.show.report.block_process import BlockMaker
from layerscope.show.report.live_contents import LiveContents
from layerscope.show.report.pages import machine
from tests.browser.bad_input import FOREIGN, one_span, several_ranks
from tests.recordings import MS, Recording

ENDLESS = "SELECT count(*) FROM range(1000000000) one, range(1000000000) other"
PATIENCE_S = 60


@pytest.fixture
def contents(tmp_path: Path) -> LiveContents:
    recording = Recording()
    recording.add_span("only", 0, MS)
    return LiveContents(Reader(recording.write(tmp_path / "train.layerscope")))


def test_a_question_that_is_being_answered_is_given_up(
    contents: LiveContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, raised = threading.Event(), list[str]()

    def data(reader: Reader) -> None:
        reader.connection()
        started.set()
        reader.query(ENDLESS)

    def ask() -> None:
        try:
            contents.block("page machine")
        except ReadError as error:
            raised.append(str(error))

    monkeypatch.setattr(machine, "data", data)
    contents.head()
    thread = threading.Thread(target=ask)
    thread.start()
    assert started.wait(PATIENCE_S)
    time.sleep(0.2)  # the question has begun

    contents.close()

    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert len(raised) == 1


def test_what_cannot_be_given_up_is_not_waited_for(
    contents: LiveContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, goes_on = threading.Event(), threading.Event()

    def data(_: Reader) -> None:
        started.set()
        assert goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(machine, "data", data)
    monkeypatch.setattr(live_contents, "_PATIENCE_S", 0.1)
    thread = threading.Thread(target=contents.block, args=("page machine",))
    thread.start()
    assert started.wait(PATIENCE_S)

    contents.close()

    goes_on.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_the_recording_that_it_is_compared_with_may_go_away_too(tmp_path: Path) -> None:
    """Its tables would be empty ones."""
    one, other = (Recording() for _ in range(2))
    for recording in (one, other):
        recording.add_span("only", 0, MS)
    reader = Reader(one.write(tmp_path / "train.layerscope"))
    before = Reader(other.write(tmp_path / "before.layerscope"))
    contents = LiveContents(reader, before)
    contents.head()
    shutil.rmtree(tmp_path / "before.layerscope")

    with pytest.raises(ReadError, match=r"before\.layerscope is not there any more"):
        contents.block("page compare")
    contents.close()


def test_a_rank_may_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    several_ranks(tmp_path / "train.layerscope")
    contents = LiveContents(Reader(open_run(tmp_path / "train.layerscope")))
    contents.head()
    shutil.rmtree(tmp_path / "train.layerscope" / "ranks" / "1")

    with pytest.raises(ReadError, match="is not there any more"):
        contents.block("tracks")
    contents.close()


def test_nothing_is_made_after_the_end(tmp_path: Path) -> None:
    """Whoever waited for another block would start a process that nobody ends."""
    run = Recording().write(tmp_path / "train.layerscope")
    maker = BlockMaker(run, None)
    assert [block.name for block in maker.made_with("tracks")] == ["tracks"]

    maker.interrupt()

    with pytest.raises(ReadError, match="has ended"):
        maker.made_with("tracks")


def test_a_block_is_kept_after_it_was_made(contents: LiveContents) -> None:
    assert contents.block("tracks") is contents.block("tracks")
    assert not contents.has("nothing")
    contents.close()


@pytest.mark.parametrize("name", [*FOREIGN, "several_ranks", "packed"])
def test_whatever_a_report_is_written_of_can_be_viewed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of these lie in the user's cache, or with each rank."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / (name if name in FOREIGN else f"{name}.layerscope")
    {**FOREIGN, "several_ranks": several_ranks, "packed": one_span}[name](path)
    if name == "packed":
        assert cli.main(["pack", "packed", "-q"]) == 0
        path = tmp_path / "packed.layerscope.zip"
    reader = Reader(open_run(path))
    contents = LiveContents(reader)

    for block in contents.head()["blocks"]:
        assert contents.has(block)
        assert contents.block(block).name == block
    assert contents.block("spans").about["rows"] == reader.rows("spans")
    contents.close()
