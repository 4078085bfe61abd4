"""`pip install .`: the wheel has what runs inside programs where there is a compiler, and is made
without one too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.recorded import ROOT

NATIVE = "layerscope/native/"
# The smaller ones of the native parts, and what all are compiled with.
PARTS = ("preload", "chunks", "draining", "tables", "frameworks", "include")
pytestmark = pytest.mark.slow


def wheel(folder: Path, path: str) -> dict[str, int]:
    """The wheel of this tree with some native parts, built without the network where commands are
    found in `path`: what it installs, with the rights of each.
    """
    source = folder / "source"
    source.mkdir()
    for name in (
        "pyproject.toml",
        "setup.py",
        "native_build.py",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "native")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for part in PARTS:
        shutil.copytree(ROOT / "native" / part, source / "native" / part)
    for header in (ROOT / "native").glob("*.h"):
        shutil.copy(header, source / "native")
    options = [
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "-q",
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *options,
        "-w",
        str(folder / "dist"),
        str(source),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("layerscope-*-py3-none-linux_x86_64.whl")
    files = zipfile.ZipFile(built).infolist()
    return {file.filename.rpartition("purelib/")[2]: file.external_attr >> 16 for file in files}


def test_what_runs_inside_programs_is_compiled(tmp_path: Path) -> None:
    made = wheel(tmp_path, os.environ["PATH"])
    assert {
        f"{NATIVE}liblayerscope-draining.so",
        f"{NATIVE}liblayerscope-preload.so",
        f"{NATIVE}liblayerscope-tables.so",
        f"{NATIVE}shapes.cpp",
        f"{NATIVE}include/layerscope.h",
    } <= {*made}
    assert made[f"{NATIVE}layerscope-probe"] & 0o111
    assert "layerscope_autostart.pth" in made


def test_without_a_compiler_the_rest_is_installed(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    names = wheel(tmp_path, str(nothing))
    assert not [name for name in names if name.startswith(NATIVE)]
    assert "layerscope/cli/run.py" in names
