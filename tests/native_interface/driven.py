"""Runs the program of driver.c, alone or under `layerscope run`, and reads what was recorded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.ingest.open import open_run
from tests.recorded import ask, layerscope

TIMEOUT_S = 120


@dataclass
class Driven:
    """A driven program that has ended; `recording` is where it was told to record, if it did."""

    folder: Path
    pid: int
    status: int
    stdout: str
    stderr: str
    name: str = "driver"

    @property
    def recording(self) -> Path:
        """The folder of the recording."""
        return self.folder / f"{self.name}.layerscope"

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to `sql` over the tables."""
        return ask(open_run(self.recording), sql)

    def spans(self, pid: int | None = None) -> list[dict[str, Any]]:
        """The spans of a process by start, each with its thread, its domain and the name of its
        parent.
        """
        return self.rows(
            "SELECT s.*, p.name AS parent_name, tid, json->>'domain' AS domain FROM spans s "
            "JOIN tracks t USING (track) JOIN processes USING (process) LEFT JOIN spans p ON p.span = s.parent "
            f"LEFT JOIN args ON args.args = s.args WHERE pid = {pid or self.pid} ORDER BY s.start_ns, s.depth"
        )

    def tree(self, pid: int | None = None) -> list[tuple[str, str | None]]:
        """(name, name of the parent) of every span by start."""
        return [(span["name"], span["parent_name"]) for span in self.spans(pid)]

    def marks(self) -> list[tuple[str, str]]:
        """(kind, name) of every mark in their order."""
        return [
            (row["kind"], row["name"])
            for row in self.rows("SELECT kind, name FROM marks ORDER BY at_ns")
        ]

    def counted(self, name: str) -> list[int]:
        """The values of a counter of the program in their order."""
        rows = self.rows(f"SELECT value FROM counters WHERE name = '{name}' ORDER BY at_ns")
        return [row["value"] for row in rows]

    def problems(self) -> list[str]:
        """The codes of what could not be recorded."""
        return [row["code"] for row in self.rows("SELECT code FROM problems")]

    def lost(self) -> int:
        """How many records were lost and counted."""
        (row,) = self.rows("SELECT coalesce(sum(lost), 0)::BIGINT AS lost FROM gaps")
        return int(row["lost"])


Drive = Callable[..., Driven]


def alone(program: Path, folder: Path, *commands: str, **options: Any) -> Driven:
    """Run the driver with nothing of ours around it."""
    environment = {**os.environ, **options.pop("env", {})}
    environment.pop("LAYERSCOPE_AGENT", None)
    process = subprocess.Popen(
        [str(program), *commands], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", **options,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return Driven(folder, process.pid, process.returncode, stdout, stderr)


def under_run(program: Path, folder: Path, *commands: str) -> Driven:
    """Run the driver under `layerscope run`."""
    done = layerscope("run", "-q", "-o", "recording", "--", str(program), *commands, cwd=folder)
    driven = Driven(folder, 0, done.returncode, done.stdout, done.stderr, "recording")
    (row,) = driven.rows("SELECT pid FROM processes ORDER BY start_ns LIMIT 1")
    driven.pid = row["pid"]
    return driven
