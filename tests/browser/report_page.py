"""A report in a browser: written from a recording, moved away, opened from the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope import cli
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.browser import chromium
from tests.recordings import Recording

# The middle of the first element of a selector that has these words; null where there is none.
_PLACE = """
    const [selector, words] = args;
    const found = [...document.querySelectorAll(selector)].find(
        element => element.checkVisibility() && element.textContent.includes(words));
    if (!found) return null;
    found.scrollIntoView({block: 'nearest'});
    const box = found.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];"""
# The texts of a table: its headings, then its rows.
_TABLE = """
    return [...document.querySelectorAll(`${args[0]} tr:not(.spare)`)].map(
        row => [...row.children].map(cell => cell.textContent.trim()));"""
# The exact numbers of a table, where cells have them.
_EXACT = """
    return [...document.querySelectorAll(`${args[0]} tbody tr:not(.spare)`)].map(
        row => [...row.children].map(cell => cell.title || cell.textContent.trim()));"""


def write_report(
    recording: Recording | Path, folder: Path, name: str = "train", *options: str
) -> str:
    """The address of the report of a recording, which lies alone in another folder than that."""
    run = recording if isinstance(recording, Path) else folder / f"{name}.layerscope"
    if isinstance(recording, Recording):
        recording.write(run)
    (folder / "moved").mkdir(exist_ok=True)
    file = folder / "moved" / f"{name}.html"
    assert cli.main(["report", str(run), "-o", str(file), "--force", "-q", *options]) == 0
    return file.as_uri()


def open_report(page: chromium.Page, address: str, state: str = "") -> None:
    """Open a report afresh, at the place that `state` names (`#timeline?...`), and wait until a page is shown."""
    page.open("about:blank")
    page.open(address + state)
    page.wait("document.querySelector('main')?.textContent.trim()")
    page.wait("!document.querySelector('main > [role=status]')")


@contextmanager
def reader_of(folder: Path, name: str = "train") -> Iterator[Reader]:
    """The recording that `write_report` wrote there, for questions of one's own."""
    with Reader(Run.open(folder / f"{name}.layerscope")) as reader:
        yield reader


def click(page: chromium.Page, selector: str, words: str = "") -> None:
    """Click on the first element of `selector` that contains `words`, with the real mouse."""
    place = page.run(_PLACE, selector, words)
    assert place, f"there is no {selector} with {words!r}"
    page.mouse(*place, click=True)


def table(page: chromium.Page, selector: str, exact: bool = False) -> list[list[str]]:
    """The texts of the cells of a table, its headings first; `exact`: the numbers that its cells
    have as their titles, without headings.
    """
    found: list[list[str]] = page.run(_EXACT if exact else _TABLE, selector)
    return found


def text(page: chromium.Page, selector: str) -> str:
    """The text of the first element of `selector`."""
    return str(page.run("return document.querySelector(args[0])?.textContent ?? ''", selector))


def hash_of(page: chromium.Page) -> str:
    """The state of the page as its address has it."""
    return str(page.run("return location.hash"))


def wait_hash(page: chromium.Page, words: str) -> None:
    """Wait until the address contains `words`."""
    page.wait(f"location.hash.includes({json.dumps(words)})")


def values_of_hash(page: chromium.Page) -> dict[str, Any]:
    """The fields of the address."""
    _, _, query = hash_of(page).partition("?")
    return dict(part.split("=", 1) for part in query.split("&") if part)
