"""Traces as MXNet's profiler writes them, line by line, an independent count of what such a trace
holds, and the same of what was read.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from layerscope.model.layers import KINDS
from layerscope.sources.imported import Imported

API_PID, OPERATOR_PID = 849786139768988538, 3060606181218273969
HEADER = '{\n    "traceEvents": [\n'
END = '\n\n    ],\n    "displayTimeUnit": "ms"\n}\n'
DEVICES = ",\n".join(
    f"""        {{
            "ph": "M",
            "args": {{
                "name": "{name}"
            }},
            "pid": {pid},
            "name": "process_name"
        }}"""
    for pid, name in enumerate(("cpu/0", "cpu/1", "gpu/0"))
)
BETWEEN = "\n,\n"
# (kind, name, tid, start, duration) of a span; (name, value, at) of a counter. In microseconds.
Spans = Counter[tuple[str, str, int, int, int]]
Counts = Counter[tuple[str, int, int]]


def event(name: str, cat: str, ph: str, ts: int, pid: int, tid: int, more: str = "") -> str:
    """One event, with quotes and all as they are."""
    return f"""    {{
        "name": "{name}",
        "cat": "{cat}",
        "ph": "{ph}",
        "ts": {ts},
{more}        "pid": {pid},
        "tid": {tid}
    }}"""


def pair(phases: str, name: str, cat: str, pid: int, tid: int, start: int, end: int) -> list[str]:
    """Begin and end of something."""
    more = f'        "id": {tid},\n' if phases == "be" else ""
    begin, finish = phases
    return [
        event(name, cat, begin, start, pid, tid, more),
        event(name, cat, finish, end, pid, tid, more),
    ]


def operator(
    name: str, tid: int, start: int, end: int, late: int = 0, cat: str = "operator"
) -> list[str]:
    """An operator by device; a second time by thread, `late` microseconds within."""
    by_device = pair("BE", name, cat, 0, tid, start, end)
    within = pair("be", name, cat, OPERATOR_PID, tid, start + late, max(end - late, start + late))
    return [*by_device, *within]


def call(name: str, tid: int, start: int, end: int) -> list[str]:
    """A call of the C interface."""
    return pair("be", name, "MXNET_C_API", API_PID, tid, start, end)


def counter(name: str, cat: str, at: int, value: int | str, tid: int = 5) -> str:
    """A value of a counter."""
    return event(name, cat, "C", at, 77, tid, f'        "args": {{ "{name}": {value} }},\n')


def marker(name: str, domain: str, at: int, tid: int) -> str:
    """An instant marker."""
    return event(name, f"{domain},instant_marker", "n", at, 99, tid, '        "s": "t",\n')


def trace(*events: str) -> str:
    """A whole file."""
    return HEADER + BETWEEN.join([DEVICES, *events]) + END


def counted(events: list[dict[str, Any]]) -> tuple[Spans, Counts]:
    """What is in a trace, counted event by event. In the file a begin is followed by its end. An
    operator counts once: by device, or by thread where no device has one of its name and category.
    """
    pairs: dict[tuple[str, str, str], list[tuple[int, int, int]]] = defaultdict(list)
    counts: Counts = Counter()
    for first, second in zip(events, [*events, {}][1:], strict=True):
        if first["ph"] in "Bb(":
            assert second["ph"] == {"B": "E", "b": "e", "(": ")"}[first["ph"]]
            assert second["name"] == first["name"]
            begin = (int(first["tid"]), first["ts"], second["ts"] - first["ts"])
            pairs[first["ph"], first["cat"], first["name"]].append(begin)
        elif first["ph"] == "C":
            (value,) = first["args"].values()
            counts[first["name"], value if value < 1 << 63 else value - (1 << 64), first["ts"]] += 1
    spans: Spans = Counter()
    for (phase, category, name), found in pairs.items():
        is_operator = category in ("operator", "Custom Operator")
        if is_operator and phase == "b" and ("B", category, name) in pairs:
            assert len(found) == len(pairs["B", category, name])
            continue
        kind = {"B": "event", "b": "task", "(": "frame"}[phase]
        kind = "call" if category == "MXNET_C_API" else "function" if is_operator else kind
        for tid, start, dur in found:
            spans[kind, name, tid, start, dur] += 1
    return spans, counts


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a file or a fragment, whose names hold no quotes."""
    body = text.strip().strip(",")
    body = body if body.startswith('{\n    "traceEvents') else '{"traceEvents": [' + body
    body = body if "displayTimeUnit" in body[-60:] else body + "]}"
    found: list[dict[str, Any]] = json.loads(body, strict=False)["traceEvents"]
    return [one for one in found if one["ph"] != "M"]


