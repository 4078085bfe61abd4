"""The blocks of a report, made when they are first asked for and kept: for a page that a server
brings.

Browsers ask for several at once, and a recording may go away meanwhile.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from layerscope.model.errors import ReadError
from layerscope.recording.complete import COMPLETE
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show.report.block_process import BlockMaker
from layerscope.show.report.blocks import Block
from layerscope.show.report.contents import ReportContents
from layerscope.show.report.live_timeline import LiveTimeline, is_large

# Before questions about the spans of the recording that came before (web/src/data/recording.ts).
OTHER_PATH = "/other"
# How long something that is being made is waited for at the end.
_PATIENCE_S = 2


class LiveContents:
    """The report of the recording that `reader` has open. One thread at a time reads it; what takes
    long of a large recording is made by another process meanwhile.
    """

    def __init__(
        self,
        reader: Reader,
        other: Reader | None = None,
    ) -> None:
        self._reader = reader
        self._other = other
        self._lock = threading.Lock()
        self._making = threading.Lock()  # one process at a time
        self._contents: ReportContents | None = None
        self._kept: dict[str, Block] = {}
        self._states = {run.path: _state_of(run) for run in self._runs}
        self.title = reader.run.name
        # Of a recording that a page cannot hold.
        self.timeline: LiveTimeline | None = None
        self._other_timeline: LiveTimeline | None = None
        self._maker: BlockMaker | None = None
        if is_large(reader):
            self.timeline = LiveTimeline(reader)
            self._maker = BlockMaker(reader.run, None if other is None else other.run)

    def timeline_of(self, path: str) -> tuple[LiveTimeline | None, str]:
        """Who answers a question about spans, and the question; of the earlier recording that is
        prepared when it is first asked.
        """
        if not path.startswith(OTHER_PATH):
            return self.timeline, path
        other = self._other
        with self._lock:
            if self._other_timeline is None and other is not None and is_large(other):
                self._other_timeline = LiveTimeline(other)
        return self._other_timeline, path.removeprefix(OTHER_PATH)

    @property
    def _readers(self) -> list[Reader]:
        readers = [self._reader]
        if self._other is not None:
            readers.append(self._other)
        return readers

    @property
    def _runs(self) -> list[Run]:
        return [reader.run for reader in self._readers]

    def close(self) -> None:
        """Let go of the recording. What is being made for somebody is given up; it holds the
        recording until the process ends if it goes on nevertheless.
        """
        for reader in self._readers:
            reader.interrupt()
        for timeline in (self.timeline, self._other_timeline):
            if timeline is not None:
                timeline.close()
        if self._maker is not None:
            self._maker.interrupt()
        if self._lock.acquire(timeout=_PATIENCE_S):
            for reader in self._readers:
                reader.close()

    def head(self) -> dict[str, Any]:
        """What the page knows from the start. How a block is to be read comes with it."""
        with self._lock:
            contents = self._made()
            blocks = dict.fromkeys(contents.names)
            return {**contents.head(), "blocks": blocks}

    def has(self, name: str) -> bool:
        """Whether there is a block of this name."""
        with self._lock:
            return name in self._made().names

    def block(self, name: str) -> Block:
        """The block of this name; ReadError where the recording is not there any more."""
        with self._lock:
            if name in self._kept:
                return self._kept[name]
            self._check()
            contents = self._made()
            if self._maker is None or contents.is_small(name):
                kept = self._keep(name, contents.made_with(name))
                self._reader.let_go()
                return kept
        # What takes long does not hold up what does not, nor the timeline.
        if self.timeline is not None:
            self.timeline.wait()
        with self._making:
            if name not in self._kept:
                blocks = self._maker.made_with(name)
                with self._lock:
                    self._keep(name, blocks)
            return self._kept[name]

    def _keep(
        self,
        name: str,
        blocks: list[Block],
    ) -> Block:
        self._kept.update({block.name: block for block in blocks})
        return self._kept[name]

    def _made(self) -> ReportContents:
        if self._contents is None:
            self._check()
            is_large_one = self.timeline is not None
            self._contents = ReportContents(
                self._reader, other=self._other, is_live=True, has_many_spans=is_large_one
            )
        return self._contents

    def _check(self) -> None:
        """Whoever removes a recording leaves no file behind, which a reader takes for no rows."""
        for run in self._runs:
            state = _state_of(run)
            if None in state:
                raise ReadError(
                    f"the recording {run.path} is not there any more. Put it back, or end "
                    "layerscope view"
                )
            if state != self._states[run.path]:
                raise ReadError(
                    f"the tables of {run.path} have changed. End layerscope view and start it again"
                )


def _state_of(run: Run) -> list[tuple[int, int] | None]:
    """Which files say that the tables are whole, of several ranks those of each, and when they
    were written; None: one is not there.
    """
    folders = [run.tables_path, *(folder for _, folder in run.joined)]
    return [_state_of_file(folder / COMPLETE) for folder in folders]


def _state_of_file(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
