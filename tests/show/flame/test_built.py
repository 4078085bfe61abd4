"""The scripts and styles that are built from web/ are those of its sources."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from layerscope.show.flame.palette import report_css

SHOW = Path(sys.modules["layerscope.show.flame"].__file__ or "").parent.parent
WEB = SHOW.parents[2] / "web"
SETTINGS = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")
BUILT = ("flame/viewer.js", "flame/page.js", "report/page.js")


def hash_of_sources() -> str:
    """As web/build.mjs has it."""
    files = [*(WEB / name for name in SETTINGS), *(WEB / "src").rglob("*")]
    named = {file.relative_to(WEB).as_posix(): file for file in files if file.is_file()}
    digest = hashlib.sha256()
    for name in sorted(named):
        digest.update(name.encode() + b"\0" + named[name].read_bytes() + b"\0")
    return digest.hexdigest()


@pytest.mark.parametrize("script", BUILT)
def test_a_script_says_what_it_was_built_from(script: str) -> None:
    first, _, _ = (SHOW / script).read_text().partition("\n")
    assert first == f"/* sources {hash_of_sources()} */", "python3 dev.py web builds it again"


def test_the_report_has_the_colours_of_the_palette() -> None:
    written = (WEB / "src" / "flame" / "palette.css").read_text()
    assert written == report_css(), "write what report_css() gives into web/src/flame/palette.css"
