"""Where the tables of a recording go that cannot hold them itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.cli._open import cached_tables
from tests.recorded import ROOT


@pytest.mark.parametrize("run_id", ["../../../../victim", "/tmp/victim", "..", "", "a/b", "a\n"])
def test_the_id_of_a_recording_leads_to_no_other_folder(
    run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    folder = cached_tables(run_id)

    assert Path(os.path.normpath(folder)).parent == cached_tables("4711").parent
    assert folder != cached_tables(f"{run_id}-running")


def test_a_recording_that_lost_its_run_json_has_the_same_id_at_every_opening(tmp_path: Path) -> None:
    spool = tmp_path / "lost.layerscope" / "raw" / "here-1-2" / "spool"
    spool.parent.mkdir(parents=True)
    spool.touch()
    code = (
        "import sys; from pathlib import Path; from layerscope.cli._open import _open_folder; "
        "print(_open_folder(Path(sys.argv[1])).info.run_id)"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "lost.layerscope")],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip

    assert len(answers) == 1
    assert answers.pop().startswith("unknown-")
