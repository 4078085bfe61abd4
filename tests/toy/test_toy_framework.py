"""A framework that layerscope does not know is recorded by a folder and a file of its own, and
nothing else of layerscope is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.recorded import ROOT, TIMEOUT_S, ask

HERE = Path(__file__).parent
SOURCE = ROOT / "src" / "layerscope"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layerscope that knows toynet, and beside it toynet and a program."""
    folder = tmp_path_factory.mktemp("extended")
    copy = folder / "layerscope"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "names.py", copy / "model" / "frameworks" / "toynet.py")
    adapter = copy / "capture" / "frameworks" / "toynet"
    (adapter / "inside").mkdir(parents=True)
    shutil.copy(HERE / "adapter.py", adapter / "__init__.py")
    shutil.copy(HERE / "hook.py", adapter / "inside" / "hook.py")
    for name in ("toynet.py", "program.py"):
        shutil.copy(HERE / name, folder / name)
    return folder


def layerscope(extended: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *words],
        cwd=extended, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "PYTHONPATH": str(extended), "XDG_CACHE_HOME": str(extended / "cache")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(extended: Path, native_agent: Path) -> subprocess.CompletedProcess[str]:
    """The program, recorded."""
    words = ("run", "--without", "stacks", "-o", "toy", "--", sys.executable, "program.py")
    return layerscope(extended, *words)


def test_the_program_is_the_same(extended: Path, done: subprocess.CompletedProcess[str]) -> None:
    alone = subprocess.run(
        [sys.executable, "program.py"], cwd=extended, capture_output=True, text=True, check=True
    )
    assert (done.returncode, done.stdout) == (0, alone.stdout)


def test_every_span_has_its_kind_and_its_parent(
    extended: Path, done: subprocess.CompletedProcess[str]
) -> None:
    found = ask(
        open_run(extended / "toy.layerscope"),
        """SELECT s.kind AS kind, s.name AS name, p.name AS parent, count(*) AS count
           FROM spans s LEFT JOIN spans p ON p.span = s.parent GROUP BY ALL ORDER BY ALL""",
    )
    assert [tuple(row.values()) for row in found] == [
        ("backward", "AffineBackward", None, 6),
        ("function", "toy::affine", None, 6),
        ("function", "toy::scale", "toy::affine", 6),
        ("loader", "toy next batch", None, 6),
        ("optimizer", "toy step Descent", None, 6),
    ]


def test_backward_functions_are_linked_to_their_operators(
    extended: Path, done: subprocess.CompletedProcess[str]
) -> None:
    found = ask(
        open_run(extended / "toy.layerscope"),
        """SELECT b.name AS backward, f.name AS forward, count(*) AS count
           FROM links l JOIN spans b ON b.span = l.from_span JOIN spans f ON f.span = l.to_span
           GROUP BY ALL""",
    )
    named = {frozenset((row["backward"], row["forward"])): row["count"] for row in found}
    assert named == {frozenset(("AffineBackward", "toy::affine")): 6}


def test_steps_and_phases_are_found(extended: Path, done: subprocess.CompletedProcess[str]) -> None:
    # This process does not know toynet: the copy found them when it converted.
    with Reader(open_run(extended / "toy.layerscope")) as reader:
        steps = reader.query("SELECT * FROM steps ORDER BY step").to_pylist()
    assert [step["rule"] for step in steps] == ["optimizer"] * 6
    for step in steps:
        assert step["load_ns"] > 0
        assert step["forward_ns"] > 1_000_000  # the pause is in it
        assert step["backward_ns"] > 0
        assert step["optimizer_ns"] > 0


def test_the_summary_and_the_table_name_it(
    extended: Path, done: subprocess.CompletedProcess[str]
) -> None:
    assert "6 steps" in done.stderr
    assert re.search(r"^toy::affine ", done.stderr, re.MULTILINE)
    table = layerscope(extended, "table", "operators", "toy.layerscope")
    assert table.returncode == 0
    assert "toy::affine" in table.stdout
