"""The tables of one rank as a part of the recording of all: how its keys and times become the
recording's.

Every rank has tables of its own, whose keys count from 0 and whose times are on the clock of its
host. Nothing of them is written again: what reads them adds to each key what makes it unique.

    span, args                            the number of the rank, in the bits above the lowest 40
    process, track, frame, stack, total   a number: they follow those of the ranks before it
    module                                the key of the same path and class in the recording

`joined.json` holds these numbers for the ranks that were put together (`JoinedState`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from layerscope.model.stored_json import Int32, Int64, decoded
from layerscope.model.table import Column, Table

JOINED = "joined.json"
# More spans than any rank has; with ranks below 2 ** 13 the keys are exact in JSON of JavaScript.
SPAN_BITS = 40
# Their keys have the rank in them.
WIDE_KEYS = ("span", "args")
# Each behind those of the ranks before: with the table that has all of them.
COUNTED_KEYS = {
    "process": "processes",
    "track": "tracks",
    "frame": "frames",
    "stack": "stacks",
    "total": "totals",
}
# Tables that all ranks have together: written when they are joined.
SHARED_TABLES = ("modules", "problems")
# What says of a span or a sample in which step it was.
_OF_STEPS = ("step", "phase")
_WITH_STEPS = ("spans", "samples")
_IN_STEP, _OUTSIDE = "step", "outside"

_Rank = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class RankKeys(msgspec.Struct, frozen=True):
    """How the tables of one rank are read.

    `shift_ns` is added to its times, `first` to its keys, by what they are keys of. `modules`: by
    key of a module, its key in the recording; None: it is the same. `has_steps`: its steps are
    steps of the recording.
    """

    rank: _Rank
    shift_ns: Int64 = 0
    first: dict[str, Int32] = {}
    modules: list[Int32] | None = None
    has_steps: bool = True

    def is_dropped(self, table: str) -> bool:
        """Whether no row of this table counts."""
        return table == "steps" and not self.has_steps

    def added(self, column: Column) -> int:
        """What is added to the values of a column."""
        if column.instant:
            return self.shift_ns
        if column.key in WIDE_KEYS:
            return self.rank << SPAN_BITS
        return self.first.get(column.key, 0)

    def is_mapped(self, column: Column) -> bool:
        """Whether the values of a column are replaced one by one."""
        return column.key == "module" and self.modules is not None

    def _is_outside(self, table: Table, name: str) -> bool:
        """Whether a column tells of steps that are none of the recording's."""
        return not self.has_steps and table.name in _WITH_STEPS and name in _OF_STEPS

    def value(self, table: Table, name: str, value: int) -> int:
        """What a number in a column becomes; -1 for null."""
        column = table.column(name)
        if self._is_outside(table, name):
            return -1
        if value == -1 and column.nullable:
            return value
        if self.modules is not None and self.is_mapped(column):
            return self.modules[value]
        return value + self.added(column)

    def columns(self, table: Table, data: pa.Table) -> pa.Table:
        """Some columns of `table` as they are in the recording."""
        for place, name in enumerate(data.column_names):
            values = data[name]
            found = self._column(table, name, values)
            if found is not values:
                data = data.set_column(place, data.schema.field(name), found)
        return data

    def _column(self, table: Table, name: str, values: Any) -> Any:
        import pyarrow.compute as pc  # half as dear as NumPy, and nothing for one rank alone

        column = table.column(name)
        if self._is_outside(table, name):
            return pa.nulls(len(values), values.type)
        if not self.has_steps and column.name == "step_class":
            texts = values.cast(pa.string())
            changed = pc.if_else(pc.equal(texts, _IN_STEP), _OUTSIDE, texts)
            return changed.dictionary_encode().cast(values.type)
        if self.is_mapped(column):
            return pc.take(pa.array(self.modules, pa.int32()), values)
        added = self.added(column)
        return pc.add(values, pa.scalar(added, values.type)) if added else values

    def expression(self, table: Table, column: Column) -> str:
        """The same as SQL."""
        name = f'"{column.name}"'
        if self._is_outside(table, column.name):
            return "NULL"
        if not self.has_steps and column.name == "step_class":
            return f"CASE {name} WHEN '{_IN_STEP}' THEN '{_OUTSIDE}' ELSE {name} END"
        if self.is_mapped(column):
            return f"({self.modules}::INTEGER[])[{name} + 1]"
        added = self.added(column)
        return f"{name} + {added}" if added else name


class JoinedState(msgspec.Struct):
    """What stands in `joined.json`. `made_of` tells which tables of which ranks these are, and what
    was known of the others. `clock_problems`: what is wrong with the clocks of their hosts.
    """

    made_of: str
    ranks: list[RankKeys] = []
    clock_problems: list[dict[str, str]] = []


def write_joined(folder: Path, state: JoinedState) -> None:
    """Write `joined.json` by rename."""
    temporary = folder / f"{JOINED}.tmp"
    temporary.write_bytes(msgspec.json.encode(state))
    os.replace(temporary, folder / JOINED)


def read_joined(folder: Path) -> JoinedState | None:
    """What `joined.json` in `folder` says; None when there is none, or none that can be read."""
    try:
        return decoded((folder / JOINED).read_bytes(), JoinedState)
    except (OSError, ValueError):
        return None
