"""The spans of a trace of Kineto, as columns of `Imported`. Used by `kineto`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layerscope.model.distinct import distinct, with_places
from layerscope.model.layers import LAYER_OF_KIND, OPERATORS, PYTHON_CALL, SPAN_LAYERS
from layerscope.sources.kineto_arguments import Arguments
from layerscope.sources.kineto_meaning import (
    BACKWARD,
    EVENT,
    FUNCTION,
    KERNEL,
    LAUNCH,
    MEMSET,
    RANGE,
    RUNTIME,
    STEP,
    SYNC,
    kind_of_call,
    kind_of_category,
    kinds_of,
)
from layerscope.sources.kineto_tracks import KinetoTracks
from layerscope.sources.span_depths import depths
from layerscope.sources.trace_rows import or_none
from layerscope.sources.trace_scan import HAS_RECORD, NONE, Columns, ScannedTrace

_LAYERS = np.array(LAYER_OF_KIND, np.int8)
_OPERATORS = SPAN_LAYERS.index(OPERATORS)
_MOST_SEQUENCE = np.iinfo(np.int32).max
_MOST = np.iinfo(np.int64).max
_ON_GPU = "gpu_"
# What is asked for of spans that are in their order.
_ORDERED = ("time_ns", "name", "args", "external", "correlation", "sequence", "forward")


@dataclass(slots=True)
class KinetoSpans:
    """By track, then start; of two that start together the longer one comes first. The columns are
    those of `Imported`, with times since `baseTimeNanoseconds`.

    `forward`: the framework's number of the thread of a forward operator, -1: not told. `negative`:
    how many had a duration below 0. `step_mark`: how the ranges of steps begin, "": there is none.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    args: np.ndarray
    more: dict[str, np.ndarray]
    forward: np.ndarray
    args_texts: list[str]
    names: list[str]
    negative: int
    step_mark: str

    @property
    def seq(self) -> np.ndarray:
        """The autograd sequence number, -1: none."""
        return self.more["seq"]


def spans_of(
    trace: ScannedTrace, columns: Columns, tracks: KinetoTracks, window_end_ns: int
) -> KinetoSpans:
    """Those of all events that have a duration; `window_end_ns`: when the profile ended, if it is
    told.
    """
    is_negative = columns["duration_ns"] < 0
    columns["duration_ns"][is_negative] = 0
    kind = _kinds_by_category(trace, columns["category"])
    arguments = Arguments(trace.arguments)
    end_ns = columns["time_ns"] + columns["duration_ns"]
    unfinished = _unfinished(columns, kind, arguments)
    end_ns[unfinished] = max(int(end_ns.max(initial=0)), window_end_ns)
    track = _tracks(trace, columns, kind, tracks)
    order = np.lexsort((-end_ns, columns["time_ns"], track))
    for name in list(columns):  # none is in memory twice but one
        values = columns.pop(name)
        if name in _ORDERED:
            columns[name] = values.take(order)
    kind, track, end_ns = kind.take(order), track.take(order), end_ns.take(order)
    forward = or_none(columns["forward"], 0, _MOST)
    correlation = or_none(columns["correlation"], 0, _MOST)
    kind = _kinds(trace, columns, kind, forward, track)
    _name_launches(kind, correlation)
    is_function = kind == FUNCTION
    is_backward = kind == BACKWARD
    args = arguments.numbers(columns["args"], is_function, is_backward)
    unfinished = unfinished.take(order)
    negative = int(np.count_nonzero(is_negative))
    return KinetoSpans(
        start_ns=columns["time_ns"],
        end_ns=end_ns,
        track=track,
        depth=depths(track, columns["time_ns"], end_ns),
        kind=kind,
        name=columns["name"],
        args=args,
        more=_more(columns, kind, forward, correlation, unfinished),
        forward=forward,
        args_texts=arguments.texts,
        names=trace.names,
        negative=negative,
        step_mark=_step_mark(trace.names, columns["name"], kind),
    )


