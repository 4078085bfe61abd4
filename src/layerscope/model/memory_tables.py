"""The table of memory of a recording; part of `schema`."""

from __future__ import annotations

from layerscope.model.table import Column, Table

ALLOCATIONS = Table(
    "allocations",
    "Blocks of memory that the allocator of a framework handed out, such as tensors.",
    (
        Column("track", "int32", "the thread that allocated it", key="track"),
        Column("at_ns", "int64", "when it was allocated", "ns", instant=True),
        Column(
            "dur_ns",
            "int64",
            "how long it lived; null: to the end of the recording, or its release was lost",
            "ns",
            nullable=True,
        ),
        Column("bytes", "int64", "its size", "bytes"),
        Column("device", "name", "where it lies: cpu, cuda:0"),
        Column("allocator", "name", "which library allocated it: tensor, numpy"),
        Column(
            "operator",
            "name",
            "the innermost operator that was open and does more than allocate; empty: none was",
        ),
        Column("module", "int32", "the innermost open module", nullable=True, key="module"),
        Column("line", "name", "source line of the program; empty: not known"),
        Column("phase", "name", "loading, forward, backward, optimizer or other"),
        Column(
            "is_lost",
            "bool",
            "its release was lost: it is known to have ended, but not when",
        ),
    ),
)
