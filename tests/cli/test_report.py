"""`layerscope report`: the file, its options, refusals."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from layerscope import cli
from tests.cli.secretive import SECRETS, write_secretive
from tests.recordings import MS, Recording
from tests.show.report_page import ReportPage, unpacked_text

STEP_NS = 10 * MS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a recording of 16 steps of two spans."""
    monkeypatch.chdir(tmp_path)
    recording = Recording()
    for step in range(16):
        recording.add_step(step, step * STEP_NS, (0, STEP_NS, 0, 0, 0))
        outer = recording.add_span("outer", step * STEP_NS, 5 * MS, step=step)
        recording.add_span("inner", step * STEP_NS + MS, MS, outer)
    recording.write(tmp_path / "train.layerscope")
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".layerscope")


def test_the_page_is_called_like_the_recording(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report"]) == 0

    assert files(folder) == ["train.html"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(r"^train\.html: 32 spans, [\d.]+ kB$", printed.err, re.MULTILINE)
    assert printed.err.splitlines()[-1].startswith("Next: open it")
    page = ReportPage(folder / "train.html")
    assert page.title == page.head["run"]["name"] == "train"
    assert page.head["notes"] == []


def test_the_same_recording_gives_the_same_bytes(folder: Path) -> None:
    for name in ("one.html", "two.html"):
        assert cli.main(["report", "-o", name, "-q"]) == 0
    assert (folder / "one.html").read_bytes() == (folder / "two.html").read_bytes()


def test_quiet_says_nothing_and_json_one_object(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["report", "--json", "--force", "--steps", "1:2"]) == 0
    told = json.loads(capsys.readouterr().out)
    size = (folder / "train.html").stat().st_size
    assert told["rows"] == [["train.html", 2, size]]
    assert told["notes"] == ReportPage(folder / "train.html").head["notes"]


def test_a_link_that_leads_nowhere_is_left_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link.html").symlink_to("nowhere.html")

    assert cli.main(["report", "-o", "link.html", "-q"]) == 125

    assert "link.html exists and was left as it is" in capsys.readouterr().err
    assert (folder / "link.html").is_symlink()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "there is no recording 'nothing'"),
        (["-o", "page.pdf"], "the report is a page: 'page.pdf' should end in .html"),
        (["-o", "no/page.html"], "no/page.html lies in a folder that does not exist"),
        (["-o", "folder.html"], "folder.html is a folder"),
        (["-o", "there.html"], "there.html exists and was left as it is. --force replaces it"),
        (["--steps", "5"], "--steps 5 is no range: 10:20 are the steps 10 to 19"),
        (["--steps", "5:5"], "--steps 5:5 is no range"),
        (["--steps", "16:20"], "--steps 16:20 holds no step of the recording: it has the steps 0"),
        (
            ["--steps", "0:9", "--max-spans", "10"],
            "--steps 0:9 holds 18 spans, and the page at most 10",
        ),
        (["--max-spans", "0"], "--max-spans 0 leaves nothing"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "there.html").write_text("mine")
    (folder / "folder.html").mkdir()

    assert cli.main(["report", *words]) == 125

    printed = capsys.readouterr()
    assert printed.err.startswith(f"layerscope: {sentence}")
    assert printed.err.count("\n") == 1
    assert files(folder) == ["folder.html", "there.html"]
    assert (folder / "there.html").read_text() == "mine"


def test_some_steps_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--steps", "3:6"]) == 0

    page = ReportPage(folder / "train.html")
    assert page.head["blocks"]["spans"]["rows"] == 6
    (note,) = page.head["notes"]
    assert note.startswith("The page has the spans and samples of the steps 3 to 5;")
    assert note in capsys.readouterr().err
    operators = next(table for table in page.head["tables"] if table["name"] == "operators")
    counts = [column["name"] for column in operators["columns"]].index("count")
    assert page.block(operators["block"])[counts] == [16, 16]


def test_above_the_limit_whole_steps_are_kept_and_view_is_named(folder: Path) -> None:
    assert cli.main(["report", "--max-spans", "16"]) == 0

    page = ReportPage(folder / "train.html")
    (note,) = page.head["notes"]
    rows = page.head["blocks"]["spans"]["rows"]
    assert rows <= 16
    assert note.startswith(f"The page has {rows} of 32 spans: {rows // 2} whole steps of 16")
    assert note.endswith("layerscope view train shows all of it.")
    assert sum(page.block("span_details")["weight"]) == 32
    assert page.block("span_classes")["is_thinned"] is True


def test_redacted_it_says_not_whose_it_is(folder: Path) -> None:
    write_secretive(folder / "planted_recording.layerscope")
    assert cli.main(["report", "planted_recording", "-o", "whole.html", "-q"]) == 0
    in_whole = unpacked_text(folder / "whole.html")
    assert len([secret for secret in SECRETS if secret in in_whole]) > len(SECRETS) // 2

    options = ["--redact", "-o", "safe.html", "-q", "--max-spans", "3"]
    assert cli.main(["report", "planted_recording", *options]) == 0

    in_safe = unpacked_text(folder / "safe.html")
    assert [secret for secret in SECRETS if secret in in_safe] == []
    assert ReportPage(folder / "safe.html").title == "recording"
    assert files(folder) == ["safe.html", "whole.html"]  # nothing is left beside it


def test_redacted_is_the_page_of_the_packed_recording(folder: Path) -> None:
    """What is left out is decided once, for both."""
    assert cli.main(["pack", "train", "--redact", "-o", "safe", "-q"]) == 0
    assert cli.main(["report", "safe.layerscope.zip", "-o", "packed.html", "-q"]) == 0
    assert cli.main(["report", "train", "--redact", "-o", "safe.html", "-q"]) == 0

    packed, safe = (ReportPage(folder / name) for name in ("packed.html", "safe.html"))
    assert packed.head == safe.head
    for name in safe.head["blocks"]:
        assert packed.block(name) == safe.block(name)


def test_a_name_that_is_no_text_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a character in the name of a folder, which the libraries below us cannot open."""
    name = os.fsdecode(b"caf\xe9.layerscope")
    (folder / "train.layerscope").rename(folder / name)

    assert cli.main(["report", name, "-o", "page.html"]) == 125

    told = capsys.readouterr().err
    assert told.startswith(
        "layerscope: the recording caf\\xe9.layerscope must have a name in UTF-8"
    )
    assert told.count("\n") == 1
    assert files(folder) == []
