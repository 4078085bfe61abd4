"""Where a Python has MXNet."""

from __future__ import annotations

import subprocess
from pathlib import Path

_FIND = "import importlib.util; print(importlib.util.find_spec('mxnet').origin)"


def mxnet_folder(python: str) -> Path:
    """The folder of the package, without importing it."""
    done = subprocess.run([python, "-c", _FIND], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).parent
