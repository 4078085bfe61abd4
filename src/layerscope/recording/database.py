"""The database that a recording is asked through, before it has tables."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

# Where somebody waits for the answer to one question.
THREADS = 2


def connected(threads: int = THREADS) -> Any:
    """A database without tables, for a reader."""
    import duckdb

    # Of what does not fit into memory; DuckDB makes and removes it, otherwise in the working
    # directory.
    name = f"layerscope-spill-{os.getpid()}-{secrets.token_hex(4)}"
    spill = Path(tempfile.gettempdir()) / name
    config: dict[str, Any] = {"threads": threads, "temp_directory": str(spill)}
    connection = duckdb.connect(":memory:", config=config)
    # Where Python is used interactively, DuckDB would draw a bar into the standard output.
    connection.execute("SET enable_progress_bar = false")
    return connection


def close(connection: Any) -> None:
    """Close what `connected` made. A question that another thread waits for ends."""
    import duckdb

    connection.interrupt()
    with contextlib.suppress(duckdb.Error):  # it is busy until that question has ended
        connection.close()
