"""The spans among the records of a chunk, as rows of `SPAN`. Used by `decoder`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from layerscope.model.compiled import Compiled, compiled
from layerscope.rawfile import layout
from layerscope.sources.process import SPAN

_SAME_KINDS = np.arange(256, dtype=np.uint8)


class RecordSpans(Struct):
    """`special`: the places of the records that are neither spans nor more about one, with the
    `track` of each.
    """

    spans: np.ndarray
    special: np.ndarray
    track: np.ndarray
    highest_name: int
    is_one_track: bool


def spans_of(records: np.ndarray, track: int, kind_of: np.ndarray | None) -> RecordSpans:
    """The spans among `records`, which begin on `track`; `kind_of`: our number of each kind, where
    the raw file has other ones.
    """
    library = compiled()
    if library is None:
        return _with_numpy(records, track, kind_of)
    kinds = _SAME_KINDS if kind_of is None else kind_of
    return _with_library(library, np.ascontiguousarray(records), track, kinds)


def _with_library(
    library: Compiled, records: np.ndarray, track: int, kinds: np.ndarray
) -> RecordSpans:
    others = np.zeros(1, np.int64)
    room = library.call("spans_among", records, len(records), others)
    specials = int(others[0])
    spans = np.empty(room, SPAN)
    special = np.empty(specials, np.int32)
    track_of = np.empty(specials, np.int32)
    found = np.zeros(4, np.int64)
    library.call(
        "spans", records, len(records), kinds, track, spans, room, special, track_of, found
    )
    _, _, highest_name, is_one_track = found.tolist()
    return RecordSpans(spans, special, track_of, highest_name, bool(is_one_track))


def _with_numpy(records: np.ndarray, track: int, kind_of: np.ndarray | None) -> RecordSpans:
    kinds = records["kind"]
    is_special = kinds >= layout.FIRST_SPECIAL
    track_of = np.full(len(records), track, np.int32)
    for at in np.flatnonzero(kinds == layout.THREAD_BEGIN).tolist():
        track_of[at:] = records["module"][at].astype(np.int32)
    main = np.flatnonzero(~is_special)
    spans = np.zeros(len(main), SPAN)
    for name in ("start", "end", "name", "module", "seq", "depth", "kind", "flags"):
        spans[name] = records[name][main]
    if kind_of is not None:
        spans["kind"] = kind_of[spans["kind"]]
    spans["track"] = track_of[main]
    extras = np.flatnonzero(kinds == layout.EXTRA)
    if len(extras):
        _attach(spans, main, records, extras)
    special = np.flatnonzero(is_special & (kinds != layout.EXTRA))
    tracks = spans["track"]
    return RecordSpans(
        spans,
        special,
        track_of[special],
        int(spans["name"].max(initial=0)),
        bool((tracks == tracks[:1]).all()),
    )


def _attach(spans: np.ndarray, main: np.ndarray, records: np.ndarray, extras: np.ndarray) -> None:
    """Put what the extra records say onto the spans that they follow."""
    owner = np.searchsorted(main, extras) - 1
    what = records["name"][extras]
    for code, column, of_record in (
        (layout.EXTRA_FORWARD_THREAD, "origin", "start"),
        (layout.EXTRA_SUBMITTED, "origin", "start"),
        (layout.EXTRA_SUBMITTED, "submitter", "end"),
        (layout.EXTRA_SUBMITTED, "line", "module"),
        (layout.EXTRA_OPTIMIZER, "optimizer", "start"),
        (layout.EXTRA_LINE, "line", "start"),
        (layout.EXTRA_ARGS, "args", "start"),
        (layout.EXTRA_ELSEWHERE, "track", "start"),
    ):
        chosen = (what == code) & (owner >= 0)
        spans[column][owner[chosen]] = records[of_record][extras[chosen]].astype(np.int64)


def without_twins(spans: np.ndarray, newest: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Drop an open span that has also ended: the program died between the record and the pop.

    `newest`: the last record of every ring, as (track, depth, start); it may have gone with an
    earlier batch.
    """
    left = np.flatnonzero(spans["unfinished"])
    if not len(left):
        return spans
    known = set(newest)
    is_single = np.ones(len(spans), bool)
    for row in left.tolist():
        span = spans[row]
        place = span["track"], span["depth"], span["start"]
        key = tuple(map(int, place))
        is_single[row] = key not in known
    return spans.compress(is_single)
