"""XSpaces that were recorded for us, a segment of a program each: what XLA executed, without what
profilers tell each other; the threads of the program by the numbers that our hook marked them with;
and what a step is. Used by `sources.raw.profiles`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.model.layers import KINDS
from layerscope.model.stored_json import decoded
from layerscope.sources import xplane
from layerscope.sources.imported import Imported, ImportedTrack

# What our hook calls the span that tells the number of a thread.
_THREAD = "layerscope thread"
_OF_PROGRAM = "python"
# The number of the thread that the process began with.
MAIN = -1
_CALL = "PjitFunction("
_FUNCTION = KINDS.index("function")
# Fewer calls of a function than these are no loop.
_FEWEST_CALLS = 5


def read(path: Path) -> Imported:
    """What is in the file `path`."""
    content = xplane.read(path)
    _number_threads(content)
    if not content.step_mark:
        _find_steps(content)
    return _without(content, _THREAD)


def _number_threads(content: Imported) -> None:
    """Give the threads of the program their numbers, in place."""
    names = np.array(content.names, object)
    rows = np.flatnonzero(names[content.name] == _THREAD) if len(names) else []
    tids: dict[int, int] = {}
    for row in rows:
        text = content.args_texts[int(content.args[row])] if content.args[row] >= 0 else "{}"
        tid = decoded(text.encode(), dict[str, Any]).get("tid")
        if isinstance(tid, str) and tid.isdecimal():
            tid = int(tid)
        if isinstance(tid, int):
            tids[int(content.track[row])] = tid
    of_program = [at for at, track in enumerate(content.tracks) if track.name == _OF_PROGRAM]
    if len(of_program) == 1:
        tids.setdefault(of_program[0], MAIN)
    content.tracks = [_numbered(track, tids.get(at)) for at, track in enumerate(content.tracks)]


def _numbered(track: ImportedTrack, tid: int | None) -> ImportedTrack:
    return track if tid is None else replace(track, tid=tid)


def _find_steps(content: Imported) -> None:
    """A step begins with each call of the jitted function with the most time, as far as there are
    some; in place. Its call is then an operator: what the program takes to launch it.
    """
    best, most_ns = -1, -1
    for number, name in enumerate(content.names):
        if not name.startswith(_CALL):
            continue
        dur_ns = content.dur_ns[content.name == number]
        spent_ns = int(dur_ns.sum() - dur_ns.max(initial=0))  # one of them may have compiled it
        if len(dur_ns) >= _FEWEST_CALLS and spent_ns > most_ns:
            best, most_ns = number, spent_ns
    if best < 0:
        return
    content.step_mark = content.names[best]
    content.kind = np.where(content.name == best, _FUNCTION, content.kind)


def _without(content: Imported, name: str) -> Imported:
    """The same without spans of this name."""
    if name not in content.names:
        return content
    kept = content.name != content.names.index(name)
    columns = ("start_ns", "dur_ns", "track", "depth", "kind", "name", "args")
    changed: dict[str, Any] = {column: getattr(content, column)[kept] for column in columns}
    more = {key: np.broadcast_to(values, kept.shape)[kept] for key, values in content.more.items()}
    return replace(content, **changed, more=more)
