"""What a framework did beside what its profiler recorded: functions that it compiled, and in what
their arguments differed from those before. Used by `profiles`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.model.distinct import distinct
from layerscope.model.layers import KINDS
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.open_operators import ThreadSpans
from layerscope.sources.span_depths import depths

_TASK = KINDS.index("task")
_DOMAIN = "compilation"
# So many arguments that differ are named.
_MOST_NAMED = 3
_NAME, _THREAD, _BEGIN, _END, _ARGUMENTS = range(5)

# (name, type) of each argument.
Arguments = Sequence[tuple[str, str]]


def ended_by(told: Sequence[Any], realtime_ns: int) -> int:
    """How many of these tasks, from the first on, had ended at this time of CLOCK_REALTIME."""
    for count, one in enumerate(told):
        if one[_END] > realtime_ns:
            return count
    return len(told)


def tasks(
    told: Sequence[Any], clock: Conversion, threads: Mapping[int, ThreadSpans], given: int = 0
) -> LateSpans | None:
    """The tasks that the hook of a framework `told`, by thread, without the first ones that were
    `given` before.
    """
    known = [one for one in told if one[_THREAD] in threads]
    before = sum(one[_THREAD] in threads for one in told[:given])
    if len(known) == before:
        return None
    about = _compilations(known)
    texts = list(dict.fromkeys([f"{one[_NAME]}" for one in known] + about))
    moments = np.array([one[_BEGIN : _END + 1] for one in known], np.int64)
    start_ns, end_ns = clock.to_run(moments[:, 0]), clock.to_run(moments[:, 1])
    track = np.array([threads[one[_THREAD]].track for one in known], np.int32)
    depth = np.zeros(len(known), np.int32)
    for number in distinct(track).tolist():
        rows = np.flatnonzero(track == number)
        depth[rows] = depths(track[rows], start_ns[rows], end_ns[rows])
    name = np.array([texts.index(f"{one[_NAME]}") for one in known], np.int32)
    args = np.array([texts.index(text) for text in about], np.int32)
    return LateSpans(
        track=track[before:],
        start_ns=start_ns[before:],
        end_ns=end_ns[before:],
        depth=depth[before:],
        kind=np.full(len(known) - before, _TASK, np.uint8),
        name=name[before:],
        args=args[before:],
        texts=texts,
    )


def _compilations(told: Sequence[Any]) -> list[str]:
    """JSON about each: which compilation of its function it is, for what, and why it is not the
    first one.
    """
    before: dict[str, list[Arguments]] = {}
    found = []
    for one in told:
        arguments = _arguments(one)
        earlier = before.setdefault(f"{one[_NAME]}", [])
        about: dict[str, Any] = {"domain": _DOMAIN, "number": f"{len(earlier)}"}
        if arguments is not None:
            about["arguments"] = ", ".join(kind for _, kind in arguments)
            if earlier:
                about["reason"] = difference(earlier, arguments)
            earlier.append(arguments)
        found.append(json.dumps(about, ensure_ascii=False))
    return found


def _arguments(told: Sequence[Any]) -> Arguments | None:
    """Those of a compilation; None: they are not known."""
    if len(told) <= _ARGUMENTS or not isinstance(told[_ARGUMENTS], list):
        return None
    pairs = [one for one in told[_ARGUMENTS] if isinstance(one, list) and len(one) == 2]
    return [(f"{name}", f"{kind}") for name, kind in pairs]


def difference(earlier: Sequence[Arguments], now: Arguments) -> str:
    """In what the arguments differ from those of the earlier compilation that is most like it."""
    alike = [before for before in earlier if len(before) == len(now)]
    if not alike:
        return f"{len(now)} arguments instead of {len(earlier[-1])}"
    changes = [_changes(before, now) for before in reversed(alike)]
    fewest = min(changes, key=len)
    if not fewest:
        return "the same arguments: something static, a device or an option differs"
    rest = len(fewest) - _MOST_NAMED
    named = fewest[:_MOST_NAMED]
    return ", ".join([*named, f"{rest} more"] if rest > 0 else named)


def _changes(before: Arguments, now: Arguments) -> list[str]:
    """Each argument that differs, with what it was and is."""
    found = []
    for number, ((_, was), (name, kind)) in enumerate(zip(before, now, strict=True), 1):
        if was != kind:
            found.append(f"{name or f'argument {number}'}: {was} → {kind}")
    return found
