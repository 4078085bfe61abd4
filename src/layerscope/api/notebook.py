"""`%%layerscope` as the first line of a notebook's cell: runs it, records it, and shows where its
time went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register(shell: Any, record: Callable[[str | None], Any]) -> None:
    """Add the cell magic to an IPython shell. `record`: `layerscope.record`."""

    def layerscope(line: str, cell: str) -> Any:
        """Record what is in the cell."""
        with record(line.strip() or None) as recorded:
            result = shell.run_cell(cell)
        if not result.success:
            return None  # the shell has shown the error
        return recorded.open() if recorded.path else None

    shell.register_magic_function(layerscope, magic_kind="cell", magic_name="layerscope")
