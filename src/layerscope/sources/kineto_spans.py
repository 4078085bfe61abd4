"""The spans of a trace of Kineto, as columns of `Imported`. Used by `kineto`."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

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
from layerscope.sources.span_depths import depths, ordered, put_in_order
from layerscope.sources.trace_rows import or_none
from layerscope.sources.trace_scan import HAS_RECORD, NONE, Columns, ScannedTrace

_LAYERS = np.array(LAYER_OF_KIND, np.int8)
_OPERATORS = SPAN_LAYERS.index(OPERATORS)
_MOST = np.iinfo(np.int64).max
_ON_GPU = "gpu_"


class KinetoSpans(Struct):
    """By track, then start; of two that start together the longer one comes first. The columns are
    those of `Imported`, with times since `baseTimeNanoseconds`.

    `forward`: the framework's number of the thread of a forward operator, -1: not told. `negative`:
    how many had a duration below 0. `step_mark`: how the ranges of steps begin, "": there is none.
    """

    start_ns: np.ndarray
    dur_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    args: np.ndarray
    more: dict[str, np.ndarray]
    args_texts: list[str]
    names: list[str]
    negative: int
    step_mark: str

    @property
    def seq(self) -> np.ndarray:
        """The autograd sequence number, -1: none."""
        return self.more["seq"]


def spans_of(trace: ScannedTrace, tracks: KinetoTracks, window_end_ns: int) -> KinetoSpans:
    """Those of all events that have a duration, which are taken out of `trace`. `window_end_ns`:
    when the profile ended, if it is told.
    """
    columns, places = trace.spans.columns, trace.spans.places
    trace.spans.columns = {}
    arguments = Arguments(trace.arguments)
    kind_of = _kinds_by_category(trace, places["category"])
    track_of = _tracks(trace, places, kind_of, tracks)
    is_negative = columns["duration_ns"] < 0
    negative = int(np.count_nonzero(is_negative))
    columns["duration_ns"][is_negative] = 0
    unfinished = _unfinished(columns, places, kind_of, arguments)
    _end_at_last(columns, unfinished, window_end_ns)
    order = ordered(track_of.take(columns["place"]), columns)
    columns["is_open"] = np.zeros(len(order), np.bool_)
    columns["is_open"][unfinished] = True
    put_in_order(columns, order)
    del order
    is_open = columns.pop("is_open")
    place = columns.pop("place")
    kind, track = kind_of.take(place), track_of.take(place)
    forward = or_none(places["forward"], 0, _MOST)
    _find_kinds(trace, columns["name"], kind, forward, place, track)
    _name_launches(kind, columns["correlation"])
    args = arguments.numbers(columns.pop("args"), kind == FUNCTION, kind == BACKWARD)
    start_ns, dur_ns = columns["time_ns"], columns["duration_ns"]
    return KinetoSpans(
        start_ns=start_ns,
        dur_ns=dur_ns,
        track=track,
        depth=depths(track, start_ns, start_ns + dur_ns),
        kind=kind,
        name=columns["name"],
        args=args,
        more=_more(trace, columns, kind, forward, place, is_open),
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
    trace: ScannedTrace, places: np.ndarray, kind: np.ndarray, tracks: KinetoTracks
) -> np.ndarray:
    """Work of GPUs lies on streams, and what is told of streams; all else on threads, functions of
    Python apart. `kind`: of each place.
    """
    of_gpu = [category.startswith(_ON_GPU) for category in trace.categories]
    of_category = np.array([*of_gpu, False], np.bool_)  # the last one is for -1
    is_called_so = of_category[places["category"]]
    has_device = places["device"] != NONE
    has_stream = has_device & (places["stream"] != NONE)
    is_event = kind == EVENT
    is_on_stream = (kind >= KERNEL) & (kind <= MEMSET)
    is_on_stream |= kind == SYNC
    is_on_stream |= is_event & (is_called_so | has_stream)
    found = np.zeros(len(kind), np.int32)
    is_python = kind == PYTHON_CALL
    rows = np.flatnonzero(~(is_on_stream | is_python))
    found[rows] = tracks.threads(places["pid"][rows], places["tid"][rows])
    rows = np.flatnonzero(is_python)
    found[rows] = tracks.of_python(places["pid"][rows], places["tid"][rows])
    rows = np.flatnonzero(is_on_stream)
    words = [places[name][rows] for name in ("pid", "tid", "device", "stream")]
    found[rows] = tracks.streams(*words)
    return found


def _unfinished(
    columns: Columns, places: np.ndarray, kind: np.ndarray, arguments: Arguments
) -> np.ndarray:
    """The rows of spans that did not end. Newer builds say so; older ones give them no duration and
    no number, as no other has; before that (2.1, which tells microseconds) they are spans
    without a duration like any other. `kind`: of each place.
    """
    has_record = (places["flags"] & HAS_RECORD) != 0
    may_be_open = (kind == FUNCTION) | (kind == RANGE)
    is_operator = may_be_open.take(columns["place"])
    is_told = arguments.are_unfinished(columns["args"])
    found: np.ndarray = is_operator & is_told
    if (has_record & may_be_open).any():
        is_without = (may_be_open & ~has_record).take(columns["place"])
        is_empty = columns["duration_ns"] == 0
        found |= is_without & is_empty
    return np.flatnonzero(found)


def _end_at_last(columns: Columns, unfinished: np.ndarray, window_end_ns: int) -> None:
    """Spans that did not end last to the end of the trace; in place."""
    if not len(unfinished):
        return
    ends_ns = columns["time_ns"] + columns["duration_ns"]
    last_ns = max(int(ends_ns.max(initial=0)), window_end_ns)
    columns["duration_ns"][unfinished] = last_ns - columns["time_ns"][unfinished]


def _find_kinds(
    trace: ScannedTrace,
    name: np.ndarray,
    kind: np.ndarray,
    forward_of: np.ndarray,
    place: np.ndarray,
    track: np.ndarray,
) -> None:
    """What each span is, by its name where its category does not say it; in place. `forward_of`: of
    each place.
    """
    rows = np.flatnonzero((kind == FUNCTION) | (kind == RANGE))
    is_range = kind.take(rows) == RANGE
    forward = forward_of.take(place.take(rows))
    kind[rows] = kinds_of(name.take(rows), trace.names, is_range, forward, track.take(rows))
    rows = np.flatnonzero(kind == RUNTIME)
    codes, at = with_places(name.take(rows))
    names = [*trace.names, ""]
    kinds = [kind_of_call(names[code]) for code in codes.tolist()]
    kind[rows] = np.array(kinds, np.uint8)[at]


def _name_launches(kind: np.ndarray, correlation: np.ndarray) -> None:
    """Calls that have work are launches, whatever they are called; in place."""
    is_work = (kind >= KERNEL) & (kind <= MEMSET)
    is_call = (kind == RUNTIME) & (correlation != 0)
    calls = np.flatnonzero(is_call)
    has_work = np.isin(correlation[calls], correlation[is_work])
    kind[calls[has_work]] = LAUNCH


def _more(
    trace: ScannedTrace,
    columns: Columns,
    kind: np.ndarray,
    forward_of: np.ndarray,
    place: np.ndarray,
    is_open: np.ndarray,
) -> dict[str, np.ndarray]:
    """Further fields of spans. `forward_of`: of each place."""
    external, correlation = columns.pop("external"), columns.pop("correlation")
    is_operator = _LAYERS.take(kind) == _OPERATORS
    submitter = _numbers_of_operators(external, correlation, kind, is_operator)
    del external
    is_device = (kind >= KERNEL) & (kind <= RUNTIME)
    correlation[~is_device] = 0
    origin = trace.spans.whole(correlation)
    backward = np.flatnonzero(kind == BACKWARD)
    if len(backward):
        origin = origin.astype(np.int64)
        origin[backward] = np.maximum(forward_of.take(place.take(backward)), 0)
    sequence = columns.pop("sequence")
    sequence[~is_operator] = -1
    return {"seq": sequence, "origin": origin, "submitter": submitter, "unfinished": is_open}


def _numbers_of_operators(
    external: np.ndarray, correlation: np.ndarray, kind: np.ndarray, is_operator: np.ndarray
) -> np.ndarray:
    """A number that work of a GPU and the operator that it names have in common; 0: none.

    In 2023 work had its correlation in the place of the name of its operator: that is no name.
    """
    found = np.zeros(len(kind), np.int32)
    has_one = external != 0
    is_work = (kind >= KERNEL) & (kind <= MEMSET)
    is_again = external == correlation
    work = np.flatnonzero(is_work & has_one & ~is_again)
    wanted = distinct(external[work])
    if not len(wanted):
        return found
    # Of a range and an operator with the same one, the operator.
    for rows in (np.flatnonzero(is_operator & has_one), work):
        numbers = external.take(rows)
        at = np.searchsorted(wanted, numbers)
        at = np.minimum(at, len(wanted) - 1)
        is_wanted = wanted.take(at) == numbers
        found[rows[is_wanted]] = at[is_wanted] + 1
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
    forward = spans.more["origin"]
    backward = np.flatnonzero(is_backward & (forward > 0))
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
            number = int(forward[row])
            found.setdefault(int(from_track[place]), number)
    return found


def _moments(track: np.ndarray, at_ns: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of track and time."""
    tracks = track.tolist()
    moments = at_ns.tolist()
    return list(zip(tracks, moments, strict=True))
