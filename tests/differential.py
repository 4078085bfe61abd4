"""Runs a program with and without `layerscope run`, and says what was the same.

The two runs happen one after the other in the same folder, made anew in between, so that paths are
equal; the recording lies elsewhere. Everything the program leaves behind is compared too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerscope.recording.reader import Reader
from layerscope.recording.run import Run

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROGRAMS = Path(__file__).resolve().parent / "programs"
TIMEOUT_S = 120
# What the console script of an installation does; -c would put the working directory on sys.path.
LAUNCHER = f"import sys\nsys.path.insert(0, {str(SOURCE)!r})\nfrom layerscope.cli import main\nsys.exit(main())\n"
# Variables of whoever runs the tests that would be part of what is compared.
NOT_HANDED_ON = (
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "COVERAGE_PROCESS_START",
)


def launcher(folder: Path) -> list[str]:
    """A command that is `layerscope` of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "layerscope"
    script.write_text(LAUNCHER)
    return [sys.executable, str(script)]


def environment(**changes: str | None) -> dict[str, str]:
    """The environment of a program: ours without what the test's own Python got; None removes a
    variable.
    """
    chosen = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    chosen.update({name: value for name, value in changes.items() if value is not None})
    return {name: value for name, value in chosen.items() if changes.get(name, "") is not None}


@dataclass
class Outcome:
    """What one run of a program printed and left behind. `status` is negative for a signal."""

    status: int
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes] = field(default_factory=dict)


class Differential:
    """A folder to run programs in, and the two ways to run them."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.options = options
        self.work = folder / "work"
        self.recording = folder / "rec.layerscope"
        self.layerscope = launcher(folder)
        self.prepare: Callable[[Path], None] = lambda work: None
        self.normalise: Callable[[Outcome], Outcome] = lambda outcome: outcome
        self._fresh()

    def _fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.prepare(self.work)

    def run(self, command: Sequence[str | bytes], **more: Any) -> Outcome:
        """Run `command` as it is."""
        self._fresh()
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("env", environment())
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        with subprocess.Popen(command, cwd=self.work, **more) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_S)
            except BaseException:
                process.send_signal(signal.SIGTERM)
                process.kill()
                raise
        # Compiled modules hold the time of their source.
        left = [
            path
            for path in sorted(self.work.rglob("*"))
            if path.is_file() and path.suffix != ".pyc"
        ]
        files = {str(path.relative_to(self.work)): path.read_bytes() for path in left}
        return Outcome(process.returncode, out or b"", err or b"", files)

    def record(self, command: Sequence[str | bytes], quiet: bool = True, **more: Any) -> Outcome:
        """Run `command` under `layerscope run`."""
        shutil.rmtree(self.recording, ignore_errors=True)
        return self.run([*self.recorder(quiet), *command], **more)

    def recorder(self, quiet: bool = True) -> list[str]:
        """What goes in front of a command to record it."""
        return [
            *self.layerscope,
            "run",
            *(["-q"] if quiet else []),
            *self.options,
            "-o",
            str(self.recording),
            "--",
        ]

    def same(self, command: Sequence[str | bytes], **more: Any) -> Outcome:
        """Run `command` both ways; fail where they differ; what it did."""
        without = self.normalise(self.run(command, **more))
        with_us = self.normalise(self.record(command, **more))
        assert _lines(with_us.stdout) == _lines(without.stdout)
        assert with_us == without
        return with_us

    def recorded(self) -> Recorded:
        """The recording of the last run."""
        return Recorded(self.recording)


class Recorded:
    """A recording, and the questions that the tests have."""

    def __init__(self, path: Path) -> None:
        self.run = Run.open(path)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to `sql`."""
        with Reader(self.run) as reader:
            found: list[dict[str, Any]] = reader.query(sql).to_pylist()
        return found

    def count(self, name: str) -> int:
        """How many finished spans are called `name`."""
        return int(
            self.rows(f"SELECT count(*) AS n FROM spans WHERE name = '{name}' AND NOT unfinished")[
                0
            ]["n"]
        )

    def per_process(self, name: str = "aten::hypot") -> list[int]:
        """How many finished spans called `name` each recorded process has, sorted; those without
        any left out.
        """
        rows = self.rows(
            f"SELECT count(*) AS n FROM spans JOIN tracks USING (track) WHERE spans.name = '{name}' "
            "AND NOT unfinished GROUP BY process ORDER BY n"
        )
        return [row["n"] for row in rows]

    def unfinished(self) -> list[list[str]]:
        """The names that were open at the end, outermost first, one list per thread."""
        rows = self.rows("SELECT track, name FROM spans WHERE unfinished ORDER BY track, depth")
        stacks: dict[int, list[str]] = {}
        for row in rows:
            stacks.setdefault(row["track"], []).append(row["name"])
        return sorted(stacks.values())

    def gaps(self) -> dict[str, int]:
        """What was lost, by reason."""
        rows = self.rows("SELECT reason, sum(lost) AS lost FROM gaps GROUP BY reason")
        return {row["reason"]: row["lost"] for row in rows}

    def problems(self) -> dict[str, str]:
        """What was said about what could not be recorded, by code. What the recording costs on a
        slow or busy machine is no part of it.
        """
        of_cost = ("rate_lowered", "budget_exceeded")
        found = self.rows("SELECT code, what FROM problems")
        return {row["code"]: row["what"] for row in found if row["code"] not in of_cost}


def _lines(text: bytes) -> list[str]:
    return text.decode("utf-8", "replace").splitlines()


def program(python: str, name: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command that runs a file of tests/programs."""
    return [python, *options, str(PROGRAMS / name), *arguments]
