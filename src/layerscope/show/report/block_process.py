"""Blocks of a large recording, made by a process of its own: what a question about ten million
spans takes is given back when it is answered.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from layerscope.model.errors import ReadError
from layerscope.recording.run import Run
from layerscope.show.report.blocks import Block

_SOURCE = str(Path(__file__).resolve().parents[3])
# Whatever the user's PYTHONPATH and working directory hold.
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from layerscope.show.report.block_process import main; main()"
)


class BlockMaker:
    """Makes blocks of the report of `run`, compared with `other`."""

    def __init__(
        self,
        run: Run,
        other: Run | None,
    ) -> None:
        self._runs = run, other
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def made_with(self, name: str) -> list[Block]:
        """The block of this name, with those that are made with it."""
        if self._is_closed:
            raise ReadError("layerscope view has ended")
        flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
        command = [sys.executable, *flags, "-c", _START, _SOURCE]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            self._process = process
            out, errors = process.communicate(pickle.dumps((*self._runs, name)))
            self._process = None
        if process.returncode:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = last or f"its process ended with status {process.returncode}"
            raise ReadError(f"this part of {self._runs[0].path} cannot be read: {why}")
        blocks: list[Block] = pickle.loads(out)
        return blocks

    def interrupt(self) -> None:
        """Give up what is being made, and make no more."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()


def main() -> None:
    """Make the block that standard input names."""
    from layerscope.model.errors import LayerscopeError
    from layerscope.recording.reader import Reader
    from layerscope.show.report.contents import ReportContents

    run, other, name = pickle.load(sys.stdin.buffer)
    compared = None if other is None else Reader(other)
    try:
        contents = ReportContents(Reader(run), other=compared, is_live=True, has_many_spans=True)
        blocks = contents.made_with(name)
        sys.stdout.buffer.write(pickle.dumps(blocks))
    except LayerscopeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
