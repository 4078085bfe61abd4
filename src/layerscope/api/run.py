"""A recording for questions from Python and notebooks: tables, SQL, the summary. Needs the reader's
libraries.
"""

from __future__ import annotations

import contextlib
import html
import shlex
import weakref
from pathlib import Path

import duckdb  # noqa: F401 - what is missing is found here, not at the first question
import msgspec  # noqa: F401
import pyarrow as pa

from layerscope.ingest.open import as_it_is_now
from layerscope.recording.run import find_run
from layerscope.show.exports.trace import Windowed

__all__ = ["OpenedRun", "find_run"]


class OpenedRun:
    """A recording, or of it what started in [since_ns, until_ns) on the run's clock."""

    def __init__(self, path: str, since_ns: int = 0, until_ns: int | None = None) -> None:
        self.path = path
        self._closing = contextlib.ExitStack()
        # Of a recording that still grows there is a copy of what it held.
        self._finalizer = weakref.finalize(self, self._closing.close)
        self.run = self._closing.enter_context(as_it_is_now(Path(path)))
        self._reader = self._closing.enter_context(Windowed(self.run, since_ns, until_ns))

    def __enter__(self) -> OpenedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the recording."""
        self._finalizer()

    def table(self, name: str, by: str | None = None) -> pa.Table:
        """A table as `layerscope table` prints it: `operators`, `modules`, `spans`, `steps` and the
        others.

        `.to_pylist()` makes it a list of dicts, `.to_pandas()` a data frame.
        """
        from layerscope.analyse import tables

        return tables.build(self._reader, name, by).data

    def query(self, sql: str) -> pa.Table:
        """The answer to `sql` over the tables of docs/tables.md."""
        return self._reader.query(sql)

    def summary(self) -> str:
        """What `layerscope run` prints at the end."""
        from layerscope.analyse.summary import summarise
        from layerscope.show.summary import text

        return text(summarise(self._reader))

    def live(
        self,
        table: str = "",
        for_s: float | None = None,
        interval_s: float = 0.5,
        window_s: float = 5.0,
        top: int = 20,
    ) -> None:
        """Show what the program does while its recording grows, as `layerscope top` does: in a
        notebook below the cell, drawn anew each `interval_s`, until it ends, `for_s` are over or
        the cell is interrupted.

        `table`: functions, operators, primitives, symbols, threads or waits; "": the first that has
        something. UsageError where nothing grows any more.
        """
        from layerscope.api.live import GrowingRun, show

        show(GrowingRun(Path(self.path), window_s), table, for_s, interval_s, top)

    def _repr_html_(self) -> str:
        """In a notebook: the page of `layerscope report`, or the summary where it is too large."""
        from layerscope.show.report.frame import framed

        page = framed(self._reader)
        if page is not None:
            return page
        command = shlex.join(["layerscope", "view", self.path])
        return (
            f'<pre style="line-height: 1.2">{html.escape(self.summary())}</pre>'
            f"<p>Timeline, flame graph and tables: <code>{html.escape(command)}</code></p>"
        )

    def __repr__(self) -> str:
        return f"<layerscope recording {self.path}>"
