"""Pythons of this machine, by version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def python_here(version: str) -> str | None:
    """An interpreter of this version; None: there is none here."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    name = f"LAYERSCOPE_TEST_PYTHON{version.replace('.', '')}"
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [
        os.environ.get(name),
        *root.glob(f"{version}.*/bin/python"),
        shutil.which(f"python{version}"),
    ]
    for python in filter(None, found):
        if not subprocess.run(
            [python, "-c", "import ctypes"], capture_output=True, check=False
        ).returncode:
            return str(python)
    return None


def python_of(version: str) -> str:
    """An interpreter of this version; the test is skipped where there is none."""
    python = python_here(version)
    if python is None:
        pytest.skip(
            f"there is no Python {version} here: LAYERSCOPE_TEST_PYTHON{version.replace('.', '')} "
            f"names one, or python{version} on PATH is one"
        )
    return python
