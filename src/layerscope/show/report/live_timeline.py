"""The timeline of a recording that is too large for a page to hold: prepared beside the server,
then asked by the page.
"""

from __future__ import annotations

import threading

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.kept import KeptColumns
from layerscope.model.errors import LayerscopeError, ReadError
from layerscope.recording.reader import Reader
from layerscope.show.report.questions import Parameters, Questions, Told

# Up to so many spans a page holds all of them: it then needs a server for nothing that it draws.
MOST_IN_PAGE = 2_000_000
# So many questions are answered at once: each may look at all spans.
_AT_ONCE = 2
# What reading columns raises that are not as they were written.
_DAMAGE = (OSError, ValueError, EOFError, KeyError)


def is_large(reader: Reader) -> bool:
    """Whether a recording has more spans than a page holds."""
    return reader.rows("spans") > MOST_IN_PAGE


class LiveTimeline:
    """The timeline of the recording that `reader` has open. It is prepared from now on."""

    def __init__(self, reader: Reader) -> None:
        files = [file for table in ("spans", "links", "primitives") for file in reader.files(table)]
        self._kept = KeptColumns(reader.run, files)
        self._made = threading.Event()
        self._questions: Questions | None = None
        self._problem: LayerscopeError | None = None
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        maker = threading.Thread(target=self._make, daemon=True)
        maker.start()

    def _make(self) -> None:
        try:
            self._questions = self._opened()
            self._kept.are_mapped()
        except LayerscopeError as error:
            self._problem = error
        except OSError as error:
            self._problem = ReadError(f"the timeline cannot be prepared: {error}")
        finally:
            self._made.set()

    def _opened(self) -> Questions:
        folder = self._kept.folder()
        try:
            return Questions(TimelineColumns(folder))
        except _DAMAGE:
            return Questions(TimelineColumns(self._kept.made_again()))

    def wait(self) -> None:
        """Return when it is prepared, or cannot be."""
        self._made.wait()

    def answer(self, path: str, parameters: Parameters) -> Told:
        """The answer to a question. LayerscopeError: there is none."""
        self.wait()
        if self._questions is None:
            raise self._problem or ReadError("the timeline cannot be prepared")
        with self._turns:
            return self._questions.answer(path, parameters)

    def close(self) -> None:
        """Let go of it; what is not kept for the next time is removed."""
        self._kept.close()
