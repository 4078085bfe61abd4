"""Trace events as JSON, for Perfetto, chrome://tracing and readers of frameworks' traces.

Times are microseconds with three decimals after `baseTimeNanoseconds` (CLOCK_REALTIME), as Kineto
writes them, so that traces of several tools can be laid on one axis. Texts are built column by
column with Arrow.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict

from layerscope.analyse.losses import problems
from layerscope.show.exports import Exported
from layerscope.show.exports.trace_columns import Columns, TraceColumns
from layerscope.show.exports.trace_moments import (
    FlowEnds,
    Flows,
    arguments,
    counters,
    modules,
    moments,
)

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

SUFFIXES = (".json", ".json.gz")
OPEN = "open it in https://ui.perfetto.dev or chrome://tracing (the file stays on your machine)"

# Rows whose texts are built at once: 15 MB.
_ROWS = 1 << 16
_PHASE_COLUMNS = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
_COLUMNS = (
    "start_ns",
    "dur_ns",
    "self_ns",
    "layer",
    "kind",
    "name",
    "module",
    "step",
    "phase",
    "correlation",
    "sequence",
    "args",
    "line",
    "weight",
    "unfinished",
)


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write the recording as one JSON object."""
    trace = TraceColumns(reader, steps)
    writer = _JsonWriter(trace, stream)
    stream.write(_head(trace))
    writer.processes()
    writer.spans()
    writer.steps()
    writer.counters()
    writer.moments()
    writer.threads()
    stream.write(b"\n]}\n")
    return Exported(trace.spans, trace.crossing, trace.notes)


def _head(trace: TraceColumns) -> bytes:
    """Everything before the events."""
    info = trace.reader.run.info
    about = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "otherData": {
            "layerscope": info.layerscope,
            "run_id": info.run_id,
            "command": info.command,
            "state": info.state,
            "started_utc": info.started_utc,
            "problems": [asdict(problem) for problem in problems(trace.reader)],
            "notes": trace.notes,
        },
    }
    if trace.realtime_ns is not None:
        about["baseTimeNanoseconds"] = trace.realtime_ns
    return _json(about)[:-1] + b',\n"traceEvents":[\n'


