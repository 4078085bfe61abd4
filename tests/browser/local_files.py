"""A server of files on this machine: the interface of another viewer, with our files beside it."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tests.browser.chromium import LOCAL

TRACES = "/trace/"


class _Files(http.server.SimpleHTTPRequestHandler):
    """The interface, and below TRACES the files that it is to open."""

    extensions_map: ClassVar = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
    }

    def __init__(self, *arguments: Any, interface: Path, traces: Path, **more: Any) -> None:
        self.traces = traces
        super().__init__(*arguments, directory=str(interface), **more)

    def translate_path(self, path: str) -> str:
        if path.startswith(TRACES):
            return str(self.traces / Path(path).name)
        return super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(interface: Path, traces: Path) -> Iterator[str]:
    """The address of an interface with the files in `traces` beside it."""
    handler = partial(_Files, interface=interface, traces=traces)
    server = http.server.ThreadingHTTPServer((LOCAL, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
