"""Chrome JSON as MXNet's own profiler writes it, whole or a fragment: operators, calls of the C
interface, tasks, frames, events, counters and markers.

`tid` is a hash of 64 bits, not a thread id. `pid` is the device of an operator, and of everything
else a hash of its category. Times are whole microseconds of CLOCK_REALTIME. An operator is written
twice, by device (B, E) and by thread (b, e): one of both is kept. Names end after 127 bytes. Events
are in the order of the profiler's queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec import Struct

from layerscope.model.layers import KINDS
from layerscope.sources.chrome_events import ChromeEvents, read_events
from layerscope.sources.event_pairs import ASYNC, FRAME, SYNC, EventPairs, pairs_of, twins
from layerscope.sources.imported import (
    Imported,
    ImportedMoments,
    ImportedProcess,
    ImportedTrack,
)
from layerscope.sources.mxnet_trace_problems import Contents, problems_of
from layerscope.sources.span_depths import depths
from layerscope.sources.text_chunks import unpacked

MEANING = "a trace of MXNet's profiler (Chrome JSON)"
FUNCTION, CALL, TASK = (KINDS.index(kind) for kind in ("function", "call", "task"))
_KIND_OF_PAIR = {SYNC: KINDS.index("event"), ASYNC: TASK, FRAME: KINDS.index("frame")}
OPERATOR, CUSTOM, API = "operator", "Custom Operator", "MXNET_C_API"
STORAGE = "Device Storage"
_OPERATORS = (OPERATOR, CUSTOM)
# The category of a task is its domain; these say what else it is.
_EVENT, _FRAME_ENDING, _MARKER_ENDING = "event", ",frame", ",instant_marker"
_COUNTER, _MARKER = ord("C"), ord("n")
# What spans of these kinds lie in when all of them start and end together, from the outside in.
_ORDER_OF_KINDS = {CALL: 0, FUNCTION: 2}
_RANGE_ORDER = 1
_MEMORY = re.compile(r"Memory: ([a-z]+(?: [a-z]+)?)/([0-9]*)")
# How the recorder calls the domain of the memory that MXNet's storage holds.
_DOMAIN = "MXNet"
# Devices by number, as the file begins; an event in the profiler's order of fields, with a hash as
# its thread; or the process that the category of all operators or calls is.
_RECOGNISED = re.compile(
    rb'"traceEvents":\s*\[\s*\{\s*"ph":\s*"M",\s*"args":\s*\{\s*"name":\s*"cpu/0|'
    rb'"name":\s*"[^\n"]*",\s*"cat":\s*"[^\n"]*",\s*"ph":\s*"[BEbenC()]",\s*"ts":\s*[0-9]+,\s*'
    rb'(?:"id":\s*[0-9]+,\s*|"args":\s*\{[^{}\n]*\},\s*|"s":\s*"[a-z]",\s*)?'
    rb'"pid":\s*[0-9]+,\s*"tid":\s*[0-9]{15,20}\s*\}|'
    rb'"pid":\s*(?:849786139768988538|3060606181218273969)\b'
)
# What the profiler writes when it has no event.
_EMPTY = re.compile(rb'\{\n    "traceEvents": \[\s*\],\n    "displayTimeUnit": "ms"\n\}\s*')


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is such a trace, or a fragment of one."""
    text = unpacked(head)
    return bool(_RECOGNISED.search(text) or _EMPTY.fullmatch(text))


