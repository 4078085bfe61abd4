"""Languages whose numbers are written otherwise than in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def german(folder: Path) -> dict[str, str]:
    """The variables by which a program that asks for its user's language writes 0,5; skips where
    there is none.
    """
    program = shutil.which("localedef")
    if program is None:
        pytest.skip("localedef (of the C library) is not here")
    command = [program, "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")]
    if (
        subprocess.run(command, capture_output=True, timeout=120, check=False).returncode > 1
    ):  # 1: with warnings
        pytest.skip("the sources of the language de_DE (package locales) are not here")
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}
