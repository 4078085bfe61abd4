"""The table of files in docs/traces.md has every format that can be opened, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from layerscope import sources

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"
TITLE = "## Which file is read by what\n"


def rows() -> list[list[str]]:
    _, _, behind = PAGE.read_text().partition(TITLE)
    section = behind.partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_format_that_opens_is_in_the_table() -> None:
    told = {name: row[0] for row in rows() for name in re.findall(r"`(\w+)`", row[-1])}
    known = {one.__name__.rpartition(".")[2]: one.MEANING for one in sources.known()}  # type: ignore[attr-defined]
    assert told.keys() == known.keys()


def test_every_format_says_how_its_file_is_made() -> None:
    assert all(len(row) == 4 and all(row) for row in rows())
    assert len(rows()) == len(sources.known())
