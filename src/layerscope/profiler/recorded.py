"""`with layerscope.record() as recorded`: a stretch of the recording, and the way to what was
recorded in it.
"""

from __future__ import annotations

import os

from layerscope.profiler.steering import now_ns, steering, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

SUFFIX = ".layerscope"


class Recorded:
    """What ran in the block. `path` is the folder of the recording; empty when nothing could be
    recorded.

    A process has one recording: blocks after the first are stretches of it, and `open` shows the
    stretch alone, by `open_run` (`layerscope.open_run`).
    """

    def __init__(self, path: str | None, open_run: Callable[[str, int, int | None], Any]) -> None:
        self._open_run = open_run
        self.path = ""
        self.start_ns = 0
        self.end_ns: int | None = None
        self._wanted = os.path.abspath(os.fspath(path)) if path is not None else ""

    def __enter__(self) -> Recorded:
        wanted = self._wanted[: -len(SUFFIX)] if self._wanted.endswith(SUFFIX) else self._wanted
        folder, stem = os.path.split(wanted) if wanted else ("", "")
        steering.begin_block(folder, stem)
        self.path = steering.where()
        if self._wanted and self.path and not self.path.startswith(wanted):
            warn(
                f"layerscope: this process is recorded into {self.path} already; {self._wanted} "
                "was not made"
            )
        self.start_ns = now_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_ns = now_ns()
        steering.end_block()

    def open(self) -> Any:
        """The stretch for questions, as `layerscope.open_run` gives a whole recording."""
        if not self.path:
            raise RuntimeError(
                "nothing was recorded: the warning at the block's start has the reason"
            )
        steering.ask("flush")
        return self._open_run(self.path, self.start_ns, self.end_ns)
