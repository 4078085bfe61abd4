"""Recordings with spans that cross, in several pieces, and readers of exported traces that share no
code with us.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from layerscope.model.schema import TABLES
from layerscope.recording.run import Run
from layerscope.recording.writer import TableWriter
from tests.recordings import Recording

NAMES = [
    "aten::mm",
    "a",
    "ä → 漢字 🙂",
    'say "no" \\ /',
    "line\nbreak\ttab\x01\x7f",
    "x" * 1000,
    "</script>",
    "%d%s",
]
REALTIME_NS = 1_795_172_764_779_425_773


@dataclass
class ReadSpan:
    """A span as a file tells it; times in ns since the file's zero."""

    pid: int
    tid: int
    category: str
    name: str
    start_ns: int
    dur_ns: int
    args: dict[str, Any]


@dataclass
class ReadTrace:
    """What a file tells. Flows: (span, span); a flow belongs to the span that was written before
    it.
    """

    spans: list[ReadSpan] = field(default_factory=list)
    flows: list[tuple[int, int]] = field(default_factory=list)
    counters: list[tuple[int, str, int, int]] = field(
        default_factory=list
    )  # pid, name, at_ns, value
    instants: list[ReadSpan] = field(default_factory=list)
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    zero_ns: int | None = None
    about: dict[str, Any] = field(default_factory=dict)


def ns(us: str) -> int:
    """Microseconds with three decimals as whole nanoseconds."""
    whole, _, decimals = us.partition(".")
    assert len(decimals) == 3, us
    return int(whole) * 1000 + (-1 if whole.startswith("-") else 1) * int(decimals)