def _kinds_by_category(trace: ScannedTrace, category: np.ndarray) -> np.ndarray:
    """What each span is, as far as its category says it."""
    kinds = list(map(kind_of_category, trace.categories))
    kinds.append(EVENT)  # for -1
    of_code = np.array(kinds, np.uint8)
    found: np.ndarray = of_code[category]
    return found


def _tracks(
    trace: ScannedTrace, columns: Columns, kind: np.ndarray, tracks: KinetoTracks
) -> np.ndarray:
    """Work of GPUs lies on streams, and what is told of streams; all else on threads, functions of
    Python apart.
    """
    of_gpu = [category.startswith(_ON_GPU) for category in trace.categories]
    of_category = np.array([*of_gpu, False], np.bool_)  # the last one is for -1
    is_called_so = of_category[columns["category"]]
    has_device = columns["device"] != NONE
    has_stream = has_device & (columns["stream"] != NONE)
    is_event = kind == EVENT
    is_on_stream = (kind >= KERNEL) & (kind <= MEMSET)
    is_on_stream |= kind == SYNC
    is_on_stream |= is_event & (is_called_so | has_stream)
    found = np.zeros(len(kind), np.int32)
    is_python = kind == PYTHON_CALL
    rows = np.flatnonzero(~(is_on_stream | is_python))
    found[rows] = tracks.threads(columns["pid"][rows], columns["tid"][rows])
    rows = np.flatnonzero(is_python)
    found[rows] = tracks.of_python(columns["pid"][rows], columns["tid"][rows])
    rows = np.flatnonzero(is_on_stream)
    words = [columns[name][rows] for name in ("pid", "tid", "device", "stream")]
    found[rows] = tracks.streams(*words)
    return found


def _unfinished(columns: Columns, kind: np.ndarray, arguments: Arguments) -> np.ndarray:
    """Spans that did not end. Newer builds say so; older ones give them no duration and no number,
    as no other has; before that (2.1, which tells microseconds) they are spans without a
    duration like any other.
    """
    has_record = (columns["flags"] & HAS_RECORD) != 0
    is_operator = (kind == FUNCTION) | (kind == RANGE)
    is_told = arguments.are_unfinished(columns["args"])
    found: np.ndarray = is_operator & is_told
    if (has_record & is_operator).any():
        is_empty = columns["duration_ns"] == 0
        found |= is_operator & ~has_record & is_empty
    return found


def _kinds(
    trace: ScannedTrace,
    columns: Columns,
    kind: np.ndarray,
    forward: np.ndarray,
    track: np.ndarray,
) -> np.ndarray:
    """What each span is, by its name where its category does not say it."""
    found = kind.copy()
    rows = np.flatnonzero((kind == FUNCTION) | (kind == RANGE))
    of_operators = columns["name"][rows]
    is_range = kind[rows] == RANGE
    found[rows] = kinds_of(of_operators, trace.names, is_range, forward[rows], track[rows])
    rows = np.flatnonzero(kind == RUNTIME)
    codes, place = with_places(columns["name"][rows])
    names = [*trace.names, ""]
    kinds = [kind_of_call(names[code]) for code in codes.tolist()]
    found[rows] = np.array(kinds, np.uint8)[place]
    return found


def _name_launches(kind: np.ndarray, correlation: np.ndarray) -> None:
    """Calls that have work are launches, whatever they are called; in place."""
    is_work = (kind >= KERNEL) & (kind <= MEMSET)
    is_call = (kind == RUNTIME) & (correlation > 0)
    calls = np.flatnonzero(is_call)
    has_work = np.isin(correlation[calls], correlation[is_work])
    kind[calls[has_work]] = LAUNCH


