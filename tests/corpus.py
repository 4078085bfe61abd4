"""Real traces of others, which are not in the repository: in the folder that LAYERSCOPE_CORPUS
names.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def corpus(name: str) -> Path:
    """The file or folder of this name; the test is skipped where there is none."""
    folder = os.environ.get("LAYERSCOPE_CORPUS")
    if not folder:
        pytest.skip("LAYERSCOPE_CORPUS names no folder with real traces")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"the folder that LAYERSCOPE_CORPUS names has no {name}")
    return path
