"""A recording in a notebook: the report in a frame, or the summary where that is too large."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import layerscope
from layerscope import cli
from layerscope.show.report import frame
from tests.recordings import MS, Recording

NAME = "a \"<b>\" & 'c'"


class Frame(HTMLParser):
    """The attributes of the only element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    recording = Recording()
    recording.add_span("</iframe><script>", 0, MS)
    path = tmp_path / f"{NAME}.layerscope"
    recording.write(path)
    return path


def test_the_frame_holds_the_page_of_the_report(path: Path) -> None:
    with layerscope.open_run(str(path)) as opened:
        text = opened._repr_html_()

    ((tag, attributes),) = Frame(text).found
    assert tag == "iframe"
    assert attributes["title"] == f"layerscope: {NAME}"
    assert attributes["sandbox"] == "allow-scripts"  # not allow-same-origin
    assert cli.main(["report", path.name, "-o", "page.html", "-q"]) == 0
    assert attributes["srcdoc"] == (path.parent / "page.html").read_text()


def test_too_large_it_is_the_summary_and_a_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with layerscope.open_run(str(path)) as opened:
        size = len(opened._repr_html_().encode())
        assert frame.framed(opened._reader, size) is not None
        assert frame.framed(opened._reader, size - 1) is None
        assert frame.framed(opened._reader, 1) is None
        monkeypatch.setattr(frame.framed, "__defaults__", (size - 1,))
        text = opened._repr_html_()

    assert text.startswith('<pre style="line-height: 1.2">layerscope: examples/train.py')
    assert "<code>layerscope view &#x27;" in text
    assert "<b>" not in text


def test_at_most_five_megabytes() -> None:
    assert frame.MOST_BYTES == 5_000_000
