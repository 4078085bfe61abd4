"""From allocations and releases to blocks: the table `allocations`.

Events come in the order of time, process by process. A release ends the block that lies at its
address; an allocation where a block lies already shows that the release of that one was lost. Only
blocks that have not been released are kept in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.string_table import StringTable
from layerscope.model.events import Problem
from layerscope.model.layers import MEMORY as LAYER
from layerscope.model.layers import PHASES
from layerscope.model.memory import ALLOCATORS, CPU
from layerscope.recording.arrow_columns import arrow_array
from layerscope.recording.writer import TableWriter, codes_to_names
from layerscope.sources.process import MEMORY, STOP

# A part of the table has so many rows at least.
PART_ROWS = 1 << 19
# Pairing sorts what is live with what is new: of less there are more sorts than work.
LEAST_BATCH_ROWS = 1 << 16
# Of what a recording may take on disk, before blocks that live shortly are left out.
MOST_SHARE = 0.25
SHORT_NS = 1_000_000_000


class Paired(Struct):
    """Of events in the order of time: which allocations ended, and when; which are live."""

    ended: np.ndarray
    end_ns: np.ndarray
    is_lost: np.ndarray
    live: np.ndarray


def pair(events: np.ndarray) -> Paired:
    """Pair allocations with releases; `events`: rows of `MEMORY`. Places are into `events`."""
    order = np.argsort(events["address"], kind="stable")
    address = events["address"][order]
    is_release = events["is_release"][order] != 0
    same = np.zeros(len(order), np.bool_)
    same[:-1] = address[1:] == address[:-1]
    after_release = np.zeros(len(order), np.bool_)
    after_release[:-1] = is_release[1:]
    allocation = np.flatnonzero(~is_release)
    has_end = same[allocation]
    ended, live = allocation[has_end], allocation[~has_end]
    return Paired(
        ended=order[ended],
        end_ns=events["at_ns"][order[ended + 1]],
        is_lost=~after_release[ended],
        live=np.sort(order[live]),
    )


class _OfProcess(Struct):
    """`live`: rows of `MEMORY`, allocations that were not released yet; `waiting`: what comes after
    them.
    """

    process: IngestedProcess
    live: np.ndarray = field(default_factory=lambda: np.zeros(0, MEMORY))
    waiting: list[np.ndarray] = field(default_factory=list)
    waiting_rows: int = 0


class AllocationIngest:
    """Pairs the events of all processes and writes the blocks. Releases of what was not recorded
    say nothing: libraries give other things back too. `lost`: blocks whose release was lost;
    `stopped`: how often recording stopped before the end; `with_losses`: processes whose records
    were not all recorded. `left_out`, `left_out_bytes`: blocks that the table has no room for.
    """

    def __init__(self, tables: Path, texts: StringTable, most_bytes: float) -> None:
        self.in_windows = False
        self.lost = self.left_out = self.left_out_bytes = self.stopped = self.with_losses = 0
        self._texts = texts
        self._most_bytes = MOST_SHARE * most_bytes
        self._writer = TableWriter(tables, "allocations")
        self._of: dict[int, _OfProcess] = {}
        self._parts: list[dict[str, np.ndarray]] = []
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows that were written."""
        return self._writer.rows

    @property
    def size_bytes(self) -> int:
        """What they take on disk."""
        return self._writer.size_bytes

    def add(self, process: IngestedProcess, last: bool = False) -> None:
        """Take in what can be judged of a process; `last`: nothing more will come of it."""
        events = self._in_windows(process, process.events.memory(last))
        if not len(events) and process.number not in self._of:
            return
        of = self._of.setdefault(process.number, _OfProcess(process))
        of.waiting.append(events)
        of.waiting_rows += len(events)
        if last or of.waiting_rows >= max(LEAST_BATCH_ROWS, len(of.live)):
            self._pair(of)
        if last:
            self.with_losses += bool(process.events.losses)
            self._end_all(of, -1)
            del self._of[process.number]

    def _in_windows(self, process: IngestedProcess, events: np.ndarray) -> np.ndarray:
        """Without what was allocated outside of the windows that were asked for, as with spans."""
        window = process.windows.known(process.events.window_marks)
        if not window.known or not len(events):
            return events
        is_kept = window.holds(events["at_ns"]) | (events["is_release"] != 0)
        return events.compress(is_kept)

    def finish(self) -> None:
        """Write what is left, as the finished table."""
        self._write()
        self._writer.join()

    def problems(self) -> list[Problem]:
        """What has to be said of blocks that are not whole."""
        found = list[Problem]()
        if self.lost:
            what = f"the releases of {self.lost:,} blocks were lost"
            lost = "how long these blocks lived"
            remedy = "see the table `gaps` for why"
            found.append(Problem(LAYER, "releases_lost", what, remedy, lost))
        if self.with_losses and self.rows:
            what = "records were lost while allocations were recorded"
            remedy = "see the table `gaps` for when"
            lost = "some blocks; others look live to the end, since their release was lost"
            found.append(Problem(LAYER, "memory_gaps", what, remedy, lost))
        if (self.in_windows or self.stopped) and self.rows:
            what = "allocations and releases were recorded in parts of the run alone"
            remedy = "record all of it to see all that is live: no --steps, no --after, no pause"
            lost = "blocks from before such a part, and how long those live that outlive it"
            found.append(Problem(LAYER, "blocks_of_windows", what, remedy, lost))
        if self.left_out:
            what = (
                f"{self.left_out:,} blocks that lived less than a second "
                f"({self.left_out_bytes / 1e9:,.1f} GB in all) are not in the table, to keep the "
                "recording small"
            )
            remedy = "record fewer steps (--steps), or all of them: run --full"
            found.append(Problem(LAYER, "blocks_left_out", what, remedy, "these blocks"))
        return found

    def _pair(self, of: _OfProcess) -> None:
        events = np.concatenate(of.waiting)
        of.waiting, of.waiting_rows = [], 0
        stops = np.flatnonzero(events["is_release"] == STOP)
        first = 0
        for stop in stops.tolist():
            self._pair_some(of, events[first:stop])
            self.stopped += 1
            self._end_all(of, int(events["at_ns"][stop]))
            first = stop + 1
        self._pair_some(of, events[first:])

    def _pair_some(self, of: _OfProcess, fresh: np.ndarray) -> None:
        """Of a stretch that was recorded without a stop."""
        events = np.concatenate([of.live, fresh])
        paired = pair(events)
        self.lost += int(np.count_nonzero(paired.is_lost))
        ended = events.take(paired.ended)
        self._add_blocks(of.process, ended, paired.end_ns, paired.is_lost)
        of.live = events.take(paired.live)

    def _end_all(self, of: _OfProcess, at_ns: int) -> None:
        """Recording stops: blocks are known to have lived until then; -1: it is the end of all."""
        end_ns = np.full(len(of.live), at_ns, np.int64)
        is_lost = np.zeros(len(of.live), np.bool_)
        self._add_blocks(of.process, of.live, end_ns, is_lost)
        of.live = of.live[:0]

    def _add_blocks(
        self,
        process: IngestedProcess,
        blocks: np.ndarray,
        end_ns: np.ndarray,
        is_lost: np.ndarray,
    ) -> None:
        """Blocks of a process; an end of -1: there was none."""
        dur_ns = np.where(end_ns < 0, -1, np.maximum(end_ns - blocks["at_ns"], 0))
        dur_ns[is_lost] = -1
        if self._writer.size_bytes > self._most_bytes:
            is_short = (dur_ns >= 0) & (dur_ns < SHORT_NS)
            self.left_out += int(np.count_nonzero(is_short))
            self.left_out_bytes += int(blocks["bytes"][is_short].sum())
            blocks, dur_ns = blocks.compress(~is_short), dur_ns[~is_short]
            is_lost = is_lost[~is_short]
        if not len(blocks):
            return
        self._parts.append(self._columns(process, blocks, dur_ns, is_lost))
        self._rows += len(blocks)
        if self._rows >= PART_ROWS:
            self._write()

    def _columns(
        self, process: IngestedProcess, blocks: np.ndarray, dur_ns: np.ndarray, is_lost: np.ndarray
    ) -> dict[str, np.ndarray]:
        texts, track = process.texts, blocks["track"]
        number, place = np.unique(track, return_inverse=True)
        keys = np.array([process.track_key(one) for one in number.tolist()], np.int32)
        codes = {
            "device": self._or_usual(texts.names(blocks["device"]), blocks["device"], CPU),
            "operator": self._or_usual(texts.names(blocks["operator"]), blocks["operator"], ""),
        }
        return {
            "track": keys[place],
            "at_ns": blocks["at_ns"],
            "dur_ns": dur_ns,
            "bytes": blocks["bytes"],
            "module": texts.modules(blocks["module"]),
            "line": texts.lines(blocks["line"]),
            "allocator": np.minimum(blocks["allocator"], len(ALLOCATORS) - 1).astype(np.int32),
            "phase": np.minimum(blocks["phase"], len(PHASES) - 1).astype(np.int32),
            "is_lost": is_lost,
            **codes,
        }

    def _or_usual(self, codes: np.ndarray, numbers: np.ndarray, usual: str) -> np.ndarray:
        """`codes` of names, that of `usual` where the process says nothing."""
        code = self._texts.name(usual)
        chosen = np.where(numbers == 0, code, codes)
        return chosen.astype(np.int32)

    def _write(self) -> None:
        """A part of the blocks that came, in the order of time."""
        if not self._parts:
            return
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]
        }
        self._parts, self._rows = [], 0
        order = np.argsort(columns["at_ns"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        names = list(self._texts.names)
        for name in ("device", "operator"):
            columns[name] = _used(columns[name], names)
        # Of no line, and of a line that was lost, the last one.
        lines = [*self._texts.lines, ""]
        line = np.where(columns["line"] < 0, len(lines) - 1, columns["line"])
        columns["line"] = _used(line, lines)
        columns["allocator"] = codes_to_names(columns["allocator"], pa.array(ALLOCATORS))
        columns["phase"] = codes_to_names(columns["phase"], pa.array(PHASES))
        for name in ("dur_ns", "module"):
            columns[name] = arrow_array(columns[name], columns[name] >= 0)
        self._writer.add(columns)


def _used(codes: np.ndarray, texts: list[str]) -> pa.DictionaryArray:
    """The texts of these codes; the dictionary has only those that occur."""
    used, place = np.unique(codes, return_inverse=True)
    names = [texts[code] for code in used.tolist()]
    dictionary = pa.array(names, pa.string())
    return codes_to_names(place, dictionary)
