"""What is compiled, done with NumPy as where there is no compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from layerscope.model import compiled as module


@contextmanager
def without_library() -> Iterator[None]:
    """No library is found within."""
    module.compiled.cache_clear()
    try:
        with patch.object(module, "LIBRARY", Path("/nowhere")):
            yield
    finally:
        module.compiled.cache_clear()
