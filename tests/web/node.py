"""Node's npm with the libraries that the report's page is built from, for tests that need them."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WEB = ROOT / "web"
TIMEOUT_S = 240


def npm_with_libraries() -> str:
    """npm, with the libraries of web/ installed. Skips where there is none, or no network."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no Node here: whether the page can be built again is not tested")
    with (WEB / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (WEB / "node_modules" / ".package-lock.json").exists():
            done = run_npm(npm, "ci", "--ignore-scripts")
            if done.returncode:
                pytest.skip(f"npm cannot install the libraries of web/: {done.stderr[-300:]}")
    return npm


def run_npm(npm: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What `npm WORDS` in web/ says."""
    return subprocess.run(
        [npm, *words], cwd=WEB, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