def read_json(path: Path) -> ReadTrace:
    """A file of trace events, plain or compressed."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = json.loads(data, parse_float=str)
    trace = ReadTrace(zero_ns=whole.get("baseTimeNanoseconds"), about=whole["otherData"])
    begins: dict[int, int] = {}
    finishes: dict[int, int] = {}
    for event in whole["traceEvents"]:
        what, args = event["ph"], event.get("args", {})
        if what == "X":
            trace.spans.append(ReadSpan(event["pid"], event["tid"], event["cat"], event["name"], ns(event["ts"]),
                                        ns(event["dur"]), args))  # fmt: skip
        elif what in "sf":
            ends, owner = (begins, finishes)[what == "f"], trace.spans[-1]
            assert (owner.pid, owner.tid, owner.start_ns) == (
                event["pid"],
                event["tid"],
                ns(event["ts"]),
            )
            assert event["id"] not in ends
            ends[event["id"]] = len(trace.spans) - 1
        elif what == "C":
            trace.counters.append((event["pid"], event["name"], ns(event["ts"]), args["value"]))
        elif what == "i":
            trace.instants.append(
                ReadSpan(
                    event["pid"],
                    event.get("tid", 0),
                    event["cat"],
                    event["name"],
                    ns(event["ts"]),
                    0,
                    args,
                )
            )
        elif event["name"] == "process_name":
            trace.processes[event["pid"]] = args["name"]
        elif event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in trace.threads
            trace.threads[event["pid"], event["tid"]] = args["name"]
    assert begins.keys() == finishes.keys()
    trace.flows = [(begins[key], finishes[key]) for key in begins]
    return trace


def read_fxt(path: Path) -> ReadTrace:
    """A file in Fuchsia trace format."""
    data = path.read_bytes()
    assert len(data) % 8 == 0
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    assert words[:3] == (0x0016547846040010, 0x21, 10**9)
    trace, strings, threads = ReadTrace(), {0: ""}, {}
    begins: dict[int, int] = {}
    finishes: dict[int, int] = {}
    at = 3
    while at < len(words):
        head = words[at]
        size = head >> 4 & 0xFFF
        kind, body = head & 0xF, words[at + 1 : at + size]
        at += size
        assert size
        assert len(body) == size - 1
        if kind == 2:
            text = struct.pack(f"<{len(body)}Q", *body)[: head >> 32 & 0x7FFF]
            strings[head >> 16 & 0x7FFF] = text.decode()
        elif kind == 3:
            threads[head >> 16 & 0xFF] = body[:2]
        elif kind == 7:
            args, _ = _fxt_arguments(body[1:], head >> 40 & 0xF, strings)
            name = strings[head >> 24 & 0xFFFF]
            if head >> 16 & 0xFF == 1:
                trace.processes[body[0]] = name
            else:
                assert (args["process"], body[0]) not in trace.threads
                trace.threads[args["process"], body[0]] = name
        else:
            assert kind == 4
            _fxt_event(head, list(body), strings, threads, trace, (begins, finishes))
    assert begins.keys() == finishes.keys()
    trace.flows = [(begins[key], finishes[key]) for key in begins]
    return trace


def _fxt_event(
    head: int, body: list[int], strings: dict[int, str], threads: dict[int, tuple[int, ...]], trace: ReadTrace,
    flows: tuple[dict[int, int], dict[int, int]],
) -> None:  # fmt: skip
    start = body.pop(0)
    thread = head >> 24 & 0xFF
    pid, tid = threads[thread] if thread else (body.pop(0), body.pop(0))
    category, name = strings[head >> 32 & 0xFFFF], strings[head >> 48]
    args, rest = _fxt_arguments(body, head >> 20 & 0xF, strings)
    event = head >> 16 & 0xF
    if event == 4:
        (end,) = rest
        trace.spans.append(ReadSpan(pid, tid, category, name, start, end - start, args))
    elif event == 0:
        trace.instants.append(ReadSpan(pid, tid, category, name, start, 0, args))
    elif event == 1:
        trace.counters.append((pid, name, start, args["value"]))
    else:
        owner = trace.spans[-1]
        assert (owner.pid, owner.tid, owner.start_ns) == (pid, tid, start)
        ends = flows[{8: 0, 10: 1}[event]]
        (key,) = rest
        assert key not in ends
        ends[key] = len(trace.spans) - 1


def _fxt_arguments(
    words: Iterable[int], count: int, strings: dict[int, str]
) -> tuple[dict[str, Any], list[int]]:
    rest = list(words)
    args: dict[str, Any] = {}
    for _ in range(count):
        head = rest.pop(0)
        kind, size, name, value = (
            head & 0xF,
            head >> 4 & 0xFFF,
            strings[head >> 16 & 0xFFFF],
            head >> 32,
        )
        long = rest.pop(0) if size == 2 else 0
        signed = long - (long >> 63 << 64)
        args[name] = {1: value, 3: signed, 6: strings.get(value & 0xFFFF), 8: long, 9: bool(value)}[
            kind
        ]
    return args, rest


def depths(trace: ReadTrace) -> list[tuple[ReadSpan, int]]:
    """A viewer's stack: every span with its depth on its track. Fails where a viewer would drop
    one.
    """
    found = []
    for spans in _by_thread(trace.spans).values():
        stack: list[int] = []
        for span in sorted(spans, key=lambda span: span.start_ns):
            while stack and stack[-1] <= span.start_ns:
                stack.pop()
            end = span.start_ns + span.dur_ns
            assert not stack or end <= stack[-1], f"{span} crosses another on its track"
            found.append((span, len(stack)))
            stack.append(end)
    return found


def _by_thread(spans: list[ReadSpan]) -> dict[tuple[int, int], list[ReadSpan]]:
    found: dict[tuple[int, int], list[ReadSpan]] = defaultdict(list)
    for span in spans:
        found[span.pid, span.tid].append(span)
    return found


# -- recordings ------------------------------------------------------------------------------------


def write_pieces(recording: Recording, path: Path, cuts: list[int], **info: Any) -> Run:
    """The recording with its spans in several parts: in the part in which it ended, as a converter
    writes them.
    """
    spans = sorted(recording.rows.pop("spans", []), key=lambda row: row["start_ns"] + row["dur_ns"])
    run = recording.write(path, **info)
    borders = sorted({0, len(spans), *(cut for cut in cuts if cut < len(spans))})
    parts = TableWriter(path, "spans")
    for first, behind in pairwise(borders):
        rows = sorted(spans[first:behind], key=lambda row: row["track"])
        parts.add({c.name: [row.get(c.name) for row in rows] for c in TABLES["spans"].columns})
    recording.rows["spans"] = spans
    return run


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Recording, list[int]]:
    """A recording of a few threads with any spans whatever, and where to cut it into pieces."""
    recording = Recording()
    recording.rows["tracks"][0]["name"] = "t0"
    other = recording.add_process(draw(st.sampled_from([100, 200])), rank=1)
    threads = [
        recording.thread,
        *(recording.add_thread(other, tid, f"t{tid}") for tid in (100, 101)),
    ]
    recording.rows["args"] = [
        {"args": key, "json": json.dumps({"k": name})} for key, name in enumerate(NAMES)
    ]
    recording.rows["modules"] = [
        {"module": key, "path": f"Net.{name}", "class": "C"} for key, name in enumerate(NAMES[:4])
    ]
    maybe = st.none() | st.integers(0, 3)
    span = st.tuples(st.sampled_from(threads), st.sampled_from(NAMES), st.integers(0, 40), st.integers(0, 20), maybe,
                     maybe, maybe, st.booleans())  # fmt: skip
    for track, name, start, dur, number, module, args, unfinished in draw(
        st.lists(span, max_size=40)
    ):
        more = {"sequence": number, "module": module, "args": args, "unfinished": unfinished, "track": track,
                "line": f"{name}.py:{args}" if args else None}  # fmt: skip
        phase = "forward" if number else None
        recording.add_span(
            name, start, dur, step=number, phase=phase, weight=1 + (number or 0), **more
        )
    for row in recording.rows.get("spans", []):
        ends = [r["start_ns"] + r["dur_ns"] for r in recording.rows["spans"]
                if r["track"] == row["track"] and r["start_ns"] < row["start_ns"]]  # fmt: skip
        row["depth"] = sum(end > row["start_ns"] for end in ends)
    count = len(recording.rows.get("spans", []))
    if count:
        pairs = draw(
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=10)
        )
        recording.rows["links"] = [
            {"from_span": a, "to_span": b, "kind": "forward_backward"} for a, b in pairs
        ]
    recording.rows["clock_readings"] = [
        {"clock": "realtime", "clock_value": REALTIME_NS + 7, "run_ns": 7, "error_ns": 1}
    ]
    return recording, draw(st.lists(st.integers(1, 40), max_size=3))
