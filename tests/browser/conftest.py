"""A browser for the tests of a file, and pictures for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from tests.browser import chromium
from tests.browser.flame_page import made
from tests.recordings import Recording


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        page.resize(1300, 800)
        yield page


@pytest.fixture
def page(browser: chromium.Page) -> Iterator[chromium.Page]:
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
