"""Starts a program whose threads are known, and looks at it with `layerscope dump`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.recorded import layerscope

READY = "ready"
_PATIENCE_S = 30.0


class Dump:
    """What `dump --json` told: `threads` by name."""

    def __init__(self, text: str) -> None:
        self.document = json.loads(text)
        names = [column["name"] for column in self.document["columns"]]
        self.rows = [dict(zip(names, row, strict=True)) for row in self.document["rows"]]
        self.threads = {row["name"]: row for row in self.rows}

    def stack(self, name: str) -> list[str]:
        """The functions of a thread, the innermost first."""
        stack = self.document["stacks"][self.threads[name]["stack"]]
        return [frame["name"] for frame in stack]

    def lines(self, name: str) -> list[tuple[str, int]]:
        """The same with lines."""
        stack = self.document["stacks"][self.threads[name]["stack"]]
        return [(frame["name"], frame["line"]) for frame in stack]

    def wait(self, name: str) -> str:
        """The kind of what a thread waits for."""
        kind = self.threads[name]["wait"]
        assert isinstance(kind, str), self.threads[name]
        return kind

    def on(self, name: str) -> list[str]:
        """On whom, by name."""
        return [one["name"] for one in self.threads[name]["on"]]


def dump(pid: int, cwd: Path, *options: str) -> Dump:
    """Look at a process."""
    done = layerscope("dump", str(pid), "--json", *options, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return Dump(done.stdout)


@contextlib.contextmanager
def running(command: Sequence[str], text: str = "", **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The program until the end of the block, once it has said that it is ready. `text`: the
    program of a Python.
    """
    words = [*command, "-I", "-c", text] if text else [*command]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, start_new_session=True, **more
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == READY
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def settled(pid: int, cwd: Path, names: Sequence[str], *options: str) -> Dump:
    """A look at which all these threads wait: whoever says that it is ready still has to begin."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        found = dump(pid, cwd, *options)
        if all(found.threads.get(name, {}).get("wait") for name in names):
            return found
        assert time.monotonic() < until, found.rows
