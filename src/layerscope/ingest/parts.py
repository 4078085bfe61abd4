"""The parts of the tables `spans`, `links` and `primitives` on disk: each a stretch of the run.

Where there are too many they are thinned: the first parts and the newest ones stay whole, and of
those between them one of every few units of a process stays (`thinning`), fewer and fewer while the
run goes on; what was thinned much is put together into fewer parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from layerscope.ingest.limits import IngestLimits
from layerscope.ingest.primitives import PrimitiveRows
from layerscope.ingest.spans import Columns, as_table, codes_of, kinds_of, taken
from layerscope.ingest.string_table import StringTable
from layerscope.ingest.totals import SpanTotals, keys_of
from layerscope.model.layers import LINKS
from layerscope.model.schema import TABLES
from layerscope.recording.arrow_columns import numbers_of
from layerscope.recording.thinning import Units, choose
from layerscope.recording.writer import codes_to_names, to_arrow, write_parquet

# Rows that are in memory with all their columns when a part is read to be thinned.
PIECE_ROWS = 1 << 16
# Parts that are not written yet may have so many rows.
MOST_FRESH_EPOCHS = 4


class Part(Struct):
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


class Parts:
    """The parts of one conversion, oldest first. `totals` learns the durations of what is
    thinned.
    """

    def __init__(
        self, folder: Path, texts: StringTable, totals: SpanTotals, limits: IngestLimits
    ) -> None:
        self.folder = folder
        self.texts = texts
        self.totals = totals
        self.limits = limits
        self.rows = 0
        self.links = 0
        self.primitives = 0
        self.parts: list[Part] = []
        self.weights: dict[int, np.ndarray] = {}  # by process and step number, where thinned
        self.process_of = np.zeros(0, np.int32)  # by track
        self.is_thinned = False  # whether a span may stand for others
        self._next = 0
        self._level = 1
        self._primitive_rows = PrimitiveRows(texts.args)

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
        rows = len(columns["span"])
        columns["weight"] = np.ones(rows, np.int32)
        part = Part(
            number=self._next,
            rows=rows,
            links=len(links["from_span"]),
            primitives=0,
            size_bytes=0,
            units=units,
            keys=_key_range(columns["parent"]),
            fresh=(columns, links),
        )
        self._next += 1
        self.parts.append(part)
        self.rows += part.rows
        self.links += part.links
        self._settle_oldest()

    def _settle_oldest(self) -> None:
        """Write the oldest parts that are not on disk, until no more rows than allowed are not."""
        most = MOST_FRESH_EPOCHS * self.limits.epoch_spans if self.is_thinned else 0
        fresh = [part for part in self.parts if part.fresh is not None]
        fresh_rows = sum(part.rows for part in fresh)
        for part in fresh:
            if fresh_rows <= most:
                break
            fresh_rows -= part.rows
            self._settle(part)

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
            least, largest = part.keys
            next_lost = np.searchsorted(keys, least)
            if next_lost == len(keys) or keys[next_lost] > largest:
                continue
            spans, links = self._read(part)
            is_lost = pc.is_in(spans["parent"], pa.array(keys))
            nothing = pa.scalar(None, pa.int64())
            parent = pc.if_else(is_lost, nothing, spans["parent"])
            spans = with_column(spans, "parent", parent)
            self._write(part, spans, links)

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
        for part in self._middle():
            if part.fresh is not None:  # it is one of the last no more
                self._thin([part])
        while self._is_over():
            middle = self._middle()
            candidates = [part for part in middle if part.level < self._level]
            if candidates:
                self._thin(self._group(candidates))
            elif self._can_thin_more(middle):
                self._level *= 2
            else:
                break
        if self.is_thinned:  # the prompt waits for what is left to do at the end
            self._count_new()

    def _can_thin_more(self, middle: list[Part]) -> bool:
        """Whether it is these parts that take the room, not the first and the last ones, and some
        of their units can go.
        """
        most_units = max(counts_of(middle), default=0)
        rows = sum(part.rows for part in middle)
        return most_units > 1 and rows > self.limits.window_spans

    def _is_over(self) -> bool:
        """Whether there are more spans or bytes than the limits allow."""
        if self.rows > self.limits.most_spans:
            return True
        size_bytes = sum(part.size_bytes for part in self.parts)
        return size_bytes > self.limits.most_table_bytes

    def _middle(self) -> list[Part]:
        """The parts between the first and the last ones."""
        rows = np.array([part.rows for part in self.parts])
        first = self._window_parts(rows)
        last = len(self.parts) - self._window_parts(rows[::-1])
        return self.parts[first : max(first, last)]

    def _window_parts(self, rows: np.ndarray) -> int:
        """How many parts from the first of these on are never thinned, by their numbers of rows."""
        until = np.cumsum(rows)
        full = np.searchsorted(until, self.limits.window_spans)
        return int(full) + 1

    def _group(self, candidates: list[Part]) -> list[Part]:
        """The first parts that are to be thinned together: steps may be so large that a part holds
        one.
        """
        level = candidates[0].level
        factor = self._level // level
        for stop in range(1, len(candidates)):
            group = candidates[:stop]
            next_level = candidates[stop].level
            if next_level != level or _is_enough(group, factor):
                return group
        return candidates

    def _thin(self, group: list[Part]) -> None:
        """Keep one of every few units of these parts, so that it stands for as many as those of the
        others do.
        """
        self.is_thinned = True
        factor = max(1, self._level // group[0].level)
        weights_of: dict[int, dict[int, np.ndarray]] = {part.number: {} for part in group}
        for process in {process for part in group for process in part.units}:
            parts = [part for part in group if process in part.units]
            units = [part.units[process] for part in parts]
            weight = choose(reduce(Units.joined, units), factor)
            bounds = np.cumsum([len(one) for one in units])[:-1]
            for part, own in zip(parts, np.split(weight, bounds), strict=True):
                weights_of[part.number][process] = own
        for part in group:
            self._thin_one(part, weights_of[part.number])

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
            part.fresh = columns, _links_between(columns["span"], links)
            self._settle(part)
        else:
            import pyarrow.compute as pc

            spans = self._staying(part, keep, weight)
            links_table = self._read_links(part)
            keys = spans["span"].combine_chunks()
            from_stays = pc.is_in(links_table["from_span"], keys)
            to_stays = pc.is_in(links_table["to_span"], keys)
            stay = pc.and_(from_stays, to_stays)
            self._write(part, spans, links_table.filter(stay))
        self._join(part)

    def _fate(self, part: Part, weights: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Which spans of a part stay, and their weights; the units of the part are then those that
        stay.
        """
        if part.fresh is not None:
            columns = part.fresh[0]
        else:
            data = self._read_spans(part, ["start_ns", "dur_ns", "track", "step", "weight"])
            columns = {name: numbers_of(data[name]) for name in data.column_names}
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

    def _staying(self, part: Part, keep: np.ndarray, weight: np.ndarray) -> pa.Table:
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
        """Remember what the steps among these units stand for from now on."""
        is_step = units.step >= 0  # the others are slices
        known = self.weights.get(process, np.zeros(0, np.int32))
        count = int(units.step.max(initial=-1)) + 1
        if count > len(known):
            new = np.ones(count - len(known), np.int32)
            known = np.concatenate([known, new])
        known[units.step[is_step]] = weight[is_step]
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
                part, ["layer", "kind", "name", "module", "step", "track", "dur_ns", "unfinished"]
            )
            kind = kinds_of(data)
            name = codes_of(data["name"], self.texts.names)
            numbers = ("module", "step", "track", "dur_ns")
            columns = {column: numbers_of(data[column]) for column in numbers}
            columns["unfinished"] = data["unfinished"].to_numpy()
        done = np.flatnonzero(~columns["unfinished"])
        keys = keys_of(kind, name, columns["module"], columns["step"] >= 0)
        for process, rows in by_process(self.process_of[columns["track"][done]]):
            self.totals.add_durations(process, keys[done[rows]], columns["dur_ns"][done[rows]])

    # -- files -------------------------------------------------------------------------------------

    def _files(self, part: Part) -> tuple[Path, Path, Path]:
        """The files of a part's spans, links and primitives."""
        name = f"part-{part.number:05d}.parquet"
        spans = self.folder / "spans" / name
        links = self.folder / "links" / name
        primitives = self.folder / "primitives" / name
        return spans, links, primitives

    def _settle(self, part: Part) -> None:
        """Write a part that is not on disk."""
        if part.fresh is None:
            return
        columns, links = part.fresh
        codes = links["kind_code"].astype(np.int32)
        kind = codes_to_names(codes, pa.array(LINKS))
        spans_table = as_table(columns, self.texts)
        links_table = to_arrow(TABLES["links"], links | {"kind": kind})
        self._write(part, spans_table, links_table)

    def _read(self, part: Part) -> tuple[pa.Table, pa.Table]:
        """The spans of a part and the links between them."""
        self._settle(part)
        spans = self._read_spans(part)
        links = self._read_links(part)
        return spans, links

    def _read_spans(self, part: Part, columns: list[str] | None = None) -> pa.Table:
        """The spans of a part that is on disk; None: with all columns."""
        file, _, _ = self._files(part)
        parquet = pq.ParquetFile(file)
        return parquet.read(columns)

    def _read_links(self, part: Part) -> pa.Table:
        """The links of a part that is on disk."""
        _, file, _ = self._files(part)
        parquet = pq.ParquetFile(file)
        return parquet.read()

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


