"""Recordings in which something is extreme or hostile, too large for a page to hold: each page says
what it says where the page has all spans.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.show.report import live_timeline
from tests.browser import chromium
from tests.browser.bad_input import MAKERS
from tests.browser.test_report_bad_input import check, visit
from tests.show.report_page import serving

pytestmark = pytest.mark.slow
# Its rows are counted when somebody asks, and lines and modules of operators are read later.
LATER = ("#tables", "#overview")


@pytest.mark.parametrize(
    "name",
    ["one_span", "unfinished", "thinned", "many_tracks", "no_durations", "before_the_start", "several_ranks",
     "hostile_names"],
)  # fmt: skip
def test_every_page_says_what_it_says_with_all_spans(
    name: str, page: chromium.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / f"{name}.layerscope"
    MAKERS[name](path)
    assert cli.main(["report", str(path), "-o", str(tmp_path / f"{name}.html"), "-q"]) == 0
    with_all = visit(page, (tmp_path / f"{name}.html").as_uri())
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", 0)

    with serving(open_run(path)) as server:
        asked = visit(page, server.address)
        assert server.contents.timeline is not None
        server.contents.timeline.close()

    check(page, asked)
    assert {of: what["text"] for of, what in asked.items() if of not in LATER} == {
        of: what["text"] for of, what in with_all.items() if of not in LATER
    }
