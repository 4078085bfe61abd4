"""Runs a few lines of Python in a process that has the agent and the stand-in for torch, and reads
what was recorded, by the real drainer and the real converter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.ingest.conversion import RunConversion
from layerscope.rawfile import json_files
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.native.door import Door
from tests.recorded import ask
from tests.recordings import run_info

INSIDE = Path(__file__).parent / "inside.py"
TIMEOUT_S = 120


@dataclass
class Driven:
    """A driven process that has ended, and its tables."""

    door: Door
    run: Run
    pid: int
    status: int
    stdout: str
    stderr: str

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to `sql` over the tables."""
        return ask(self.run, sql)

    def spans(self, pid: int | None = None) -> list[dict[str, Any]]:
        """The spans of a process by start, each with its process, thread and the name of its
        parent.
        """
        return self.rows(
            "SELECT s.*, p.name AS parent_name, pid, tid FROM spans s JOIN tracks t USING (track) "
            "JOIN processes USING (process) LEFT JOIN spans p ON p.span = s.parent "
            f"WHERE pid = {pid or self.pid} ORDER BY s.start_ns, s.depth"
        )

    def tree(self, pid: int | None = None) -> list[tuple[str, int, str | None]]:
        """(name, depth, name of the parent) of every span by start."""
        return [(span["name"], span["depth"], span["parent_name"]) for span in self.spans(pid)]

    def losses(self, pid: int | None = None) -> dict[str, int]:
        """What was lost, by reason."""
        rows = self.rows(
            "SELECT reason, sum(lost)::BIGINT AS lost FROM gaps g LEFT JOIN tracks t ON t.track = g.track "
            "JOIN processes p ON p.process = coalesce(g.process, t.process) "
            f"WHERE pid = {pid or self.pid} GROUP BY reason"
        )
        return {row["reason"]: row["lost"] for row in rows}


class Drive:
    """Runs lines of Python in a driven process."""

    def __init__(self, agent: Path, fake_torch: Path, folder: Path) -> None:
        self.agent = agent
        self.fake_torch = fake_torch
        self.folder = folder
        self.python = sys.executable
        self.options: dict[str, Any] = {}  # of the recording (`raw_json.Options`)

    def start(self, lines: str, door: Door) -> subprocess.Popen[str]:
        """Start a process that runs `lines`."""
        text = f"AGENT, FAKE_TORCH, SOCKET = {str(self.agent)!r}, {str(self.fake_torch)!r}, {door.name!r}\n"
        text += INSIDE.read_text() + "\n" + textwrap.dedent(lines)
        return subprocess.Popen(
            [self.python, "-I", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def __call__(self, lines: str, door: Door | None = None) -> Driven:
        door = door or Door(self.folder / "raw")
        process = self.start(lines, door)
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        return self.finish(door, process.pid, process.returncode, stdout, stderr)

    def finish(
        self, door: Door, pid: int, status: int, stdout: str = "", stderr: str = ""
    ) -> Driven:
        """Close the door and convert what came through it."""
        door.close()
        (door.raw / json_files.OPTIONS).write_text(json.dumps(self.options))
        run = Run.create(self.folder / "driven.layerscope", run_info())
        RunConversion(RawRecording(door.raw), run.tables_path).finish({"pid": pid})
        return Driven(door, run, pid, status, stdout, stderr)