def _is_enough(group: list[Part], factor: int) -> bool:
    """Whether of every process that has units in these parts one of `factor` can stay."""
    counts = counts_of(group)
    if max(counts, default=0) < factor:
        return False
    return min(counts) >= factor or len(group) >= factor


def _key_range(parent: np.ndarray) -> tuple[int, int]:
    """The least and the largest of these parents; (0, -1) where there is none."""
    known = parent[parent >= 0]
    if not len(known):
        return 0, -1
    least = int(known.min())
    largest = int(known.max())
    return least, largest


def _links_between(span: np.ndarray, links: Columns) -> Columns:
    """Those links that go from one of these spans to another one of them."""
    from_stays = np.isin(links["from_span"], span)
    to_stays = np.isin(links["to_span"], span)
    rows = np.flatnonzero(from_stays & to_stays)
    return taken(links, rows)


def with_column(data: Any, name: str, values: Any) -> Any:
    """A table or a batch with other values in one of its columns."""
    place = data.schema.names.index(name)
    return data.set_column(place, data.schema.field(place), values)


def counts_of(parts: list[Part]) -> list[int]:
    """How many units each process has in these parts, steps and slices apart, without those it has
    none of.
    """
    counts: Counter[tuple[int, bool]] = Counter()
    for part in parts:
        for process, units in part.units.items():
            steps = int(np.count_nonzero(units.step >= 0))
            counts[process, True] += steps
            counts[process, False] += len(units) - steps
    return [count for count in counts.values() if count]


def by_process(process: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The positions of the rows of each process; `process` is the process of each row."""
    if not len(process):
        return
    first = process[0]
    if (process == first).all():
        yield int(first), np.arange(len(process))
        return
    order = np.argsort(process, kind="stable")
    bounds = np.flatnonzero(np.diff(process[order])) + 1
    for rows in np.split(order, bounds):
        yield int(process[rows[0]]), rows
