"""Where the tables of a recording go that cannot hold them itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.ingest.open import cached_tables, open_run
from layerscope.model.errors import ReadError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.complete import COMPLETE
from tests.recorded import ROOT
from tests.recordings import Recording


@pytest.mark.parametrize("run_id", ["../../../../victim", "/tmp/victim", "..", "", "a/b", "a\n"])
def test_the_id_of_a_recording_leads_to_no_other_folder(
    run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    folder = cached_tables(run_id)[0]

    assert Path(os.path.normpath(folder)).parent == cached_tables("4711")[0].parent
    assert folder != cached_tables(f"{run_id}-running")[0]


def test_a_recording_that_lost_its_run_json_has_the_same_id_at_every_opening(
    tmp_path: Path,
) -> None:
    spool = tmp_path / "lost.layerscope" / "raw" / "here-1-2" / "spool"
    spool.parent.mkdir(parents=True)
    spool.touch()
    code = (
        "import sys; from pathlib import Path; from layerscope.ingest.open import open_folder; "
        "print(open_folder(Path(sys.argv[1])).info.run_id)"
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


def test_tables_of_an_earlier_version_without_raw_files_are_refused_in_words(
    tmp_path: Path,
) -> None:
    run = Recording().write(tmp_path / "old.layerscope")
    (run.path / COMPLETE).write_text(
        json.dumps({"schema": SCHEMA_VERSION - 1, "rows": {}, "raw_bytes": 0})
    )

    with pytest.raises(
        ReadError, match=r"has the tables of an earlier layerscope .* read it with that version"
    ):
        open_run(run.path)


def test_a_name_that_is_no_utf_8_is_refused_in_words(tmp_path: Path) -> None:
    """Its tables would be called damaged: neither Arrow nor DuckDB opens them."""
    run = Recording().write(tmp_path / "train.layerscope")
    moved = Path(os.fsdecode(os.fsencode(tmp_path) + b"/tr\xff.layerscope"))
    run.path.rename(moved)

    with pytest.raises(ReadError, match=r"tr\\xff\.layerscope must have a name in UTF-8"):
        open_run(moved)
