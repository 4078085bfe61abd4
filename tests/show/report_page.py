"""A page of `layerscope report` as a reader of our own takes it: an HTML parser, and blocks by the
words of show/report/blocks.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import zlib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show.report.blocks import Block
from layerscope.show.report.live_contents import LiveContents
from layerscope.show.report.server import Server


class ReportPage(HTMLParser):
    """What is in the page: texts of elements by id, the policy, and what the browser would run."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: dict[str, str] = {}
        self.policy, self.title, self.style = "", "", ""
        self.scripts: list[str] = []
        self.links: list[str] = []
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(path.read_text("utf-8"))
        self.close()
        self.head = json.loads(self.elements["head"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._open = tag, attributes
        self.links += [str(attributes[name]) for name in ("src", "href") if name in attributes]
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(attributes["content"])

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open
        if tag == "title":
            self.title += data
        elif tag == "style":
            self.style += data
        elif tag == "script" and attributes.get("id"):
            name = str(attributes["id"])
            self.elements[name] = self.elements.get(name, "") + data
        elif tag == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = "", {}

    def block(self, name: str) -> Any:
        """A block: any JSON, or columns of numbers by their names."""
        packed = base64.b64decode(self.elements[f"block {name}"], validate=True)
        return unpacked(Block(name, self.head["blocks"][name], packed))


def unpacked(block: Block) -> Any:
    """What a block holds."""
    data = zlib.decompress(block.packed, -zlib.MAX_WBITS)
    if block.about["kind"] == "json":
        return json.loads(data)
    found, at = {}, 0
    for column in block.about["columns"]:
        size = column["bytes"] * block.about["rows"]
        found[column["name"]] = _column(column, data[at : at + size], block.about["rows"])
        at += size
    assert at == len(data)
    return found


def _column(about: Mapping[str, Any], planes: bytes, rows: int) -> list[int]:
    values = [
        sum(planes[plane * rows + row] << (8 * plane) for plane in range(about["bytes"]))
        for row in range(rows)
    ]
    if about["signed"]:
        values = [-(value + 1) // 2 if value % 2 else value // 2 for value in values]
    if about["mode"] == "delta":
        for row in range(1, rows):
            values[row] += values[row - 1]
    return values


def unpacked_text(path: Path) -> str:
    """Everything that stands in the page, data unpacked, as one text."""
    page = ReportPage(path)
    blocks = [json.dumps(page.block(name), ensure_ascii=False) for name in page.head["blocks"]]
    return "\n".join([path.name, page.title, page.elements["head"], *blocks])


@contextlib.contextmanager
def serving(run: Run, port: int = 0, other: Run | None = None) -> Iterator[Server]:
    """The server of `layerscope view` for a recording, compared with the `other` one, until the end
    of the block.
    """
    with contextlib.ExitStack() as stack:
        reader, before = (stack.enter_context(Reader(of)) if of else None for of in (run, other))
        assert reader
        server = stack.enter_context(Server(LiveContents(reader, before), port))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