def read(path: Path) -> Imported:
    """What is in the trace `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    events = read_events(path)
    columns = _present(events)
    tids, columns["tid"] = np.unique(columns["tid"], return_inverse=True)
    pairs = pairs_of(columns, is_damaged=events.rejected > 0)
    labels = _Labels(events)
    spans = _spans(columns, pairs, labels)
    moments = _moments(columns, labels)
    about = Contents(
        operators=int(np.count_nonzero(spans.kind == FUNCTION)),
        bulks=int(np.count_nonzero(spans.name == labels.names.get("ImperativeBulk", -1))),
        clock_steps=spans.clock_steps,
        moments=len(moments.at_ns),
    )
    first_ns = int(columns["at_ns"].min()) if len(columns["at_ns"]) else 0
    moments.at_ns -= first_ns
    return Imported(
        start_ns=spans.start_ns - first_ns,
        dur_ns=spans.end_ns - spans.start_ns,
        track=spans.track,
        depth=spans.depth,
        kind=spans.kind,
        name=spans.name,
        args=spans.args,
        names=list(labels.names),
        args_texts=list(labels.args),
        tracks=[ImportedTrack(0, f"thread {events.tids[tid]}") for tid in tids.tolist()],
        processes=[ImportedProcess()],
        moments=moments,
        realtime_ns=first_ns if len(columns["at_ns"]) else None,
        problems=problems_of(events, columns, pairs, about),
    )


def _present(events: ChromeEvents) -> dict[str, np.ndarray]:
    """The columns, with the number of the last text for what is not told."""
    columns = dict(events.columns)
    last = {
        "name": len(events.names),
        "category": len(events.categories),
        "pid": len(events.pids),
        "tid": len(events.tids),
    }
    for name, count in last.items():
        columns[name] = np.where(columns[name] < 0, count - 1, columns[name])
    return columns


class _Spans(Struct, frozen=True):
    """Columns by thread, then start, as `Imported` has them, with times of CLOCK_REALTIME.

    `clock_steps`: how many end before they begin.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    args: np.ndarray
    clock_steps: int


class _Labels:
    """The texts that spans, counters and marks get, each once."""

    def __init__(self, events: ChromeEvents) -> None:
        self.names: dict[str, int] = {}
        self.args: dict[str, int] = {}
        self._events = events
        self._names = list(events.names)
        self._categories = list(events.categories)
        self._pids = list(events.pids)

    def has_category(self, numbers: np.ndarray, *wanted: str) -> np.ndarray:
        """Whether these numbers of categories are of one of the wanted ones."""
        is_wanted = np.array([category in wanted for category in self._categories], np.bool_)
        found: np.ndarray = is_wanted[numbers]
        return found

    def name(self, text: str, domain: str = "") -> int:
        """The number of a name; that of what has a domain has it in a second line."""
        one_line = text.replace("\n", " ")
        whole = f"{one_line}\n{domain}" if domain else one_line
        return self.names.setdefault(whole, len(self.names))

    def of_span(self, name: int, category: int, kind: int) -> int:
        """The number of the name of a span of this kind."""
        text = self._names[name]
        domain = self._categories[category]
        if kind in (FUNCTION, CALL) or domain == _EVENT:
            return self.name(text)
        return self.name(text, domain.removesuffix(_FRAME_ENDING))

    def of_operator(self, category: int, pid: int, kind: int) -> int:
        """The number of the arguments of an operator: its device, where it was written by device,
        and whether it is of a custom one. -1: none.
        """
        about: dict[str, str | int] = {}
        category_name = self._categories[category]
        if kind == SYNC:
            number = self._pids[pid]
            device = self._events.process_names.get(number)
            about = {"device": device} if device is not None else {"device_number": number}
        if category_name == CUSTOM:
            about["category"] = category_name
        if not about:
            return -1
        text = json.dumps(about, ensure_ascii=False)
        return self.args.setdefault(text, len(self.args))

    def of_counter(self, name: int, category: int) -> int:
        """The number of the name of a counter; the memory of a device is called as when layerscope
        records it.
        """
        text, domain = self._names[name], self._categories[category]
        memory = _MEMORY.fullmatch(text) if domain == STORAGE else None
        if memory is None:
            return self.name(text, domain)
        device = memory[1].replace(" ", "_")
        return self.name(f"memory_bytes of {device}({memory[2] or 0})", _DOMAIN)

    def of_mark(self, name: int, category: int) -> int:
        """The number of the name of a marker."""
        domain = self._categories[category].removesuffix(_MARKER_ENDING)
        return self.name(self._names[name], domain)


