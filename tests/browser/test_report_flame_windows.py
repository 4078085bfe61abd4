"""Flame graphs of operators and primitives of a selection, where the server has the spans: the numbers
of `layerscope flame`, and those of a page that has all spans.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.analyse.timeline import flame, selection
from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from tests.browser import chromium
from tests.browser.report_flame import (
    numbers_of_command,
    numbers_of_page,
    of_every_sort,
    open_flame,
)
from tests.browser.report_page import open_report, text, write_report
from tests.browser.test_report_flame import CHOICES, shown
from tests.show.report_page import serving

pytestmark = pytest.mark.slow

KINDS = ("operators", "primitives")
# So few spans are looked at in one go that every track is several pieces.
PIECE = 7
FILTERS = (
    "name=aten::linear", "name=matmul&by=thread", "name=nothing", "tracks=1", "tracks=0&t=0.3-1s",
    "module=outside any module", "name=aten::mm&inverted=yes&step=2:5", "module=conv&by=step",
)  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The addresses of a file and of a server with the same recording, and its folder."""
    folder = tmp_path_factory.mktemp("flame")
    file = write_report(of_every_sort(), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(live_timeline, "MOST_IN_PAGE", 0)
        patch.setattr(selection, "CHUNK", PIECE)
        # The first stacks are found in a table, the others by sorting.
        patch.setattr(flame, "_MOST_TABLE", 20)
        with serving(Run.open(folder / "train.layerscope")) as server:
            yield file, server.address, folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_chosen_has_the_numbers_of_the_command(
    page: chromium.Page,
    both: tuple[str, str, Path],
    kind: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, served, folder = both
    monkeypatch.chdir(folder)
    found = 0
    for query, options in CHOICES:
        open_flame(page, served, f"?kind={kind}&{query}")
        wanted = numbers_of_command(capsys, "train", "--kind", kind, *options)
        assert shown(page) == wanted, query
        found += bool(wanted)
    assert found >= len(CHOICES) - 2  # no primitive ran in some of them


@pytest.mark.parametrize("kind", KINDS)
def test_filters_of_the_page_give_what_a_page_with_all_spans_has(
    page: chromium.Page, both: tuple[str, str, Path], kind: str
) -> None:
    file, served, _ = both
    chance = random.Random(5)
    ends = [sorted(chance.sample(range(2000), 2)) for _ in range(3)]
    stretches = [f"t={first / 1000}-{last / 1000}s&by=thread" for first, last in ends]
    found = []
    for query in (*FILTERS, *stretches):
        in_file, of_server = [], []
        for address, numbers in ((file, in_file), (served, of_server)):
            open_flame(page, address, f"?kind={kind}&{query}")
            numbers.append(shown(page))
        assert of_server == in_file, query
        found += in_file
    assert sum(map(bool, found)) >= len(FILTERS) - 2


def test_too_many_stacks_are_a_sentence(
    page: chromium.Page, both: tuple[str, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flame, "MOST_NODES", 3)
    open_report(page, both[1], "#flame?kind=operators&t=0.2-0.5s")

    page.wait("document.querySelector('main [role=alert]')")
    assert "more than 3 different stacks" in text(page, "main [role=alert]")
    monkeypatch.undo()
    open_flame(page, both[1], "?kind=operators&t=0.2-0.5s")
    assert numbers_of_page(page)
