"""XSpaces that were recorded for us, a segment of a program each: what XLA executed, without what
profilers tell each other; the threads of the program by the numbers that our hook marked them with;
and the calls of jitted functions. Used by `sources.raw.profiles`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from layerscope.model.layers import KINDS
from layerscope.model.stored_json import decoded
from layerscope.sources import xplane
from layerscope.sources.imported import Imported
from layerscope.sources.xplane_scopes import module_of

# What our hook calls the span that tells the number of a thread.
_THREAD = "layerscope thread"
_OF_PROGRAM = "python"
# The number of the thread that the process began with.
MAIN = -1
_CALL = "PjitFunction("
_AWAIT = "CommonPjRtBuffer::Await"
_FUNCTION = KINDS.index("function")

# Those of spans, in the order of their texts.
Arguments = Sequence[Mapping[str, Any]]


def read(path: Path) -> Imported:
    """What is in the file `path`."""
    content = xplane.read(path)
    told = [decoded(text.encode(), dict[str, Any]) for text in content.args_texts]
    _number_threads(content, told)
    _find_calls(content, told)
    _find_modules(content, told)
    _find_waits(content)
    return _without(content, _THREAD)


def _number_threads(content: Imported, told: Arguments) -> None:
    """Give the threads of the program their numbers, in place."""
    is_ours = np.array([name == _THREAD for name in content.names], np.bool_)
    tids: dict[int, int] = {}
    for row in np.flatnonzero(is_ours[content.name]).tolist():
        tid = _told_number(told, int(content.args[row]))
        if tid is not None:
            tids[int(content.track[row])] = tid
    of_program = [at for at, track in enumerate(content.tracks) if track.name == _OF_PROGRAM]
    if len(of_program) == 1:
        tids.setdefault(of_program[0], MAIN)
    for at, tid in tids.items():
        track = content.tracks[at]
        content.tracks[at] = replace(track, tid=tid)


def _told_number(told: Arguments, place: int) -> int | None:
    """The number that a span of our hook tells; `place`: of its arguments, -1: it has none."""
    if place < 0:
        return None
    tid = str(told[place].get("tid"))
    return int(tid) if tid.isdecimal() else None


def _find_calls(content: Imported, told: Arguments) -> None:
    """The calls of jitted functions are operators: what the program takes to launch them; in place.
    XLA tells each of them twice, one in the other.
    """
    names = [name for name in content.names if name.startswith(_CALL)]
    kind = content.kind.copy()
    for name in names:
        rows = np.flatnonzero(content.name == content.names.index(name))
        order = np.lexsort((content.depth[rows], content.start_ns[rows], content.track[rows]))
        rows = rows[order]
        end_ns = content.start_ns[rows] + content.dur_ns[rows]
        is_inner = content.track[rows][1:] == content.track[rows][:-1]
        is_inner &= end_ns[1:] <= end_ns[:-1]
        kind[rows[np.append(True, ~is_inner)[: len(rows)]]] = _FUNCTION
    content.kind = kind
    executed_ns = _executed_ns(content, told)
    content.calls = {name: executed_ns.get(_program(name), 0) for name in names}


def _program(call: str) -> str:
    """What XLA names the program that such a call launches."""
    return "jit_" + re.sub(r"\W", "_", call.removeprefix(_CALL).removesuffix(")"))


def _executed_ns(content: Imported, told: Arguments) -> dict[str, int]:
    """By program how long its instructions took together."""
    known: dict[str, int] = {}
    places = []
    for one in told:
        program = str(one.get("hlo_module", ""))
        places.append(known.setdefault(program, len(known)))
    has_args = content.args >= 0
    place = np.array(places, np.intp)[content.args[has_args]]
    spent_ns = np.bincount(place, content.dur_ns[has_args], len(known))
    return {program: int(spent_ns[at]) for program, at in known.items()}


def _find_waits(content: Imported) -> None:
    """XLA tells a wait for a result by two moments, before and behind it, between which the thread
    tells nothing: one range from the first to the second one; in place.
    """
    if _AWAIT not in content.names:
        return
    order = np.lexsort((content.depth, content.start_ns, content.track))
    track, is_wait = content.track[order], content.name[order] == content.names.index(_AWAIT)
    goes_on = is_wait[1:] & is_wait[:-1] & (track[1:] == track[:-1])
    # The place of each moment among those that follow each other.
    begins = is_wait & ~np.append(False, goes_on)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    place = np.arange(len(order)) - first
    before = np.flatnonzero(goes_on & (place[:-1] % 2 == 0))
    begin, end = order[before], order[before + 1]
    dur_ns = content.dur_ns.copy()
    dur_ns[begin] = content.start_ns[end] + content.dur_ns[end] - content.start_ns[begin]
    content.dur_ns = dur_ns
    kept = np.ones(len(order), np.bool_)
    kept[end] = False
    _keep(content, kept)


def _find_modules(content: Imported, told: Arguments) -> None:
    """The modules of operators by their scopes, as names: `more` has their numbers, -1: none; in
    place.
    """
    known: dict[str, int] = {}
    modules = []
    for one in told:
        module = module_of(str(one.get("op_name", "")))
        place = known.setdefault(module, len(content.names) + len(known)) if module else -1
        modules.append(place)
    content.names += known
    # The last one is that of spans without arguments, whose number is -1.
    content.more["module"] = np.array([*modules, -1], np.int64)[content.args]


def _without(content: Imported, name: str) -> Imported:
    """The same without spans of this name."""
    if name in content.names:
        _keep(content, content.name != content.names.index(name))
    return content


def _keep(content: Imported, kept: np.ndarray) -> None:
    """Leave these spans; in place."""
    content.more = {
        key: np.broadcast_to(values, kept.shape)[kept] for key, values in content.more.items()
    }
    for column in ("start_ns", "dur_ns", "track", "depth", "kind", "name", "args"):
        setattr(content, column, getattr(content, column)[kept])
