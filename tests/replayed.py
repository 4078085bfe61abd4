"""Recordings that were made once (`python3 dev.py golden`): their raw files are converted anew, no
program runs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from layerscope.ingest.open import open_run
from tests.recorded import Recorded

RECORDINGS = Path(__file__).resolve().parent / "golden" / "recordings"


def replay(name: str, folder: Path, called: str = "recording") -> Recorded:
    """The recording of the program tests/golden/recordings/`name`, as if it had been made in
    `folder`.
    """
    path = folder / f"{called}.layerscope"
    path.mkdir(parents=True)
    shutil.copy(RECORDINGS / name / "run.json", path)
    shutil.copytree(RECORDINGS / name / "raw", path / "raw")
    return Recorded(open_run(path), 0, "", "")