class _JsonWriter:
    """Writes the events of one trace, each on a line of its own."""

    def __init__(self, trace: TraceColumns, stream: IO[bytes]) -> None:
        self.trace = trace
        self.stream = stream
        self._flows = Flows.of(trace)
        self._modules = modules(trace.reader)
        self._arguments = arguments(trace.reader)
        module_texts = (f',"module":{_text(path)}' for path in self._modules.texts)
        self._module_texts = _table(module_texts)
        argument_texts = (f',"args":{text}' for text in self._arguments.texts)
        self._argument_texts = _table(argument_texts)
        self._names: list[str] = []

    def events(self, events: list[dict[str, Any]]) -> None:
        """Events that are few."""
        lines = [b",\n" + _json(event) for event in events]
        self.stream.write(b"".join(lines))

    def at(self, at_ns: int) -> msgspec.Raw:
        """A moment of the run as a number of the file."""
        us, ns = divmod(at_ns - self.trace.origin_ns, 1000)
        return msgspec.Raw(f"{us}.{ns:03d}".encode())

    def processes(self) -> None:
        """What the processes are called, and their order: the first events, and there is always
        one.
        """
        events = []
        for process in self.trace.processes.values():
            about = (
                ("name", process.name),
                ("labels", process.labels),
                ("sort_index", process.order),
            )
            for what, value in about:
                if value != "":
                    events.append(
                        {
                            "ph": "M",
                            "name": f"process_{what}",
                            "pid": process.pid,
                            "args": {what: value},
                        }
                    )
        self.stream.write(b",\n".join(map(_json, events)))

    # -- spans -------------------------------------------------------------------------------------

    def spans(self) -> None:
        """Every span, and right after it the flows that begin or end with it."""
        for piece in self.trace.pieces(_COLUMNS):
            names = piece.columns["name.names"]
            new = names[len(self._names) :]
            self._names += [f',\n{{"ph":"X","name":{_text(name)}' for name in new.tolist()]
            name_texts = pa.array(self._names)
            flows = self._flows.ends_in(piece.span)
            for first in range(0, len(piece.span), _ROWS):
                rows = slice(first, first + _ROWS)
                part = piece.part(rows)
                here = [ends.within(rows) for ends in flows]
                texts = [name_texts.take(pa.array(part["name"]))]
                texts += self._span(part)
                texts += self._flow_texts(part, here)
                lines = _joined(texts)
                _write(self.stream, lines)

    def _span(self, part: Columns) -> list[Any]:
        """What follows the name of each span."""
        threads = self.trace.threads
        kinds, layers = part["kind.names"].tolist(), part["layer.names"].tolist()
        places = [f',"pid":{thread.pid},"tid":{thread.tid},"ts":' for thread in threads]
        categories = [f',"cat":{_text(f"{layer},{kind}")}' for layer in layers for kind in kinds]
        category = part["layer"] * len(kinds) + part["kind"]
        return [
            _chosen(categories, category),
            _chosen(places, part["thread"]),
            *_decimal(part["start_ns"] - self.trace.origin_ns, ',"dur":'),
            *_decimal(part["dur_ns"], ',"args":{"self_ns":'),
            _digits(part["self_ns"]),
            *_optional("step", part["step"]),
            _chosen(
                [f',"phase":{_text(phase)}' for phase in part["phase.names"].tolist()],
                part["phase"],
            ),
            self._module_texts.take(_places(self._modules.places(part["module"]))),
            _chosen(
                [f',"line":{_text(line)}' for line in part["line.names"].tolist()], part["line"]
            ),
            *_optional("sequence", part["sequence"]),
            *_optional("correlation", part["correlation"]),
            self._argument_texts.take(_places(self._arguments.places(part["args"]))),
            *_optional("weight", part["weight"], part["weight"] > 1),
            _chosen([',"unfinished":true'], np.where(part["unfinished"], 0, -1)),
            "}}",
        ]

    def _flow_texts(self, part: Columns, flows: list[FlowEnds]) -> list[Any]:
        """For every row the events of its flows, one behind the other. Nothing where there are
        none.
        """
        texts = []
        for ends, phase in zip(flows, ("s", "f"), strict=True):
            if not len(ends.row):
                continue
            binding = ""
            if phase == "f":
                binding = ',"bp":"e"'
            heads = [
                f',\n{{"ph":"{phase}"{binding},"cat":{_text(k)},"name":{_text(k)},"id":'
                for k in self._flows.kinds
            ]
            places = [
                f',"pid":{thread.pid},"tid":{thread.tid},"ts":' for thread in self.trace.threads
            ]
            at_ns = part["start_ns"][ends.row] - self.trace.origin_ns
            lines = _joined(
                [
                    _chosen(heads, ends.kind),
                    _digits(ends.flow),
                    _chosen(places, part["thread"][ends.row]),
                    *_decimal(at_ns, "}"),
                ]
            )
            rows = np.arange(len(part["span"]) + 1)
            borders = np.searchsorted(ends.row, rows).astype(np.int32)
            lists = pa.ListArray.from_arrays(pa.array(borders), lines)
            texts.append(pc.binary_join(lists, ""))
        return texts

    # -- the rest ----------------------------------------------------------------------------------

    def steps(self) -> None:
        """The steps, on a track of their own in each process."""
        events = []
        for row in self.trace.steps:
            thread = self.trace.threads[self.trace.steps_thread(row["process"])]
            about = {name: row[name] for name in ("step", "rule", *_PHASE_COLUMNS, "warmup")}
            dur = msgspec.Raw(f"{row['dur_ns'] // 1000}.{row['dur_ns'] % 1000:03d}".encode())
            events.append(
                {
                    "ph": "X",
                    "name": f"step {row['step']}",
                    "cat": "steps",
                    "pid": thread.pid,
                    "tid": thread.tid,
                    "ts": self.at(row["start_ns"]),
                    "dur": dur,
                    "args": about,
                }
            )
        self.events(events)

    def counters(self) -> None:
        """The counters of the processes."""
        columns = counters(self.trace)
        if not len(columns["at_ns"]):
            return
        heads = [
            f',\n{{"ph":"C","name":{_text(name)},"pid":' for name in columns["name.names"].tolist()
        ]
        _write(
            self.stream,
            _joined(
                [
                    _chosen(heads, columns["name"]),
                    _digits(columns["pid"]),
                    *_decimal(
                        columns["at_ns"] - self.trace.origin_ns, ',"args":{"value":', ',"ts":'
                    ),
                    _digits(columns["value"]),
                    "}}",
                ]
            ),
        )

    def moments(self) -> None:
        """Marks and losses."""
        events = []
        for moment in moments(self.trace, self._arguments):
            about: dict[str, Any] = dict(moment.arguments)
            if "args" in about:
                about["args"] = msgspec.Raw(about["args"].encode())
            event = {
                "ph": "i",
                "s": "p",
                "name": moment.name,
                "cat": moment.category,
                "pid": moment.pid,
                "ts": self.at(moment.at_ns),
                "args": about,
            }
            if moment.thread is not None:
                event |= {"s": "t", "tid": self.trace.threads[moment.thread].tid}
            events.append(event)
        self.events(events)

    def threads(self) -> None:
        """What the threads are called, and their order. At the end: only then is it known which of
        them cross.
        """
        events = []
        for thread in self.trace.threads:
            for what, value in (("name", thread.name), ("sort_index", thread.order)):
                event: dict[str, Any] = {"ph": "M", "name": f"thread_{what}"}
                event |= {"pid": thread.pid, "tid": thread.tid}
                event["args"] = {what: value}
                events.append(event)
        self.events(events)


