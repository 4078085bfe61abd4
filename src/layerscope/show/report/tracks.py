"""Processes, tracks, modules and steps as the page's timeline needs them."""

from __future__ import annotations

from typing import Any

from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import Block, json_block

_WANTED = {
    "processes": ("process", "pid", "rank", "role", "argv"),
    "tracks": ("track", "process", "kind", "tid", "name"),
    "modules": ("module", "parent", "path", "class"),
    "steps": (
        "step",
        "process",
        "rule",
        "start_ns",
        "dur_ns",
        "warmup",
        "load_ns",
        "forward_ns",
        "backward_ns",
        "optimizer_ns",
        "other_ns",
    ),
}


def track_block(reader: Reader, origin_ns: int) -> Block:
    """Each table by column; moments count from `origin_ns`."""
    return json_block("tracks", {table: _columns(reader, table, origin_ns) for table in _WANTED})


def _columns(reader: Reader, table: str, origin_ns: int) -> dict[str, list[Any]]:
    wanted = _WANTED[table]
    answer = reader.query(f"SELECT {', '.join(wanted)} FROM {table} ORDER BY ALL")
    found: dict[str, list[Any]] = {}
    for name in wanted:
        found[name] = answer.column(name).to_pylist()
    if "start_ns" in found:
        found["start_ns"] = [start_ns - origin_ns for start_ns in found["start_ns"]]
    return found
