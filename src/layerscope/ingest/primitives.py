"""Primitives below the operators: whose they are, which are shares of others, and their rows in the
table.

Used by `epochs`, which knows the spans of a stretch, and by `parts`, which writes the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field, structs

from layerscope.ingest.primitive_shares import Executions, find_primaries
from layerscope.ingest.spans import (
    EXECUTE,
    LAYERS,
    SHARE,
    Columns,
    nullable,
    rows_of,
)
from layerscope.model.distinct import distinct, with_places
from layerscope.model.layers import LINKS, OPERATORS, PRIMITIVES, SPAN_LAYERS
from layerscope.model.schema import TABLES
from layerscope.model.stored_json import decoded
from layerscope.rawfile import layout
from layerscope.recording.arrow_columns import arrow_array, coded_texts, numbers_of, texts_of
from layerscope.recording.writer import to_arrow

if TYPE_CHECKING:
    from layerscope.sources.onednn_problem import OnednnProblem

FORWARD_BACKWARD, OPERATOR_PRIMITIVE, PRIMITIVE_SHARE, SUBMIT_EXECUTE = (
    LINKS.index(kind)
    for kind in ("forward_backward", "operator_primitive", "primitive_share", "submit_execute")
)
_OPERATORS = SPAN_LAYERS.index(OPERATORS)
# What is known of a primitive by its arguments alone.
_TEXTS = (
    "library",
    "primitive_kind",
    "implementation",
    "prop_kind",
    "dtype",
    "formats",
    "attributes",
    "algorithm",
    "problem",
)
_NUMBERS = ("flop", "bytes")
# Problems that are not taken apart again when they occur in another part: half a kilobyte each.
_MOST_KNOWN = 50_000


def link_primitives(
    columns: Columns,
    process_of: np.ndarray,
    with_shares: frozenset[int],
    main_tracks: set[int],
    inside: np.ndarray,
) -> list[Columns]:
    """Links of primitives with their operators and their shares; what is a share becomes one, in
    place.

    A share has the module of the primitive that it is a part of. `process_of`: the process of each
    track. `with_shares`: the processes of which shares are recorded. `main_tracks`: those
    of the first threads of processes. `inside`: the row of the parent of each span.
    """
    kind = columns["kind_code"]
    mine = np.flatnonzero((kind >= EXECUTE) & (kind <= SHARE))
    if not len(mine):
        return []
    executed = mine[columns["kind_code"][mine] == EXECUTE]
    primary = np.full(len(executed), -1, np.int64)
    process = process_of[columns["track"][executed]]
    for number in with_shares.intersection(distinct(process).tolist()):
        rows = np.flatnonzero(process == number)
        found = find_primaries(_executions(columns, executed[rows], main_tracks))
        primary[rows] = np.where(found >= 0, rows[found], -1)
    is_share = primary >= 0
    shares, primaries = executed[is_share], executed[primary[is_share]]
    columns["kind_code"][shares] = SHARE
    columns["module"][shares] = columns["module"][primaries]
    asked = mine[columns["kind_code"][mine] != SHARE]
    operator = enclosing_operators(columns["kind_code"], asked, inside)
    asked, operator = asked[operator >= 0], operator[operator >= 0]
    span = columns["span"]
    return [
        links_of(span[operator], span[asked], OPERATOR_PRIMITIVE),
        links_of(span[primaries], span[shares], PRIMITIVE_SHARE),
    ]


def unsettled(
    columns: Columns, rows: np.ndarray, main_tracks: set[int], since_ns: int
) -> np.ndarray:
    """Those of `rows`, all of one process, that may be shares of an execution that has not ended
    yet.

    What began before `since_ns` has waited for that once, and waits no longer.
    """
    executed = rows[columns["kind_code"][rows] == EXECUTE]
    of = _executions(columns, executed, main_tracks)
    may_be = of.is_bare & (of.track != of.main_track) & (of.start_ns >= since_ns)
    if may_be.any():
        may_be &= find_primaries(of) < 0
    waiting: np.ndarray = executed[may_be]
    return waiting


def links_of(from_span: np.ndarray, to_span: np.ndarray, kind: int) -> Columns:
    """Rows of the table `links`, with a code for their kind."""
    return {
        "from_span": from_span,
        "to_span": to_span,
        "kind_code": np.full(len(from_span), kind, np.int8),
    }


def _executions(columns: Columns, rows: np.ndarray, main_tracks: set[int]) -> Executions:
    track, start_ns = columns["track"][rows], columns["start_ns"][rows]
    main = [one for one in distinct(track).tolist() if one in main_tracks]
    return Executions(
        track=track,
        start_ns=start_ns,
        end_ns=start_ns + columns["dur_ns"][rows],
        name=columns["name_code"][rows],
        is_bare=columns["parent"][rows] < 0,
        main_track=main[0] if main else -1,
    )


def enclosing_operators(kind: np.ndarray, rows: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The row of the innermost operator that encloses each of these rows; -1: none is known."""
    found = np.full(len(rows), -1, np.int64)
    ancestor = inside[rows]
    left = np.flatnonzero(ancestor >= 0)
    while len(left):
        is_operator = LAYERS[kind[ancestor[left]]] == _OPERATORS
        done = left[is_operator]
        found[done] = ancestor[done]
        left = left[~is_operator]
        ancestor[left] = inside[ancestor[left]]
        left = left[ancestor[left] >= 0]
    return found


