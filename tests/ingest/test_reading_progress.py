"""What is told while a file of others is read for long."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from layerscope.ingest import reading_progress
from layerscope.model import progress
from layerscope.show.progress import on_terminal


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def now(self, sentence: str) -> None:
        """Something goes on."""
        self.sentences.append(sentence)

    def done(self) -> None:
        """It is over."""
        self.sentences.append("over")

    def wait_for(self, words: str) -> None:
        """Wait until something with these words was told."""
        until_s = time.monotonic() + 20
        while not any(words in sentence for sentence in self.sentences):
            assert time.monotonic() < until_s, self.sentences
            time.sleep(0.01)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Is told at once."""
    monkeypatch.setattr(reading_progress, "_SILENT_S", 0.0)
    monkeypatch.setattr(reading_progress, "_EACH_S", 0.01)
    return Told()


def test_how_far_a_file_is_read_is_told_whoever_reads_it(listener: Told, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"x" * 1000)
    with progress.told_to(listener), reading_progress.told(path):
        with path.open("rb", buffering=0) as file:
            file.read(250)
            listener.wait_for("reading trace.json: 25%, 0 s")
        listener.wait_for("making tables of trace.json")
    assert listener.sentences[-1] == "over"


def test_a_short_conversion_tells_nothing(tmp_path: Path) -> None:
    listener = Told()
    with progress.told_to(listener), reading_progress.told(tmp_path / "trace.json"):
        pass
    assert listener.sentences == []


class Terminal(io.StringIO):
    """One that somebody looks at, or not."""

    is_one = True

    def isatty(self) -> bool:
        """Whether somebody does."""
        return self.is_one


@pytest.mark.parametrize("is_one", [True, False])
def test_only_a_terminal_gets_a_line_which_goes_away(
    monkeypatch: pytest.MonkeyPatch, is_one: bool
) -> None:
    stderr = Terminal()
    stderr.is_one = is_one
    monkeypatch.setattr("sys.stderr", stderr)
    with on_terminal():
        listener = progress.listener()
        if listener is not None:
            listener.now("reading a\x1b[2Jb.json: 5%")
            listener.done()
    line = "\r\x1b[Klayerscope: reading a\\x1b[2Jb.json: 5%\r\x1b[K"
    assert stderr.getvalue() == (line if is_one else "")
    assert progress.listener() is None
