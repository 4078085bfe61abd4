"""Records a real program for a test, and reads the recording."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.quick_torch import quick

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 300
# What a rank over gloo says when it aborts while it exits, now and then, with layerscope or without
# (torch 2.13).
GLOO_ABORT = "terminate called without an active exception"


def ask(run: Run, sql: str) -> list[dict[str, Any]]:
    """The answer of a recording to `sql` over its tables."""
    with Reader(run) as reader:
        return reader.query(sql).to_pylist()


@dataclass
class Recorded:
    """A finished recording with what the program printed."""

    run: Run
    status: int
    stdout: str
    stderr: str

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to `sql` over the tables."""
        return ask(self.run, sql)

    def value(self, sql: str) -> Any:
        """The one value that `sql` asks for."""
        (row,) = self.rows(sql)
        (value,) = row.values()
        return value


def layerscope(*words: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line of the tree under test."""
    environment = {**os.environ, **more.pop("env", {})}
    environment["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more,
    )  # fmt: skip


# A recording without them costs half as much. What is asked of operators, modules and steps is the
# same with them: one test a file shows it.
NO_STACKS = ("--without", "stacks")


def record(
    python: str, program: str, cwd: Path, *arguments: str, options: Sequence[str] = NO_STACKS
) -> Recorded:
    """Record `program` (its text, or the path of a file) under `python` in the folder `cwd`."""
    path = Path(program)
    if "\n" in program:
        path = cwd / "program.py"
        path.write_text(quick(program))
    done = layerscope(
        "run", "-o", "recording", *options, "--", python, str(path), *arguments, cwd=cwd
    )
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )
