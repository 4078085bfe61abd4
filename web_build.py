"""Builds the page of `layerscope report` from web/: for `dev.py web`. Needs Node 20 or newer.

Whoever changes nothing in web/ needs none of this: what is built is committed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from native_build import Failure

WEB = Path(__file__).resolve().parent / "web"
_REMEDY = "install Node 20 or newer with npm (https://nodejs.org), or change nothing in web/"


def web(options: argparse.Namespace) -> int:
    """Checks the types of the report's page and builds it into the package."""
    npm = shutil.which("npm")
    if npm is None:
        raise Failure(f"the page is built with npm, which is not there: {_REMEDY}")
    if not (WEB / "node_modules").is_dir():
        _run([npm, "ci"], "the libraries of web/ were not installed")
    _run([npm, "run", "check"], "the types of web/ do not fit together")
    _run([npm, "run", "build"], "the page was not built")
    return 0


def _run(command: list[str], sentence: str) -> None:
    if subprocess.run(command, cwd=WEB, check=False).returncode:
        raise Failure(sentence)
