"""What a trace holds beside its spans: flows between spans, counters, marks, losses, arguments and
module paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from layerscope.analyse.memory.counters import MemoryReadings, memory_counters
from layerscope.model.distinct import distinct
from layerscope.model.layers import CUMULATIVE, SYSTEM_COUNTERS
from layerscope.show.exports.trace_columns import rows_of

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader
    from layerscope.show.exports.trace_columns import Columns, TraceColumns

Arguments = dict[str, int | str | None]

# Keys of a piece may be this many times sparser than the piece is long before they are looked up by
# sorting.
_SPARSE = 16
# The kind of link that is seen without an arrow.
_NESTED = "operator_primitive"
# What is known of a primitive, by the arguments of its span: a few for each problem.
_PRIMITIVES = """
    SELECT args, any_value(implementation) AS implementation, any_value(problem) AS problem,
      any_value(dtype) AS dtype,
           any_value(formats) AS formats, any_value(prop_kind) AS prop_kind, any_value(algorithm)
             AS algorithm,
           any_value(attributes) AS attributes, any_value(flop) AS flop, any_value(bytes) AS bytes
    FROM primitives JOIN spans USING (span) WHERE args IS NOT NULL GROUP BY args"""
# Points of a counter of memory: a program may allocate a million times a second.
_MOST_POINTS = 200_000
# Rows whose keys are looked at together: what is computed from them stays in the cache.
_AT_ONCE = 1 << 15


class FlowEnds(NamedTuple):
    """One end of the flows that touch a piece: rows of the piece in order, the number and the kind
    of the flow.
    """

    row: np.ndarray
    flow: np.ndarray
    kind: np.ndarray

    def within(self, rows: slice) -> FlowEnds:
        """The ends in some rows of the piece, counted from the first of these."""
        first, behind = np.searchsorted(self.row, (rows.start, rows.stop))
        part = slice(first, behind)
        row = self.row[part] - rows.start
        return FlowEnds(row, self.flow[part], self.kind[part])


class Flows(Struct, frozen=True):
    """Pairs of spans that belong together, numbered from 0. `kinds` are their names."""

    cause: np.ndarray
    effect: np.ndarray
    kind: np.ndarray
    kinds: list[str]

    @classmethod
    def of(cls, trace: TraceColumns) -> Flows:
        """The links whose two spans are both wanted. A primitive lies within its operator: that
        needs no arrow.
        """
        wanted = trace.window.steps
        if wanted is None:
            links = trace.reader.arrays("links", ["from_span", "to_span", "kind"])
            drawn = (
                links["kind"] != np.append(np.flatnonzero(links["kind.names"] == _NESTED), -1)[0]
            )
            cause, effect, kind = (links[name][drawn] for name in ("from_span", "to_span", "kind"))
            return cls(cause, effect, kind, [str(k) for k in links["kind.names"]])
        chosen = trace.reader.query(
            "SELECT from_span, to_span, links.kind AS kind FROM links JOIN spans cause ON "
            "cause.span = from_span JOIN spans effect ON effect.span = to_span WHERE cause.step >= "
            "? AND cause.step < ? AND effect.step >= ? AND effect.step < ? AND links.kind <> ?",
            [*[wanted.start, wanted.stop] * 2, _NESTED],
        )
        kind = chosen["kind"].combine_chunks().dictionary_encode()
        return cls(
            chosen["from_span"].to_numpy(),
            chosen["to_span"].to_numpy(),
            kind.indices.to_numpy(zero_copy_only=False),
            kind.dictionary.to_pylist(),
        )

    def ends_in(self, span: np.ndarray) -> tuple[FlowEnds, FlowEnds]:
        """Where the flows begin and end among the spans of a piece, given by their keys."""
        if not len(self.kind):
            none = np.zeros(0, np.intp)
            return FlowEnds(none, none, none), FlowEnds(none, none, none)
        low, high = int(span.min()), int(span.max())
        where = _row_by_key(span, low, high)
        begins = self._ends(self.cause, where, span, low, high)
        finishes = self._ends(self.effect, where, span, low, high)
        return begins, finishes

    def _ends(
        self, keys: np.ndarray, where: np.ndarray | None, span: np.ndarray, low: int, high: int
    ) -> FlowEnds:
        flow = np.flatnonzero((keys >= low) & (keys <= high))
        wanted = keys[flow]
        if where is not None:
            row = where[wanted - low]
        else:
            order = np.argsort(span)
            place = np.searchsorted(span, wanted, sorter=order)
            row = order[np.minimum(place, len(span) - 1)]
            row = np.where(span[row] == wanted, row, -1)
        is_here = row >= 0
        flow, row = flow[is_here], row[is_here]
        order = np.argsort(row, kind="stable")
        flow = flow[order]
        return FlowEnds(row[order], flow, self.kind[flow])


def _row_by_key(span: np.ndarray, low: int, high: int) -> np.ndarray | None:
    """The row of every key from `low` to `high`, -1 where there is none; None: the keys are too
    sparse for that.
    """
    if high - low > _SPARSE * len(span):
        return None
    where = np.full(high - low + 1, -1, np.int32)
    for first in range(0, len(span), _AT_ONCE):
        some = span[first : first + _AT_ONCE]
        where[some - low] = np.arange(first, first + len(some), dtype=np.int32)
    return where


class ArgumentTexts(Struct, frozen=True):
    """Texts by their key in the recording; the place of a key is where its text lies in `texts`.

    `numbered`: the keys are the places, as they are in what we recorded ourselves.
    """

    keys: np.ndarray
    texts: list[str]
    numbered: bool

    @classmethod
    def of(cls, keys: np.ndarray, texts: list[str]) -> ArgumentTexts:
        """The texts of `keys`, which are in any order."""
        order = np.argsort(keys)
        in_order = keys[order]
        places = np.arange(len(keys))
        is_numbered = bool((in_order == places).all())
        return cls(in_order, [texts[place] for place in order.tolist()], is_numbered)

    def places(self, keys: np.ndarray) -> np.ndarray:
        """The places of `keys`, -1 for null and for a key without a text."""
        if not len(self.keys):
            return np.broadcast_to(np.int32(-1), len(keys))
        if self.numbered:
            return (
                keys
                if keys.max(initial=-1) < len(self.keys)
                else np.where(keys < len(self.keys), keys, -1)
            )
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[found] == keys, found, -1).astype(np.int32)


def arguments(reader: Reader) -> ArgumentTexts:
    """The arguments of spans and marks: each a JSON value, a text where what was recorded is none.

    Those of primitives have what their call says beside it.
    """
    columns = reader.arrays("args", ["args", "json"])
    known = (
        {row.pop("args"): row for row in reader.query(_PRIMITIVES).to_pylist()}
        if reader.has("primitives")
        else {}
    )
    pairs = zip(columns["args"].tolist(), columns["json"].tolist(), strict=True)
    return ArgumentTexts.of(
        columns["args"], [_valid_json(text, known.get(key)) for key, text in pairs]
    )


def _valid_json(text: str, more: dict[str, Any] | None = None) -> str:
    """`text` as JSON, with what there is in `more` if it is an object."""
    try:
        value = msgspec.json.decode(text)
        if more and isinstance(value, dict):
            value |= {
                name: one for name, one in more.items() if one is not None and name not in value
            }
        return msgspec.json.encode(value).decode()
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(text).decode()


def modules(reader: Reader) -> ArgumentTexts:
    """The paths of the modules."""
    columns = reader.arrays("modules", ["module", "path"])
    return ArgumentTexts.of(columns["module"], columns["path"].tolist())


def counters(trace: TraceColumns) -> Columns:
    """The readings of the counters: `pid`, at_ns, name (a code into name.names), value.

    Of those of the system that only grow, which would be slopes, how fast they did: CPUs as percent
    of one that is always busy, the others a second; none of those that never did. Beside them how
    much memory is live.
    """
    recorded = trace.reader.arrays("counters", ["track", "at_ns", "name", "value"])
    columns = _as_rates(recorded, trace.reader)
    tracks = columns["track"]
    columns["pid"] = np.zeros(len(tracks), np.int64)
    kept = np.ones(len(tracks), bool)
    for track in distinct(tracks).tolist():
        rows = tracks == track
        process = trace.process_of(track)
        columns["pid"][rows] = trace.pid(process)
        window = trace.window
        if window.steps is not None:
            first_ns, end_ns = window.process_ns.get(process, (0, 0))
            at_ns = columns["at_ns"][rows]
            is_within = (at_ns >= first_ns) & (at_ns < end_ns)
            kept[rows] = is_within
    found = {}
    for name, values in columns.items():
        if not name.endswith(".names"):
            values = values[kept]
        found[name] = values
    return _with_memory(found, trace)


def _with_memory(columns: Columns, trace: TraceColumns) -> Columns:
    """`columns` with the counters of memory in the wanted time."""
    found = []
    for counter in memory_counters(trace.reader):
        first_ns, end_ns = trace.wanted_ns(counter.process)
        within = counter.between(first_ns, end_ns)
        found.append(within.thinned(_MOST_POINTS))
    read = MemoryReadings.of(found)
    names = columns["name.names"].tolist()
    pids = [trace.pid(counter.process) for counter in found]
    added = {
        "pid": np.array(pids, np.int64)[read.counter],
        "at_ns": read.at_ns,
        "name": read.counter + len(names),
        "value": read.value,
    }
    joined = {name: np.append(columns[name], values) for name, values in added.items()}
    names += [counter.name for counter in found]
    return {**joined, "name.names": np.array(names, object)}


def _is_cumulative(columns: Columns, reader: Reader) -> np.ndarray:
    """Which readings are of a counter of the system that only grows."""
    tracks = reader.arrays("tracks", ["track", "name"])
    of_system = np.isin(tracks["name"], SYSTEM_COUNTERS)
    names = columns["name.names"].tolist()
    cumulative = [code for code, name in enumerate(names) if name in CUMULATIVE]
    on_track = np.isin(columns["track"], tracks["track"][of_system])
    return on_track & np.isin(columns["name"], cumulative)


def _as_rates(columns: Columns, reader: Reader) -> Columns:
    """Every reading but the last of a counter that only grows becomes its growth a second until the
    next one.
    """
    names = columns["name.names"].tolist()
    grows = _is_cumulative(columns, reader)
    rows = np.flatnonzero(grows)
    keys = (columns["at_ns"][rows], columns["name"][rows], columns["track"][rows])
    order = rows[np.lexsort(keys)]
    track, name, at_ns, value = (columns[key][order] for key in ("track", "name", "at_ns", "value"))
    passed_ns = np.diff(at_ns)
    is_same_counter = (np.diff(track) == 0) & (np.diff(name) == 0)
    first = np.flatnonzero(is_same_counter & (passed_ns > 0))
    per_s = np.diff(value)[first] * (1e9 / passed_ns[first])
    is_time = np.array([text.endswith("_ns") for text in names], np.bool_)
    # 1e9 ns a second are 100 %.
    rate = np.where(is_time[name[first]], per_s / 1e7, per_s)
    rate = np.rint(rate).astype(np.int64)
    as_rate = [
        f"{text[:-3]}_percent" if text.endswith("_ns") else f"{text}_per_s" for text in names
    ]
    series = track[first].astype(np.int64) * len(names) + name[first]
    grew = np.isin(series, series[rate != 0])
    first, rate = first[grew], rate[grew]
    added = {
        "track": track[first],
        "at_ns": at_ns[first],
        "name": name[first] + len(names),
        "value": rate,
    }
    found = {key: np.append(columns[key][~grows], values) for key, values in added.items()}
    return {**found, "name.names": np.array([*names, *as_rate], object)}


class Moment(Struct, frozen=True):
    """A mark of the program, or a loss. `thread` is a place in the trace's threads; None: the
    process as a whole.
    """

    pid: int
    thread: int | None
    at_ns: int
    category: str
    name: str
    arguments: Arguments


def moments(trace: TraceColumns, texts: ArgumentTexts) -> list[Moment]:
    """The marks, and where records were lost. `texts`: the arguments."""
    return [*_marks(trace, texts), *_gaps(trace)]


def _marks(trace: TraceColumns, texts: ArgumentTexts) -> Iterator[Moment]:
    for row in rows_of(trace.reader, "marks", "at_ns"):
        process = trace.process_of(row["track"])
        at_ns = row["at_ns"]
        if not trace.window.holds(process, at_ns):
            continue
        key = -1 if row["args"] is None else row["args"]
        place = int(texts.places(np.array([key]))[0])
        arguments: Arguments = {}
        if place >= 0:
            arguments["args"] = texts.texts[place]
        category = f"marks,{row['kind']}"
        thread = trace.thread_of(row["track"])
        yield Moment(trace.pid(process), thread, at_ns, category, row["name"], arguments)


def _gaps(trace: TraceColumns) -> Iterator[Moment]:
    for row in rows_of(trace.reader, "gaps", "start_ns"):
        track, process = row["track"], row["process"]
        if process is None:
            process = trace.process_of(track) if track is not None else min(trace.processes)
        start_ns, lost = row["start_ns"], row["lost"]
        if not trace.window.holds(process, start_ns):
            continue
        number = "an unknown number of" if lost is None else f"{lost:,}"
        noun = "record" if lost == 1 else "records"
        arguments: Arguments = {
            "reason": row["reason"],
            "lost": lost,
            "lasted_ns": row["end_ns"] - start_ns,
        }
        thread = trace.thread_of(track) if track is not None else None
        name = f"{number} {noun} lost"
        yield Moment(trace.pid(process), thread, start_ns, "gaps", name, arguments)