MAIN, WORKER = 16396603964566710179, 7423166167323039302
# A little of everything, in the order of the profiler's queues.
EVENTS = [
    *operator("dot", WORKER, 1_000_100, 1_000_150, late=1),
    *operator("_backward_dot", WORKER, 1_000_160, 1_000_200),
    *operator("Own::dot", WORKER, 1_000_210, 1_000_220, cat="Custom Operator"),
    *pair("be", "Own::pure_python", "Custom Operator", 8001, MAIN, 1_000_060, 1_000_080),
    *call("MXImperativeInvoke", MAIN, 1_000_010, 1_000_020),
    *call("MXNDArrayWaitAll", MAIN, 1_000_030, 1_000_230),
    counter("MXNet C API Calls", "MXNET_C_API", 1_000_010, 1),
    counter("Memory: cpu/0", "Device Storage", 1_000_100, 4096),
    counter("Memory: cpu pinned/", "Device Storage", 1_000_101, 8),
    counter("items", "Own, domain", 1_000_110, (1 << 64) - 2),
    *pair("be", "a task", "Own, domain", 123, MAIN, 1_000_005, 1_000_240),
    *pair("()", "a frame", "Own, domain,frame", 124, MAIN, 1_000_006, 1_000_250),
    *pair("BE", "an event", "event", 125, MAIN, 1_000_300, 1_000_300),
    marker("half way", "Own, domain", 1_000_120, MAIN),
]
FIRST_US = 1_000_005
SPANS = 9
ALWAYS = {"no_identity"}


def write(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _tid(track: str) -> int:
    """The thread that a track is called after; -1 for one whose number a byte has damaged."""
    number = track.removeprefix("thread ")
    return int(number) if number.isdecimal() else -1


def spans_of(content: Imported) -> Spans:
    """The spans in whole microseconds since 1970, as `counted` has them."""
    first_us = (content.realtime_ns or 0) // 1000
    names = [name.partition("\n")[0] for name in content.names]
    tids = [_tid(track.name) for track in content.tracks]
    columns = (content.kind, content.name, content.track, content.start_ns, content.dur_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Counter(
        (KINDS[kind], names[name], tids[track], start // 1000 + first_us, dur // 1000)
        for kind, name, track, start, dur in rows
    )


def counts_of(content: Imported) -> Counts:
    """The values of counters, under MXNet's names."""
    first_us = (content.realtime_ns or 0) // 1000
    moments = content.moments
    columns = (moments.name, moments.value, moments.at_ns, moments.is_mark)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Counter(
        (mxnet_name(content.names[name]), value, at // 1000 + first_us)
        for name, value, at, is_mark in rows
        if not is_mark
    )


def mxnet_name(text: str) -> str:
    """`memory_bytes of cpu(0)` is what MXNet calls `Memory: cpu/0`."""
    name = text.partition("\n")[0]
    if not name.startswith("memory_bytes of "):
        return name
    device, _, number = name.removeprefix("memory_bytes of ").rstrip(")").partition("(")
    return f"Memory: {device.replace('_', ' ')}/{'' if ' ' in device or '_' in device else number}"


def codes(content: Imported) -> set[str]:
    """What is said to be missing, but for what all traces lack."""
    return {problem.code for problem in content.problems} - ALWAYS
