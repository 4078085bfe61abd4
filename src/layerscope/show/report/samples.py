"""Samples, stacks and waits as blocks of the page."""

from __future__ import annotations

import numpy as np

from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import DELTA, PLAIN, Block, IntColumn, column_block, json_block

_PLACE = ["at_ns", "track", "stack", "weight_ns"]
_READ = [*_PLACE, "count", "kind", "state", "idle", "exact", "waker"]
_FRAME = ("layer", "name", "file", "line", "object")


def sample_blocks(reader: Reader, origin_ns: int) -> list[Block]:
    """Samples by track and time, and what their stacks are made of."""
    read = reader.arrays("samples", _READ)
    order = np.lexsort((read["at_ns"], read["track"]))
    columns = [
        IntColumn("track", read["track"][order], DELTA),
        IntColumn("at", read["at_ns"][order] - origin_ns, DELTA),
        IntColumn("stack", read["stack"][order] + 1),
        IntColumn("weight", read["weight_ns"][order]),
        IntColumn("count", read["count"][order]),
        IntColumn("kind", read["kind"][order]),
        IntColumn("state", read["state"][order]),
        IntColumn("idle", read["idle"][order]),
        IntColumn("exact", read["exact"][order]),
        IntColumn("waker", read["waker"][order] + 1),
    ]
    about = {"kinds": read["kind.names"].tolist(), "states": read["state.names"].tolist()}
    return [json_block("sample_names", about), column_block("samples", columns)]


def stack_blocks(reader: Reader) -> list[Block]:
    """The tree of stacks, by key, and its frames by column."""
    read = reader.arrays("stacks", ["stack", "parent", "frame"])
    order = np.argsort(read["stack"], kind="stable")
    stacks = column_block(
        "stacks",
        [
            IntColumn("stack", read["stack"][order], DELTA),
            IntColumn("parent", read["parent"][order] + 1, DELTA),
            IntColumn("frame", read["frame"][order], PLAIN),
        ],
    )
    answer = reader.query(f"SELECT frame, {', '.join(_FRAME)} FROM frames ORDER BY frame")
    frames = {name: answer.column(name).to_pylist() for name in ("frame", *_FRAME)}
    return [stacks, json_block("frames", frames)]
