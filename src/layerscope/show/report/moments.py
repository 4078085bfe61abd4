"""Counters, marks and links as blocks of the page."""

from __future__ import annotations

import numpy as np

from layerscope.analyse.memory.counters import MemoryReadings, memory_counters
from layerscope.analyse.result import BYTES
from layerscope.model.layers import CUMULATIVE, PROCESS_COUNTERS, SYSTEM_COUNTERS
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import DELTA, Block, IntColumn, column_block, json_block

# Points of a counter of memory: a screen has a tenth of them.
_MOST_POINTS = 20_000


def counter_blocks(reader: Reader, origin_ns: int) -> list[Block]:
    """What was read of every counter, and how much memory is live: by track, name and time, as
    values or differences of them.
    """
    read = _with_memory(reader)
    order = np.lexsort((read["at_ns"], read["name"], read["track"]))
    columns = [
        IntColumn("track", read["track"][order], DELTA),
        IntColumn("name", read["name"][order], DELTA),
        IntColumn("at", read["at_ns"][order] - origin_ns, DELTA),
        IntColumn("value", read["value"][order], DELTA),
        IntColumn("unit", read["unit"][order], DELTA),
    ]
    about = {
        "names": read["name.names"].tolist(),
        "units": read["unit.names"].tolist(),
        # What only grows is drawn as how fast it does.
        "cumulative": CUMULATIVE,
        "system": SYSTEM_COUNTERS,
    }
    return [json_block("counter_names", about), column_block("counters", columns)]


def _with_memory(reader: Reader) -> dict[str, np.ndarray]:
    """The counters, those of memory among them on the track of what was read of their process."""
    wanted = ["track", "at_ns", "name", "value", "unit"]
    read = reader.arrays("counters", wanted)
    found = [counter.thinned(_MOST_POINTS) for counter in memory_counters(reader)]
    track_of = _tracks_of_system(reader)
    tracks = [track_of.get(counter.process, counter.track) for counter in found]
    names = read["name.names"].tolist()
    units = read["unit.names"].tolist()
    points = MemoryReadings.of(found)
    added = {
        "track": np.array(tracks, np.int64)[points.counter],
        "at_ns": points.at_ns,
        "name": points.counter + len(names),
        "value": points.value,
        "unit": np.full(len(points.value), len(units)),
    }
    joined = {name: np.append(read[name], values) for name, values in added.items()}
    names += [counter.name for counter in found]
    joined["name.names"] = np.array(names, object)
    joined["unit.names"] = np.array([*units, BYTES], object)
    return joined


def _tracks_of_system(reader: Reader) -> dict[int, int]:
    """By process the track with what the system says about it."""
    columns = reader.arrays("tracks", ["track", "process", "name"])
    ours = columns["name"] == PROCESS_COUNTERS
    processes = columns["process"]
    tracks = columns["track"]
    found = {}
    for place in np.flatnonzero(ours):
        process = int(processes[place])
        found[process] = int(tracks[place])
    return found


def mark_block(reader: Reader, origin_ns: int) -> Block:
    """The moments that the program marked."""
    answer = reader.query("SELECT track, at_ns, kind, name FROM marks ORDER BY at_ns")
    found = {name: answer.column(name).to_pylist() for name in ("track", "at_ns", "kind", "name")}
    found["at_ns"] = [at_ns - origin_ns for at_ns in found["at_ns"]]
    return json_block("marks", found)


def link_blocks(reader: Reader, keys: np.ndarray) -> list[Block]:
    """Pairs of spans, by their rows in the block of spans; `keys`: the span of each row."""
    read = reader.arrays("links", ["from_span", "to_span", "kind"])
    rows = np.argsort(keys, kind="stable")
    sorted_keys = keys[rows]
    found = [rows_of_spans(read[name], sorted_keys, rows) for name in ("from_span", "to_span")]
    is_known = (found[0] >= 0) & (found[1] >= 0)
    from_row, to_row, kind = (values[is_known] for values in (*found, read["kind"]))
    order = np.lexsort((to_row, from_row))
    columns = [
        IntColumn("from", from_row[order], DELTA),
        IntColumn("to", to_row[order] - from_row[order]),
        IntColumn("kind", kind[order]),
    ]
    return [
        json_block("link_kinds", read["kind.names"].tolist()),
        column_block("links", columns),
    ]


def rows_of_spans(spans: np.ndarray, sorted_keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The row of each of `spans` in the block of spans; -1: it is not there. `sorted_keys`, `rows`:
    the keys of all spans in order, and their rows.
    """
    if not len(rows):
        return np.full(len(spans), -1)
    at = np.minimum(np.searchsorted(sorted_keys, spans), len(rows) - 1)
    return np.where(sorted_keys[at] == spans, rows[at], -1)


def argument_block(reader: Reader) -> Block:
    """The distinct arguments of spans, as JSON texts by their keys."""
    answer = reader.query("SELECT args, json FROM args ORDER BY args")
    keys, texts = answer.column("args").to_pylist(), answer.column("json").to_pylist()
    return json_block("args", {"keys": keys, "texts": texts})
