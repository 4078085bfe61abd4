"""The tutorial about a late rank runs as it stands there, and finds what it says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.docs.tutorials import Tutorial
from tests.recorded import ROOT


def test_the_tutorial_finds_what_it_says(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "traces_of_ranks.py", tmp_path)
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    commands = Tutorial("tutorials/late-rank.md", (), tmp_path, sys.executable, cache)

    commands.run()
    gpus = commands.rows()
    (reduce,) = commands.rows()
    late, *others = commands.rows()

    assert [row["rank"] for row in gpus] == list(range(8))
    for row in gpus:
        assert row["rank"] == 2 or row["exposed_communication_ns"] > 0.5 * row["span_ns"]
    assert (reduce["name"], reduce["last_rank"], reduce["last_count"]) == ("all_reduce", 2, 30)
    assert reduce["transfer_ns"] == pytest.approx(0.4e6, rel=1e-4)
    assert reduce["bus_rate"] == pytest.approx(437, abs=1)
    assert reduce["skew_ns"] == pytest.approx(3e6, rel=1e-4)
    assert (late["rank"], late["late"], late["reason"]) == (2, 30, "loader")
    assert late["late_ns"] == pytest.approx(3e6, rel=1e-4)
    assert late["loader_ns"] == pytest.approx(3e6, rel=1e-3)
    assert not any(row["late"] for row in others)


@pytest.mark.parametrize("why", ["compute", "copy", "host"])
def test_other_reasons(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job, late for another reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["--ranks", "3", "--steps", "12", "--kernels", "5", "--late", f"1:{why}:900"]
    program = str(ROOT / "examples" / "traces_of_ranks.py")
    subprocess.run([sys.executable, program, str(tmp_path / "job"), *words], check=True)

    with Reader(open_run(tmp_path / "job")) as reader:
        first = tables.build(reader, "stragglers").data.to_pylist()[0]

    assert (first["rank"], first["reason"], first["late"]) == (1, why, 12)
    assert first["late_ns"] == pytest.approx(900_000, rel=1e-3)
