"""A trace of another program that is opened by several at once, where nothing can be written, or
while it is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.cli.test_run_places import as_nobody
from tests.recorded import ROOT

OPERATORS = 2_000
PATIENCE_S = 60


def trace(folder: Path, operators: int = OPERATORS) -> Path:
    """A trace of so many operators."""
    about: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 2, "dur": 3.5}
    events = [{**about, "name": f"aten::op{n % 7}", "ts": 10 * n} for n in range(operators)]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def begun(path: Path, cache: str, *before: str) -> subprocess.Popen[str]:
    """The command that shows its operators, begun."""
    words = [sys.executable, "-m", "layerscope", "table", str(path), "operators", "--csv"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "XDG_CACHE_HOME": cache,
        "TMPDIR": cache,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen([*before, *words], stdout=pipe, stderr=pipe, text=True, env=environment)


def shown(command: subprocess.Popen[str]) -> str:
    """Its table."""
    out, err = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, err
    calls = [int(line.split(",")[1]) for line in out.splitlines()[1:]]
    assert sum(calls) == OPERATORS
    return out


def test_a_trace_is_opened_by_several_at_once(tmp_path: Path) -> None:
    path = trace(tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    commands = [begun(path, str(cache)) for _ in range(3)]
    assert len(set(map(shown, commands))) == 1
    kept = cache / "layerscope" / "packed"
    assert len([folder for folder in kept.iterdir() if folder.is_dir()]) == 1


def test_a_trace_is_opened_where_nothing_can_be_kept(tmp_path: Path) -> None:
    assert shown(begun(trace(tmp_path), "/proc"))


def test_a_trace_in_a_folder_of_another_user_is_only_read(tmp_path: Path) -> None:
    nobody = as_nobody()
    path = trace(tmp_path)
    for parent in [path.parent, *path.parent.parents][:4]:
        parent.chmod(0o755)
    before = sorted(tmp_path.iterdir())
    assert shown(begun(path, "/proc", *nobody))
    assert sorted(tmp_path.iterdir()) == before


def test_a_trace_that_grows_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for operators in (100, 300):
        with Reader(open_run(trace(tmp_path, operators))) as reader:
            (row,) = reader.query("SELECT count(*) AS n FROM spans").to_pylist()
        assert row == {"n": operators}