class PrimitiveRows(Struct):
    """Makes rows of the table `primitives` from spans and the links between them.

    `args`: the texts of arguments by key, as they are in the table `args`; it may grow.
    """

    args: dict[str, int]
    _texts: list[str] = field(default_factory=list)
    _known: dict[int, tuple[OnednnProblem | None, bool | None]] = field(default_factory=dict)

    def table(self, spans: pa.Table, links: pa.Table) -> pa.Table:
        """The rows for those of `spans`, a table of that name, that are primitives."""
        mine = np.flatnonzero(_is(spans["layer"], PRIMITIVES))
        span, track, args = (numbers_of(spans[name])[mine] for name in ("span", "track", "args"))
        is_execution = _is(spans["kind"], "execute")[mine]
        operator = _from_of(links, OPERATOR_PRIMITIVE, span)
        primary = _from_of(links, PRIMITIVE_SHARE, span)
        threads = _threads(span, track, primary)
        columns: dict[str, Any] = {
            "span": span,
            "operator": nullable(operator),
            "share_of": nullable(primary),
            "threads": arrow_array(threads, is_execution),
            **self._described(args, spans["name"], mine),
        }
        return to_arrow(TABLES["primitives"], columns)

    def _described(
        self, args: np.ndarray, names: pa.ChunkedArray, rows: np.ndarray
    ) -> dict[str, Any]:
        """The columns that follow from the arguments, or else from the name; `names`: of all spans,
        of which these are at `rows`.
        """
        keys, row = with_places(args)
        known = [self._problem(key) for key in keys.tolist()]
        texts = {column: [_text(problem, column) for problem, _ in known] for column in _TEXTS}
        texts["library"] = [text or "oneDNN" for text in texts["library"]]
        columns: dict[str, Any] = {}
        for column, values in texts.items():
            place_of = {text: at for at, text in enumerate(dict.fromkeys(filter(None, values)))}
            places = np.array([place_of.get(text or "", -1) for text in values], np.int32)
            place = places[row]
            if column == "primitive_kind":
                _fill_with_names(place, place_of, names, rows)
            columns[column] = coded_texts(place, list(place_of))
        for column in _NUMBERS:
            numbers = [getattr(problem, column) if problem else None for problem, _ in known]
            columns[column] = nullable(
                np.array([-1 if number is None else number for number in numbers], np.int64)[row]
            )
        hits = [hit for _, hit in known]
        is_hit = np.array([bool(hit) for hit in hits], np.bool_)
        is_unknown = np.array([hit is None for hit in hits], np.bool_)
        columns["cache_hit"] = arrow_array(is_hit[row], ~is_unknown[row])
        return columns

    def _problem(self, key: int) -> tuple[OnednnProblem | None, bool | None]:
        if key < 0:
            return None, None
        if key not in self._known:
            if key >= len(self._texts):
                self._texts = list(self.args)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = _problem_of(self._texts[key])
        return self._known[key]


def _text(problem: OnednnProblem | None, column: str) -> str | None:
    """What a problem has in one of `_TEXTS`; None: nothing."""
    return (getattr(problem, column) or None) if problem else None


def _fill_with_names(
    place: np.ndarray, place_of: dict[str, int], names: pa.ChunkedArray, rows: np.ndarray
) -> None:
    """Where there is no text, take the name at that one of `rows`, in place; `place_of` grows."""
    missing = np.flatnonzero(place < 0)
    if not len(missing):
        return
    name, texts = texts_of(names)
    used, of = with_places(name[rows[missing]])
    own = [place_of.setdefault(texts[one], len(place_of)) for one in used.tolist()]
    place[missing] = np.array(own, np.int32)[of]


def _problem_of(text: str) -> tuple[OnednnProblem | None, bool | None]:
    """What the arguments of a primitive say: the problem, and whether the cache of the library had
    it.
    """
    try:
        arguments = decoded(text.encode(), dict[str, Any])
    except ValueError:
        return None, None
    hit = {"hit": True, "miss": False}.get(str(arguments.get("cache")))
    call = arguments.get("call")
    if not isinstance(call, str):
        return None, hit
    from layerscope.sources.onednn_problem import parse

    problem = parse(call)
    if (
        len(call.encode()) == layout.NAME_BYTES
    ):  # the agent has cut it: the last columns are not what they seem
        problem = structs.replace(
            problem, attributes="", algorithm="", problem="", flop=None, bytes=None
        )
    return problem, hit


def _threads(span: np.ndarray, track: np.ndarray, primary: np.ndarray) -> np.ndarray:
    """How many threads took part in each, by the shares among them."""
    threads = np.ones(len(span), np.int32)
    shares = np.flatnonzero(primary >= 0)
    if not len(shares):
        return threads
    tracks = int(track.max()) + 1
    pairs = distinct(primary[shares] * tracks + track[shares])
    owners, count = np.unique(pairs // tracks, return_counts=True)
    row = rows_of(span, owners)
    is_known = row >= 0
    threads[row[is_known]] += count[is_known].astype(np.int32)
    return threads


def _from_of(links: pa.Table, kind: int, to_span: np.ndarray) -> np.ndarray:
    """Where the link of this kind to each of these spans comes from; -1: there is none."""
    of_kind = np.flatnonzero(_is(links["kind"], LINKS[kind]))
    if not len(of_kind):
        return np.full(len(to_span), -1)
    link = rows_of(numbers_of(links["to_span"])[of_kind], to_span)
    or_none = np.append(numbers_of(links["from_span"])[of_kind], -1)
    found: np.ndarray = or_none[link]
    return found


def _is(values: pa.ChunkedArray, text: str) -> np.ndarray:
    """Where a column of names, none of them null, has this one, without looking at each text."""
    found = [np.zeros(0, np.bool_)]
    for chunk in values.chunks:
        names = chunk.dictionary.to_pylist()
        code = names.index(text) if text in names else -1
        found.append(chunk.indices.to_numpy() == code)
    return np.concatenate(found)
