"""A browser for all tests, and pictures for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from tests.browser import chromium
from tests.browser.flame_page import made
from tests.browser.report_page import write_report
from tests.browser.timeline_page import FILE, SERVER, training
from tests.recordings import Recording
from tests.show.report_page import serving


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: chromium.Page) -> Iterator[chromium.Page]:
    """The browser as it is at first, whoever had it before."""
    browser.resize(1300, 800)
    browser.prefer_nothing()
    browser.complaints()
    yield browser
    browser.open("about:blank")
    assert browser.answered_from_outside() == []


@pytest.fixture
def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the recording and the picture of it; gives the address of the file."""
    monkeypatch.chdir(tmp_path)

    def make(suffix: str, *options: str, recording: Recording | None = None) -> str:
        (recording or made()).write(tmp_path / "train.layerscope")
        assert cli.main(["flame", "train", "-o", f"flame{suffix}", "-q", *options]) == 0
        return (tmp_path / f"flame{suffix}").as_uri()

    return make


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The address of a report with a timeline, and the folder where its recording is."""
    folder = tmp_path_factory.mktemp("timeline")
    return write_report(training(), folder), folder


@pytest.fixture(scope="module")
def asked(written: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that shows the same recording to a page that has no span of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(live_timeline, "MOST_IN_PAGE", 0)
        with serving(Run.open(written[1] / "train.layerscope")) as server:
            yield server.address


@pytest.fixture
def address(request: pytest.FixtureRequest, page: chromium.Page) -> Iterator[str]:
    """The address of that report, of which the browser must have nothing to complain: a file, or
    with the parameter SERVER from the server.
    """
    is_served = getattr(request, "param", FILE) == SERVER
    yield request.getfixturevalue("asked") if is_served else request.getfixturevalue("written")[0]
    assert page.complaints() == []
