"""What ingest asks of a source: whatever yields the events of one recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from layerscope.model.events import Problem
from layerscope.sources.process import SourceProcess

if TYPE_CHECKING:
    from layerscope.sources.imported import ImportedStacks
    from layerscope.sources.raw.folder import SamplerFile


class Source(Protocol):
    """Raw files of our own, or a file of another program.

    `options`: what the user asked for when it was recorded (`rawfile.json_files.Options`).
    """

    options: dict[str, Any]

    def new_processes(self) -> Sequence[SourceProcess]:
        """Processes that were not there at the last call."""

    @property
    def is_wrong(self) -> bool:
        """Whether what was read should have been other, as it is known now."""

    @property
    def loop(self) -> str:
        """What the steps are by what was read so far; empty: the source does not tell."""

    def read_ahead(self) -> bool:
        """Read some of what was written beside its files. False: there is nothing."""

    def new_samples(self) -> Sequence[SamplerFile | ImportedStacks]:
        """Samples of stacks that were not there at the last call."""

    def finish(self, session: dict[str, Any]) -> Sequence[SourceProcess]:
        """The recording is over: what only its end adds is read from now on. More new processes.

        `session`: what the recorder left at its end (`rawfile.json_files.SessionState`).
        """

    def problems(self) -> dict[str, list[Problem]]:
        """What has to be said about it, by rank."""

    def left_bytes(self) -> int:
        """How much is still to be read."""

    def size_bytes(self) -> int:
        """What its files take of the size that the recording may have."""