# -- columns of text -------------------------------------------------------------------------------


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _text(words: str) -> str:
    """`words` as a JSON string."""
    return msgspec.json.encode(words).decode()


def _table(texts: Any) -> Any:
    return pa.array(list(texts), pa.string())


def _places(codes: np.ndarray) -> pa.Array:
    """Codes as places for `take`: -1 takes null, which is written as nothing."""
    is_null = codes < 0
    return pa.array(codes, mask=is_null)


def _chosen(texts: list[str], codes: np.ndarray) -> Any:
    """The text of each code."""
    table = _table(texts)
    places = _places(codes)
    return table.take(places)


def _digits(numbers: np.ndarray, mask: np.ndarray | None = None) -> Any:
    """Numbers as text; null where `mask` is true."""
    array = pa.array(numbers, mask=mask)
    return pc.cast(array, pa.string())


def _optional(name: str, numbers: np.ndarray, has: np.ndarray | None = None) -> list[Any]:
    """`,"name":number` where there is a number. Nothing at all if there is none."""
    if has is None:
        has = numbers >= 0
    if not has.any():
        return []
    names = _chosen([f',"{name}":'], np.where(has, 0, -1))
    return [names, _digits(numbers, ~has)]


def _decimal(ns: np.ndarray, behind: str, before: str = "") -> list[Any]:
    """Nanoseconds as microseconds with three decimals, between two constant texts."""
    us, rest = np.divmod(ns, 1000)
    thousandths = pa.array([f".{number:03d}{behind}" for number in range(1000)])
    decimals = thousandths.take(pa.array(rest))
    texts = [_digits(us), decimals]
    if before:
        texts.insert(0, before)
    return texts


def _joined(texts: list[Any]) -> Any:
    """Row by row one text; null is nothing."""
    return pc.binary_join_element_wise(*texts, "", null_handling="replace", null_replacement="")


def _write(stream: IO[bytes], texts: Any) -> None:
    """All texts, one behind the other: they lie so in memory."""
    _, offsets_buffer, data = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)
    first = offsets[texts.offset]
    behind = offsets[texts.offset + len(texts)]
    stream.write(memoryview(data)[int(first) : int(behind)])
