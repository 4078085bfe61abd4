"""What reaches a terminal: no character of a name, a path or a question that it would obey."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.show import screen
from tests.recordings import Recording

# Moves the cursor, retitles the window, ends the line, is the 8-bit form of ESC [, turns the
# direction of writing.
HOSTILE = "a\x1b[2J\x1b]0;title\x07\r\nfake line\x7f\x9b31m\u202eb"
OWN_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.TextIOWrapper):
    """A text stream that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        self.seek(0)
        return self.buffer.read().decode()


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def on_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command whose stdout and stderr are terminals; what they got.

    A recording in the working folder has a hostile name in it.
    """
    recording = Recording()
    recording.add_step(0, 0, (500, 600, 1000, 600, 1300))
    recording.add_span(HOSTILE, 600, 600, step=0)
    recording.add_problem("operators", HOSTILE, HOSTILE, "nothing")
    recording.write(tmp_path / "train.layerscope")
    monkeypatch.chdir(tmp_path)

    def run(*command: str) -> tuple[str, str]:
        streams = Terminal(), Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            cli.main(command)
            assert (sys.stdout, sys.stderr) == streams  # as they were
        return streams[0].shown(), streams[1].shown()

    return run


@pytest.mark.parametrize(
    "command",
    [
        ["table", "operators"],
        ["table", "spans", "--csv"],
        ["table", "spans", "--json"],
        ["table", "spans", "--sort", HOSTILE],
        ["table", "spans", "--where", HOSTILE],
        ["table", HOSTILE],
        [HOSTILE],
        ["table", "operators", f"--{HOSTILE}"],
        ["query", f'SELECT name AS "{HOSTILE}" FROM spans'],
        ["query", f'SELECT "{HOSTILE}" FROM spans'],
        ["query", f'SELECT name AS "{HOSTILE}" FROM spans', "--json"],
        ["query", f'SELECT name AS "{HOSTILE}" FROM spans', "--csv"],
        ["flame", "--kind", "operators"],
        ["summary"],
        ["list"],
        ["export", "train", f"{HOSTILE}.json"],
        ["pack", "train", "-o", HOSTILE],
        ["table", f"./{HOSTILE}", "operators"],
    ],
)
def test_a_terminal_gets_nothing_that_it_would_obey_but_our_colours(
    command: list[str], on_terminal: Run
) -> None:
    shown = "".join(OWN_COLOUR.sub("", text) for text in on_terminal(*command))
    assert shown
    assert not set(shown) & set("\x1b\x07\r\x7f\x9b\u202e")
    if "--csv" not in command:  # a field in quotes may hold a line end
        assert "\nfake line" not in shown


def test_our_colours_stay_and_names_get_none(
    on_terminal: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown, _ = on_terminal("query", "SELECT name FROM spans")

    assert "\x1b[1m" in shown
    assert "\\x9b31m" in shown


def test_json_on_a_terminal_means_the_same(on_terminal: Run) -> None:
    shown, _ = on_terminal("query", "SELECT name FROM spans", "--json")

    assert json.loads(shown)["rows"] == [[HOSTILE]]


def test_files_and_pipes_get_the_text_as_it_is(
    on_terminal: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = io.StringIO(newline="")
    monkeypatch.setattr(sys, "stdout", plain)
    cli.main(["query", "SELECT name FROM spans", "--csv"])

    assert plain.getvalue() == f'name\n"{HOSTILE}"\n'


def test_an_error_is_one_line_wherever_stderr_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", HOSTILE]) == 125

    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "\x1b" not in printed


def test_text_of_any_characters_keeps_its_line_ends_alone() -> None:
    stream = io.StringIO(newline="")
    text = "".join(map(chr, range(0x3000)))
    screen.Screen(stream).write(text)

    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", stream.getvalue()
    )
    assert stream.getvalue().count("\n") == 1


def test_commands_print_through_the_screen_alone() -> None:
    """What processes of ours say to each other is no output."""
    internal = {"_convert.py", "_record.py", "_checks.py"}
    prints = [
        f"{path.name}:{number}"
        for folder in ("cli", "show")
        for path in sorted((Path(cli.__file__).parent.parent / folder).rglob("*.py"))
        if path.name not in internal | {"screen.py"}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"(?<![\w.])print\(|os\.write\([12],", line)
    ]
    assert prints == [], os.linesep.join(prints)