def _spans(events: dict[str, np.ndarray], pairs: EventPairs, labels: _Labels) -> _Spans:
    """The pairs as spans, each operator once."""
    begin = pairs.begin
    category = events["category"][begin]
    start_ns = events["at_ns"][begin]
    end_ns = events["at_ns"][pairs.end]
    clock_steps = int(np.count_nonzero(end_ns < start_ns))
    end_ns = np.maximum(end_ns, start_ns)
    is_operator = labels.has_category(category, *_OPERATORS)
    kept = ~_is_twin(events, pairs, is_operator, start_ns, end_ns)
    kind = _kinds(pairs.kind, labels.has_category(category, API), is_operator)
    rows = begin[kept]
    columns = {name: events[name][rows] for name in ("name", "category", "pid", "tid")}
    start_ns, end_ns, kind = start_ns[kept], end_ns[kept], kind[kept]
    of_pair = pairs.kind[kept]
    place = np.full(len(KINDS), _RANGE_ORDER)
    for number, of_kind in _ORDER_OF_KINDS.items():
        place[number] = of_kind
    # What ends first is written first.
    order = np.lexsort((-rows, place[kind], -end_ns, start_ns, columns["tid"]))
    columns = {name: values[order] for name, values in columns.items()}
    start_ns, end_ns, kind, of_pair = (
        values[order] for values in (start_ns, end_ns, kind, of_pair)
    )
    return _Spans(
        start_ns=start_ns,
        end_ns=end_ns,
        track=columns["tid"],
        depth=depths(columns["tid"], start_ns, end_ns),
        kind=kind.astype(np.uint8),
        name=_by_distinct(labels.of_span, columns["name"], columns["category"], kind),
        args=_arguments(columns, of_pair, kind, labels),
        clock_steps=clock_steps,
    )


def _kinds(of_pair: np.ndarray, is_call: np.ndarray, is_operator: np.ndarray) -> np.ndarray:
    """What each span is, an index into KINDS."""
    kind_of = np.zeros(len(_KIND_OF_PAIR), np.int64)
    for pair, span_kind in _KIND_OF_PAIR.items():
        kind_of[pair] = span_kind
    kind = np.where(is_call, CALL, kind_of[of_pair])
    return np.where(is_operator, FUNCTION, kind)


def _is_twin(
    events: dict[str, np.ndarray],
    pairs: EventPairs,
    is_operator: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> np.ndarray:
    """Whether each pair is an operator that was written by device too."""
    rows = np.flatnonzero(is_operator & (pairs.kind != FRAME))
    begin = pairs.begin[rows]
    keys = np.column_stack([events[name][begin] for name in ("tid", "category", "name")])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    twin = twins(group.ravel(), start_ns[rows], end_ns[rows], pairs.kind[rows] == SYNC)
    found = np.zeros(len(pairs.begin), np.bool_)
    found[rows[twin >= 0]] = True
    return found


def _arguments(
    columns: dict[str, np.ndarray], of_pair: np.ndarray, kind: np.ndarray, labels: _Labels
) -> np.ndarray:
    """The numbers of the arguments of operators; -1 of all others."""
    found = np.full(len(kind), -1, np.int32)
    rows = np.flatnonzero(kind == FUNCTION)
    category = columns["category"][rows]
    pid = columns["pid"][rows]
    found[rows] = _by_distinct(labels.of_operator, category, pid, of_pair[rows])
    return found


def _moments(events: dict[str, np.ndarray], labels: _Labels) -> ImportedMoments:
    """The values of counters, and the markers."""
    is_counter = (events["phase"] == _COUNTER) & events["has_value"]
    is_mark = events["phase"] == _MARKER
    rows = np.flatnonzero(is_counter | is_mark)
    name, category = events["name"][rows], events["category"][rows]
    marks = is_mark[rows]
    number = np.zeros(len(rows), np.int32)
    number[marks] = _by_distinct(labels.of_mark, name[marks], category[marks])
    number[~marks] = _by_distinct(labels.of_counter, name[~marks], category[~marks])
    return ImportedMoments(
        at_ns=events["at_ns"][rows],
        track=events["tid"][rows],
        name=number,
        value=events["value"][rows],
        is_mark=marks,
    )


def _by_distinct(number_of: Callable[..., int], *columns: np.ndarray) -> np.ndarray:
    """What `number_of` says of each row, asked once for the rows that are alike."""
    key = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        most = int(values.max(initial=0))
        key = key * (most + 1) + values
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    alike = [values[first].tolist() for values in columns]
    numbers = list(map(number_of, *alike))
    found: np.ndarray = np.array(numbers, np.int32)[row]
    return found
