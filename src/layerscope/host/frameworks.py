"""The program's Python and the frameworks in it: found by looking at files, without running
them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


def program_python(environment: Mapping[str, str]) -> tuple[str, str]:
    """The interpreter for a `.py` program, and where it was found.

    In this order: the active virtual environment, the active conda environment, `python` and
    `python3` on PATH, the one that runs layerscope.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(variable):
            candidate = os.path.join(environment[variable], "bin", "python")
            if os.access(candidate, os.X_OK):
                return candidate, variable
    for name in ("python", "python3"):
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            return found, f"{name} on PATH"
    return sys.executable, "the Python of layerscope"


def package_version(package: Path, name: str) -> str | None:
    """The version of `name` installed beside `package` (a site-packages folder), from its
    metadata.
    """
    for info in package.glob(f"{name}-*.dist-info/METADATA"):
        found = re.search(r"^Version: (.+)$", info.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found[1].strip()
    return None