def _more(
    columns: Columns,
    kind: np.ndarray,
    forward: np.ndarray,
    correlation: np.ndarray,
    unfinished: np.ndarray,
) -> dict[str, np.ndarray]:
    """Further fields of spans."""
    layer = _LAYERS.take(kind)
    sequence = or_none(columns["sequence"], 0, _MOST_SEQUENCE)
    is_device = (kind >= KERNEL) & (kind <= RUNTIME)
    origin = np.where(is_device & (correlation > 0), correlation, 0)
    is_backward = (kind == BACKWARD) & (forward > 0)
    origin[is_backward] = forward[is_backward]
    return {
        "seq": np.where(layer == _OPERATORS, sequence, -1).astype(np.int32),
        "origin": origin,
        "submitter": _numbers_of_operators(columns, kind, layer == _OPERATORS),
        "unfinished": unfinished,
    }


def _numbers_of_operators(
    columns: Columns, kind: np.ndarray, is_operator: np.ndarray
) -> np.ndarray:
    """A number that work of a GPU and the operator that it names have in common; 0: none.

    In 2023 work had its correlation in the place of the name of its operator: that is no name.
    """
    external = columns["external"]
    found = np.zeros(len(kind), np.int32)
    has_one = (external != NONE) & (external > 0)
    is_work = (kind >= KERNEL) & (kind <= MEMSET)
    is_again = external == columns["correlation"]
    work = np.flatnonzero(is_work & has_one & ~is_again)
    wanted = distinct(external[work])
    if not len(wanted):
        return found
    # Of a range and an operator with the same one, the operator.
    for rows in (np.flatnonzero(is_operator & has_one), work):
        place = np.searchsorted(wanted, external[rows])
        place = np.minimum(place, len(wanted) - 1)
        is_wanted = wanted[place] == external[rows]
        found[rows[is_wanted]] = place[is_wanted] + 1
    return found


def _step_mark(names: list[str], name: np.ndarray, kind: np.ndarray) -> str:
    """How the ranges of steps begin, if there are any."""
    numbered = enumerate(names)
    steps = [code for code, text in numbered if text.startswith(STEP)]
    is_range = kind == RANGE
    is_step = np.isin(name, steps) & is_range
    has_steps = bool(steps) and bool(is_step.any())
    return STEP if has_steps else ""


def framework_threads(
    spans: KinetoSpans, trace: ScannedTrace, arrows: Columns, tracks: KinetoTracks
) -> dict[int, int]:
    """RecordFunction's numbers of threads by track: an arrow comes from the thread that its
    backward function names.
    """
    wanted = "fwdbwd"
    code = trace.categories.index(wanted) if wanted in trace.categories else -1
    rows = np.flatnonzero(arrows["category"] == code)
    is_backward = spans.kind == BACKWARD
    backward = np.flatnonzero(is_backward & (spans.forward > 0))
    if code < 0 or not len(rows) or not len(backward):
        return {}
    track = tracks.threads(arrows["pid"][rows], arrows["tid"][rows])
    is_start = arrows["phase"][rows] == ord("s")
    starts = rows[is_start]
    ends = rows[~is_start]
    ids = arrows["id"][starts]
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    from_track = track[is_start][order]
    end_keys = _moments(track[~is_start], arrows["time_ns"][ends])
    end_ids = arrows["id"][ends].tolist()
    by_key = dict(zip(end_keys, end_ids, strict=True))
    keys = _moments(spans.track[backward], spans.start_ns[backward])
    found: dict[int, int] = {}
    for key, row in zip(keys, backward.tolist(), strict=True):
        arrow = by_key.get(key)
        if arrow is None:
            continue
        place = int(np.searchsorted(ids, arrow))
        if place < len(ids) and ids[place] == arrow:
            number = int(spans.forward[row])
            found.setdefault(int(from_track[place]), number)
    return found


def _moments(track: np.ndarray, at_ns: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of track and time."""
    tracks = track.tolist()
    moments = at_ns.tolist()
    return list(zip(tracks, moments, strict=True))
