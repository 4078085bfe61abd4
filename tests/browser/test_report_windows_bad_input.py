"""Recordings in which something is extreme or hostile, too large for a page to hold: each page says
what it says where the page has all spans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.show.report import live_timeline
from layerscope.show.report.live_timeline import LiveTimeline
from layerscope.show.report.questions import Parameters, Told
from tests.browser import chromium
from tests.browser.bad_input import MAKERS
from tests.browser.test_report_bad_input import check, visit
from tests.browser.timeline_page import training
from tests.repeated import also
from tests.show.report_page import serving

pytestmark = pytest.mark.slow
# Its rows are counted when somebody asks, and lines and modules of operators are read later.
LATER = ("#tables", "#overview")
# How many spans the picture has in its first lane.
SPANS_SHOWN = """return (({spans}) => spans.drawn(spans.lanes(0)[0])?.rows.length ?? 0)(
    window.layerscopeTimeline)"""


# What each of the others is about is shown with all spans in the page (test_report_bad_input.py).
@pytest.mark.parametrize(
    "name",
    [
        *("unfinished", "thinned", "several_ranks", "hostile_names"),
        *also(["one_span", "many_tracks", "no_durations", "before_the_start"]),
    ],
)
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
        # Counters and waits come when they have been read.
        for _ in range(5):
            if texts(asked) == texts(with_all):
                break
            asked = visit(page, server.address)
        assert server.contents.timeline is not None
        server.contents.timeline.close()

    check(page, asked)
    assert texts(asked) == texts(with_all)


def texts(shown: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What pages say, but those that go on reading."""
    return {of: what["text"] for of, what in shown.items() if of not in LATER}


def test_a_server_that_answers_again_is_asked_again(
    page: chromium.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one behind a tunnel that was closed and opened again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", 0)
    answer = LiveTimeline.answer
    is_away = True

    def answer_or_not(timeline: LiveTimeline, path: str, parameters: Parameters) -> Told:
        if is_away and path in ("/statistics", "/picture"):
            raise ReadError("nobody is there")
        return answer(timeline, path, parameters)

    monkeypatch.setattr(LiveTimeline, "answer", answer_or_not)
    with serving(training().write(tmp_path / "train.layerscope")) as server:
        page.open(server.address)
        page.wait("document.querySelector('main')?.textContent.trim()")
        page.run("location.hash = '#timeline?t=0-0.5s'")
        page.wait("document.querySelector('main').innerText.includes('nobody is there')")
        assert page.run(SPANS_SHOWN) == 0

        is_away = False
        page.wait("document.querySelector('.tl-selection').innerText.includes('aten::conv2d')")
        page.wait(SPANS_SHOWN.removeprefix("return "))

        assert "nobody is there" not in page.run("return document.querySelector('main').innerText")
        assert server.contents.timeline is not None
        server.contents.timeline.close()
    page.console_errors()
