"""The parts of the tables `spans`, `links` and `primitives` on disk: each a stretch of the run.

Where there are too many they are thinned: the first parts and the newest ones stay whole, and of
those between them one of every few units of a process stays (`thinning`), fewer and fewer while the
run goes on; what was thinned much is put together into fewer parts.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscope.ingest.limits import IngestLimits
from layerscope.ingest.primitives import PrimitiveRows
from layerscope.ingest.spans import Columns, as_table, codes_of, taken
from layerscope.ingest.string_table import StringTable
from layerscope.ingest.thinning import Units, choose
from layerscope.ingest.totals import SpanTotals, keys_of
from layerscope.model.layers import KINDS, LINKS
from layerscope.model.schema import TABLES
from layerscope.recording.writer import codes_to_names, to_arrow, write_parquet

# Rows that are in memory with all their columns when a part is read to be thinned.
PIECE_ROWS = 1 << 16
# Parts that are not written yet may have so many rows.
MOST_FRESH_EPOCHS = 4


@dataclass(slots=True)
class Part:
    """One part: its files, its rows, what its units are by process, and for how many steps one of
    them stands.
    """

    number: int
    rows: int
    links: int
    primitives: int
    size_bytes: int
    units: dict[int, Units]
    level: int = 1
    is_counted: bool = False  # its durations are in the bins
    keys: tuple[int, int] = (0, -1)  # the least and the largest parent in it
    fresh: tuple[Columns, Columns] | None = None  # its spans and links, while they are not on disk


@dataclass(slots=True)
class Parts:
    """The parts of one conversion, oldest first. `totals` learns the durations of what is
    thinned.
    """

    folder: Path
    texts: StringTable
    totals: SpanTotals
    limits: IngestLimits
    rows: int = 0
    links: int = 0
    primitives: int = 0
    parts: list[Part] = field(default_factory=list)
    weights: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # by process and step number, where thinned
    process_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # by track
    is_thinned: bool = False  # whether a span may stand for others
    _next: int = 0
    _level: int = 1
    _primitive_rows: PrimitiveRows = field(init=False)

    def __post_init__(self) -> None:
        self._primitive_rows = PrimitiveRows(self.texts.args)

    @property
    def most_weight(self) -> int:
        """For how many units one stands at most."""
        return max(
            (
                int(units.weight.max(initial=1))
                for part in self.parts
                for units in part.units.values()
            ),
            default=1,
        )

    def add(self, columns: Columns, links: Columns, units: dict[int, Units]) -> None:
        """Take the spans of one stretch, with the links between them.

        Where the run is thinned they are written when it is known which of them stay, at the end at
        the latest.
        """
        columns["weight"] = np.ones(len(columns["span"]), np.int32)
        parent = columns["parent"][columns["parent"] >= 0]
        keys = (int(parent.min()), int(parent.max())) if len(parent) else (0, -1)
        part = Part(self._next, 0, 0, 0, 0, units, keys=keys)
        self._next += 1
        self.parts.append(part)
        part.fresh = columns, links
        part.rows, part.links = len(columns["span"]), len(links["from_span"])
        self.rows, self.links = self.rows + part.rows, self.links + part.links
        most = MOST_FRESH_EPOCHS * self.limits.epoch_spans if self.is_thinned else 0
        for one in [part for part in self.parts if part.fresh is not None]:
            if sum(part.rows for part in self.parts if part.fresh is not None) > most:
                self._settle(one)

    def forget_steps(self, process: int) -> None:
        """What was taken for the steps of this process is none."""
        import pyarrow.compute as pc

        for part in self.parts:
            units = part.units.get(process)
            if units is None or not (units.step >= 0).any():
                continue
            spans, links = self._read(part)
            mine = self.process_of[spans["track"].to_numpy()] == process
            for name in ("step", "phase"):
                column = pc.if_else(pa.array(mine), pa.scalar(None, spans[name].type), spans[name])
                spans = with_column(spans, name, column)
            units.step[:] = -1
            self._write(part, spans, links)
        self.weights.pop(process, None)

    def forget_parents(self, lost: list[int]) -> None:
        """The spans with these keys were lost: what lies in them has no parent."""
        import pyarrow.compute as pc

        keys = np.sort(np.array(lost, np.int64))
        for part in self.parts:
            at = np.searchsorted(keys, part.keys[0])
            if at == len(keys) or keys[at] > part.keys[1]:
                continue
            spans, links = self._read(part)
            known = pc.if_else(
                pc.is_in(spans["parent"], pa.array(keys)),
                pa.scalar(None, pa.int64()),
                spans["parent"],
            )
            self._write(part, with_column(spans, "parent", known), links)

    def finish(self) -> None:
        """No more parts will come: write what is not on disk, and count its durations if the run
        was thinned.
        """
        for part in self.parts:
            self._settle(part)
        if self.is_thinned:
            self._count_new()

    # -- thinning ----------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Thin what is old while there is too much; returns the memory that this and others
        took.
        """
        for part in self.parts[slice(*self._middle())]:
            if part.fresh is not None:  # it is one of the last no more
                self._thin([part])
        while self._is_over():
            middle = self.parts[slice(*self._middle())]
            candidates = [part for part in middle if part.level < self._level]
            if candidates:
                self._thin(self._group(candidates))
            elif (
                max(counts_of(middle), default=0) > 1
                and sum(part.rows for part in middle) > self.limits.window_spans
            ):
                self._level *= 2  # otherwise it is the first and the last parts that take the room
            else:
                break
        if self.is_thinned:  # the prompt waits for what is left to do at the end
            self._count_new()
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)

    def _is_over(self) -> bool:
        size_bytes = sum(part.size_bytes for part in self.parts)
        return self.rows > self.limits.most_spans or size_bytes > self.limits.most_table_bytes

    def _middle(self) -> tuple[int, int]:
        """Places of the parts between the first and the last ones."""
        rows = np.array([part.rows for part in self.parts])
        first = int(np.searchsorted(np.cumsum(rows), self.limits.window_spans)) + 1
        last = int(np.searchsorted(np.cumsum(rows[::-1]), self.limits.window_spans)) + 1
        return first, max(first, len(self.parts) - last)

    def _group(self, candidates: list[Part]) -> list[Part]:
        """The first parts that are to be thinned together: steps may be so large that a part holds
        one.
        """
        level = candidates[0].level
        factor = self._level // level
        for upto in range(1, len(candidates)):
            counts = counts_of(candidates[:upto])
            is_enough = max(counts, default=0) >= factor and (
                min(counts) >= factor or upto >= factor
            )
            if is_enough or candidates[upto].level != level:
                return candidates[:upto]
        return candidates

    def _thin(self, group: list[Part]) -> None:
        """Keep one of every few units of these parts, so that it stands for as many as those of the
        others do.
        """
        self.is_thinned = True
        chosen: list[dict[int, np.ndarray]] = [{} for _ in group]
        for process in {process for part in group for process in part.units}:
            mine = [at for at, part in enumerate(group) if process in part.units]
            units = [group[at].units[process] for at in mine]
            weight = choose(reduce(Units.joined, units), max(1, self._level // group[0].level))
            for at, own in zip(
                mine, np.split(weight, np.cumsum([len(one) for one in units])[:-1]), strict=True
            ):
                chosen[at][process] = own
        for part, weights in zip(group, chosen, strict=True):
            self._thin_one(part, weights)

    def _thin_one(self, part: Part, weights: dict[int, np.ndarray]) -> None:
        """Keep those units of a part that have a weight, by process."""
        if not part.is_counted:
            self._count_durations(part)
        keep, weight = self._fate(part, weights)
        part.level = self._level
        if part.fresh is not None:
            columns, links = part.fresh
            columns["weight"] = weight
            columns = taken(columns, np.flatnonzero(keep))
            ends = np.isin(links["from_span"], columns["span"]) & np.isin(
                links["to_span"], columns["span"]
            )
            part.fresh = columns, taken(links, np.flatnonzero(ends))
            self._settle(part)
        else:
            import pyarrow.compute as pc

            spans, known = self._kept(part, keep, weight), self._read_links(part)
            stay = pc.and_(
                *(
                    pc.is_in(known[name], spans["span"].combine_chunks())
                    for name in ("from_span", "to_span")
                )
            )
            self._write(part, spans, known.filter(stay))
        self._join(part)

    def _fate(self, part: Part, weights: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Which spans of a part stay, and their weights; the units of the part are then those that
        stay.
        """
        if part.fresh is not None:
            columns = part.fresh[0]
        else:
            data = self._read_spans(part, ["start_ns", "dur_ns", "track", "step", "weight"])
            columns = {name: data[name].fill_null(-1).to_numpy() for name in data.column_names}
        start_ns, end_ns, step = (
            columns["start_ns"],
            columns["start_ns"] + columns["dur_ns"],
            columns["step"],
        )
        weight, keep = columns["weight"].copy(), np.ones(len(start_ns), np.bool_)
        of = self.process_of[columns["track"]]
        for process, units in part.units.items():
            rows = np.flatnonzero(of == process)
            place = units.place(start_ns[rows], end_ns[rows], step[rows])
            in_unit = rows[place >= 0]
            weight[in_unit] = weights[process][place[place >= 0]]
            keep[in_unit] = weight[in_unit] > 0
            self._note_weights(process, units, weights[process])
            kept = np.flatnonzero(weights[process])
            part.units[process] = units.taken(kept, weights[process][kept])
        return keep, weight

    def _kept(self, part: Part, keep: np.ndarray, weight: np.ndarray) -> pa.Table:
        """Those spans of a part that stay, with their new weights, read piece by piece."""
        parquet = pq.ParquetFile(self._files(part)[0])
        pieces, at = [], 0
        for batch in parquet.iter_batches(PIECE_ROWS):
            rows = slice(at, at + batch.num_rows)
            pieces.append(
                with_column(batch, "weight", pa.array(weight[rows])).filter(pa.array(keep[rows]))
            )
            at += batch.num_rows
        return pa.Table.from_batches(pieces, parquet.schema_arrow).unify_dictionaries()

    def _note_weights(self, process: int, units: Units, weight: np.ndarray) -> None:
        steps = units.step >= 0  # the others are slices
        known = self.weights.get(process, np.zeros(0, np.int32))
        fresh = int(units.step.max(initial=-1)) + 1 - len(known)
        if fresh > 0:
            known = np.concatenate([known, np.ones(fresh, np.int32)])
        known[units.step[steps]] = weight[steps]
        self.weights[process] = known

    def _join(self, part: Part) -> None:
        """Put a part that has become small together with the one before it, if that is thinned as
        much.
        """
        at = self.parts.index(part)
        if at == 0:
            return
        before = self.parts[at - 1]
        if before.level != part.level or before.rows + part.rows > self.limits.epoch_spans // 2:
            return
        tables = zip(self._read(before), self._read(part), strict=True)
        for process, units in part.units.items():
            known = before.units.get(process)
            before.units[process] = known.joined(units) if known is not None else units
        ranges = [one.keys for one in (before, part) if one.keys[1] >= 0]
        before.keys = (
            min((a for a, _ in ranges), default=0),
            max((b for _, b in ranges), default=-1),
        )
        self._write(before, *(pa.concat_tables(pair, promote_options="default") for pair in tables))
        for file in self._files(part):
            file.unlink(missing_ok=True)
        self.rows -= part.rows
        self.links -= part.links
        self.primitives -= part.primitives
        self.parts.remove(part)

    def _count_new(self) -> None:
        for part in self.parts:
            if not part.is_counted:
                self._count_durations(part)

    def _count_durations(self, part: Part) -> None:
        """Put the durations of a whole part into their bins."""
        part.is_counted = True
        if part.fresh is not None:
            columns = part.fresh[0]
            kind, name = columns["kind_code"], columns["name_code"]
        else:
            data = self._read_spans(
                part, ["kind", "name", "module", "step", "track", "dur_ns", "unfinished"]
            )
            kind = codes_of(data["kind"], {kind: i for i, kind in enumerate(KINDS)})
            name = codes_of(data["name"], self.texts.names)
            columns = {
                column: (
                    data[column].fill_null(-1) if data[column].null_count else data[column]
                ).to_numpy()
                for column in ("module", "step", "track", "dur_ns", "unfinished")
            }
        done = np.flatnonzero(~columns["unfinished"])
        keys = keys_of(kind, name, columns["module"], columns["step"] >= 0)
        for process, rows in by_process(self.process_of[columns["track"][done]]):
            self.totals.add_durations(process, keys[done[rows]], columns["dur_ns"][done[rows]])

    # -- files -------------------------------------------------------------------------------------

    def _files(self, part: Part) -> tuple[Path, Path, Path]:
        name = f"part-{part.number:05d}.parquet"
        return (
            self.folder / "spans" / name,
            self.folder / "links" / name,
            self.folder / "primitives" / name,
        )

    def _settle(self, part: Part) -> None:
        """Write a part that is not on disk."""
        if part.fresh is not None:
            columns, links = part.fresh
            kind = codes_to_names(links["kind_code"].astype(np.int32), pa.array(LINKS))
            self._write(
                part,
                as_table(columns, self.texts),
                to_arrow(TABLES["links"], links | {"kind": kind}),
            )

    def _read(self, part: Part) -> tuple[pa.Table, pa.Table]:
        self._settle(part)
        return self._read_spans(part), self._read_links(part)

    def _read_spans(self, part: Part, columns: list[str] | None = None) -> pa.Table:
        return pq.ParquetFile(self._files(part)[0]).read(columns)

    def _read_links(self, part: Part) -> pa.Table:
        return pq.ParquetFile(self._files(part)[1]).read()

    def _write(self, part: Part, spans: pa.Table, links: pa.Table) -> None:
        files = self._files(part)
        part.fresh = None
        for file in files:
            # A rename over a file makes ext4 write it out at once, and the drainer, if it writes
            # just then, waits.
            file.unlink(missing_ok=True)
        primitives = self._primitive_rows.table(spans, links)
        for name, data, file in zip(
            ("spans", "links", "primitives"), (spans, links, primitives), files, strict=True
        ):
            write_parquet(TABLES[name], data, file)
        self.rows += spans.num_rows - part.rows
        self.links += links.num_rows - part.links
        self.primitives += primitives.num_rows - part.primitives
        part.rows, part.links, part.primitives = spans.num_rows, links.num_rows, primitives.num_rows
        part.size_bytes = sum(file.stat().st_size for file in files)


def with_column(data: Any, name: str, values: Any) -> Any:
    """A table or a batch with other values in one of its columns."""
    place = data.schema.names.index(name)
    return data.set_column(place, data.schema.field(place), values)


def counts_of(parts: list[Part]) -> list[int]:
    """How many units each process has in these parts, steps and slices apart, without those it has
    none of.
    """
    counts: dict[tuple[int, bool], int] = {}
    for part in parts:
        for process, units in part.units.items():
            steps = int(np.count_nonzero(units.step >= 0))
            for is_step, count in ((True, steps), (False, len(units) - steps)):
                counts[process, is_step] = counts.get((process, is_step), 0) + count
    return [count for count in counts.values() if count]


def by_process(of: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The places of the rows of each process; `of` is the process of each row."""
    if not len(of):
        return
    if (of == of[0]).all():
        yield int(of[0]), np.arange(len(of))
        return
    order = np.argsort(of, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        yield int(of[rows[0]]), rows
