"""From the raw files of a recording to its tables, while the files still grow or long after.

Puts together what `collect` reads, `store` computes and writes, and `analyse` finds; the same code
converts beside a running program, after it, and an old recording again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscope.analyse.steps import SpanColumns, Steps, find_steps
from layerscope.collect import spool
from layerscope.collect.layers.operators import Decoder
from layerscope.model.layers import KINDS, OPERATORS, PHASES
from layerscope.model.schema import TABLES
from layerscope.model.secrets import mask
from layerscope.store.nesting import Keys, TrackNesting
from layerscope.store.writer import TableWriter, codes_to_names, to_arrow, write_rows

# A part is written when this many spans wait: 40 MB of memory, and row groups that compress well.
PART_SPANS = 500_000
# Below this a batch costs more in overhead than in work.
BATCH_RECORDS = 50_000
READING_EVERY_NS = 1_000_000_000
_CODES = ("track", "kind_code", "name_code")


@dataclass(slots=True)
class Process:
    """One raw file on its way into the tables."""

    number: int
    host: str
    reader: spool.SpoolReader
    decoder: Decoder = field(default_factory=Decoder)
    name_codes: list[int] = field(default_factory=list)
    tracks: dict[int, int] = field(default_factory=dict)
    nesting: dict[int, TrackNesting] = field(default_factory=dict)
    optimizers: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


class RunConversion:
    """Converts the recording whose raw files are in `raw` into Parquet below `tables`."""

    def __init__(self, raw: Path, tables: Path) -> None:
        self.raw = raw
        self.tables = tables
        self.processes: dict[Path, Process] = {}
        self.rows: dict[str, int] = {}
        self._keys = Keys()
        self._names: dict[str, int] = {}
        self._next_track = 0
        self._spans = TableWriter(tables, "spans")
        self._buffer: list[dict[str, np.ndarray]] = []
        self._buffered = 0

    def advance(self) -> int:
        """Read what is new in the raw files; returns the number of records that were read."""
        before = sum(process.decoder.records for process in self.processes.values())
        for path in sorted(self.raw.glob("*/spool")):
            process = self.processes.get(path)
            if process is None:
                host = path.parent.name.rsplit("-", 2)[0]
                process = self.processes[path] = Process(len(self.processes), host, spool.SpoolReader(path))
            for chunk in process.reader.chunks():
                process.decoder.add(chunk)
                if process.decoder.waiting >= BATCH_RECORDS and chunk.kind == spool.POLL:
                    self._take(process, process.decoder.batch())
        return sum(process.decoder.records for process in self.processes.values()) - before

    def finish(self, session: dict[str, Any]) -> None:
        """Write everything that is left, and the tables that only the end knows."""
        self.advance()
        for process in self.processes.values():
            self._take(process, process.decoder.batch(last=True))
            for nesting in process.nesting.values():
                nesting.finish()
        spans = self._all_spans()
        found = self._find_steps(spans)
        self._write_spans(spans, found)
        self._write_steps(found)
        self._write_totals(spans)
        self._write_small(session)

    # -- spans -------------------------------------------------------------------------------------

    def _take(self, process: Process, batch: np.ndarray) -> None:
        """Give the spans of a batch keys, parents and self times, and put them aside for the next part."""
        if not len(batch):
            return
        order = np.argsort(batch["track"], kind="stable")
        batch = batch[order]
        tracks, firsts = np.unique(batch["track"], return_index=True)
        for track, rows in zip(tracks.tolist(), np.split(batch, firsts[1:]), strict=True):
            self._take_track(process, track, rows)
        if self._buffered >= PART_SPANS:
            self._spans.add(self._arrow_columns(self._drain_buffer()))

    def _take_track(self, process: Process, track: int, rows: np.ndarray) -> None:
        nesting = process.nesting.setdefault(track, TrackNesting(self._keys))
        start, end = rows["start"].astype(np.int64), rows["end"].astype(np.int64)
        end = np.maximum(end, start)
        nested = nesting.add(start, end, rows["depth"])
        numbered = np.flatnonzero(rows["optimizer"])
        if len(numbered):
            process.optimizers.append((nested.key[numbered], rows["optimizer"][numbered]))
        self._buffer.append(
            {
                "span": nested.key,
                "track": np.full(len(rows), self._track_key(process, track), np.int32),
                "parent": nested.parent,
                "depth": rows["depth"],
                "start_ns": start,
                "dur_ns": end - start,
                "self_ns": nested.self_ns,
                "kind_code": rows["kind"].astype(np.int32),
                "name_code": self._codes(process, rows["name"]),
                "seq": rows["seq"],
                "unfinished": rows["unfinished"].astype(bool),
            }
        )
        self._buffered += len(rows)

    def _track_key(self, process: Process, track: int) -> int:
        if track not in process.tracks:
            process.tracks[track] = self._next_track
            self._next_track += 1
        return process.tracks[track]

    def _codes(self, process: Process, names: np.ndarray) -> np.ndarray:
        """The recording's own number for each of the process's names."""
        known = process.decoder.names
        for text in known[len(process.name_codes) :]:
            process.name_codes.append(self._names.setdefault(text, len(self._names)))
        missing = int(names.max()) + 1 - len(process.name_codes)
        if missing > 0:  # a name whose text was lost with the tail of a cut file
            lost = self._names.setdefault("(name lost)", len(self._names))
            return np.array(process.name_codes + [lost] * missing, np.int32)[names]
        return np.array(process.name_codes, np.int32)[names]

    def _drain_buffer(self) -> dict[str, np.ndarray]:
        columns = {name: np.concatenate([part[name] for part in self._buffer]) for name in self._buffer[0]}
        self._buffer, self._buffered = [], 0
        return columns

    def _arrow_columns(self, columns: dict[str, np.ndarray]) -> dict[str, Any]:
        count = len(columns["span"])
        parent, seq = columns["parent"], columns["seq"]
        arrow: dict[str, Any] = {name: value for name, value in columns.items() if not name.endswith("_code")}
        arrow["parent"] = pa.array(parent, mask=parent < 0)
        arrow["seq"] = pa.array(seq, mask=seq < 0)
        arrow["layer"] = codes_to_names(np.zeros(count, np.int32), pa.array([OPERATORS]))
        arrow["kind"] = codes_to_names(columns["kind_code"], pa.array(KINDS))
        arrow["name"] = codes_to_names(columns["name_code"], pa.array(list(self._names), pa.string()))
        arrow["weight"] = np.ones(count, np.int32)
        return arrow

    def _all_spans(self) -> dict[str, np.ndarray]:
        """Every span, from the parts and from memory, in the order of their tracks and starts."""
        pieces = []
        for part in sorted((self.tables / "spans").glob("part-*.parquet")):
            pieces.append(_from_part(pq.read_table(part), self._names))
        if self._buffer:
            pieces.append(self._drain_buffer())
        if not pieces:
            return {}
        columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        lost = [key for process in self.processes.values() for n in process.nesting.values() for key in n.never_came]
        if lost:
            columns["parent"][np.isin(columns["parent"], np.array(lost, np.int64))] = -1
        order = np.lexsort((columns["depth"], columns["start_ns"], columns["track"]))
        return {name: values[order] for name, values in columns.items()}

    # -- what only the end knows -------------------------------------------------------------------

    def _find_steps(self, spans: dict[str, np.ndarray]) -> dict[int, tuple[slice, Steps]]:
        """Per process: where its spans lie in `spans`, and its steps. Tracks of a process are neighbours or not."""
        found: dict[int, tuple[Any, Steps]] = {}
        if not spans:
            return found
        names = list(self._names)
        owner = np.zeros(self._next_track, np.int32)
        for process in self.processes.values():
            owner[list(process.tracks.values())] = process.number
        of_process = owner[spans["track"]]
        for process in self.processes.values():
            rows = np.flatnonzero(of_process == process.number)
            if not len(rows):
                continue
            optimizer = np.full(len(rows), -1, np.int32)
            if process.optimizers:
                keys, numbers = (np.concatenate(column) for column in zip(*process.optimizers, strict=True))
                by_key = np.argsort(spans["span"][rows], kind="stable")
                optimizer[by_key[np.searchsorted(spans["span"][rows], keys, sorter=by_key)]] = numbers
            columns = SpanColumns(
                track=spans["track"][rows],
                depth=spans["depth"][rows],
                start_ns=spans["start_ns"][rows],
                dur_ns=spans["dur_ns"][rows],
                kind=spans["kind_code"][rows].astype(np.uint8),
                name=spans["name_code"][rows],
                names=names,
                optimizer=optimizer,
            )
            found[process.number] = (rows, find_steps(columns))
        return found

    def _write_spans(self, spans: dict[str, np.ndarray], found: dict[int, tuple[Any, Steps]]) -> None:
        if not spans:
            return
        step = np.full(len(spans["span"]), -1, np.int32)
        phase = np.full(len(spans["span"]), -1, np.int32)
        for rows, steps in found.values():
            step[rows], phase[rows] = steps.assign(spans["start_ns"][rows])
        arrow = self._arrow_columns(spans)
        arrow["step"] = pa.array(step, mask=step < 0)
        arrow["phase"] = pa.DictionaryArray.from_arrays(pa.array(phase, mask=phase < 0), pa.array(PHASES))
        self._spans.finish(to_arrow(TABLES["spans"], arrow))
        self.rows["spans"] = self._spans.rows

    def _write_steps(self, found: dict[int, tuple[Any, Steps]]) -> None:
        rows = []
        for number, (_, steps) in found.items():
            columns = ("start_ns", "dur_ns", "load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns", "warmup")
            values = [getattr(steps, name).tolist() for name in columns]
            for i, row in enumerate(zip(*values, strict=True)):
                rows.append(
                    {"step": i, "process": number, "rule": steps.rule, "optimizer": steps.optimizer}
                    | dict(zip(columns, row, strict=True))
                )
        self.rows["steps"] = write_rows(self.tables, "steps", rows)

    def _write_totals(self, spans: dict[str, np.ndarray]) -> None:
        rows: list[dict[str, Any]] = []
        if spans:
            names = list(self._names)
            owner = {track: p.number for p in self.processes.values() for track in p.tracks.values()}
            process = np.array([owner[track] for track in range(self._next_track)], np.int64)[spans["track"]]
            key = (process << 40) | (spans["kind_code"].astype(np.int64) << 32) | spans["name_code"]
            done = ~spans["unfinished"]
            order = np.argsort(key[done], kind="stable")
            groups, firsts = np.unique(key[done][order], return_index=True)
            dur = spans["dur_ns"][done][order]
            if len(groups):
                sums = (np.add.reduceat(dur, firsts), np.minimum.reduceat(dur, firsts), np.maximum.reduceat(dur, firsts))
                counts = np.diff(np.append(firsts, len(dur)))
                for group, count, total, least, most in zip(
                    groups.tolist(), counts.tolist(), *(column.tolist() for column in sums), strict=True
                ):
                    rows.append(
                        {
                            "process": group >> 40, "layer": OPERATORS, "kind": KINDS[group >> 32 & 0xFF],
                            "name": names[group & 0xFFFFFFFF], "count": count, "total_ns": total,
                            "min_ns": least, "max_ns": most,
                        }
                    )  # fmt: skip
        self.rows["totals"] = write_rows(self.tables, "totals", rows)

    def _write_small(self, session: dict[str, Any]) -> None:
        """Processes, tracks, counters, clocks, gaps and problems."""
        tables: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("processes", "tracks", "counters", "clock_readings", "gaps", "problems")
        }
        for process in self.processes.values():
            self._describe(process, session, tables)
        tables["problems"].extend(session.get("problems", []))
        tables["problems"].extend(self._own_problems())
        for name, rows in tables.items():
            self.rows[name] = write_rows(self.tables, name, rows)

    def _describe(self, process: Process, session: dict[str, Any], tables: dict[str, list[dict[str, Any]]]) -> None:
        decoder = process.decoder
        about = decoder.about
        is_main = about.get("pid") == session.get("pid")
        last_ns = decoder.readings[-1][1] if decoder.readings else int(about.get("start_ns", 0))
        start_ns = min([int(about.get("start_ns", last_ns))] + [reading[1] for reading in decoder.readings[:1]])
        tables["processes"].append(
            {
                "process": process.number, "pid": about.get("pid", 0), "ppid": about.get("ppid"),
                "host": process.host, "argv": " ".join(mask(about.get("argv", []))), "start_ns": start_ns,
                "end_ns": session.get("end_ns") if is_main else (last_ns if decoder.ended else None),
                "exit": session.get("exit") if is_main else None,
            }
        )  # fmt: skip
        for number, key in process.tracks.items():
            track = decoder.tracks.get(number)
            tables["tracks"].append(
                {
                    "track": key, "process": process.number, "kind": "thread", "tid": track.tid if track else None,
                    "name": track.name if track else "",
                    "start_ns": decoder.to_run(track.start) if track else start_ns,
                    "end_ns": decoder.to_run(track.end) if track and track.end is not None else None,
                }
            )  # fmt: skip
        if decoder.counters:
            key = self._next_track
            self._next_track += 1
            tables["tracks"].append(
                {"track": key, "process": process.number, "kind": "counter", "name": "process", "start_ns": start_ns}
            )
            tables["counters"].extend(
                {"track": key, "at_ns": at_ns, "name": name, "value": value, "unit": unit}
                for at_ns, name, value, unit in decoder.counters
            )
        for loss in decoder.losses:
            tables["gaps"].append(
                {
                    "track": process.tracks.get(loss.track), "process": process.number,
                    "start_ns": decoder.to_run(loss.start), "end_ns": decoder.to_run(loss.end),
                    "lost": loss.lost, "reason": loss.reason,
                }
            )  # fmt: skip
        if process.reader.damaged or (process.reader.left_bytes and session):
            tables["gaps"].append(
                {"process": process.number, "start_ns": last_ns, "end_ns": last_ns, "lost": None, "reason": "damaged"}
            )
        tables["clock_readings"].extend(_readings(decoder))

    def _own_problems(self) -> list[dict[str, Any]]:
        problems = []
        for process in self.processes.values():
            decoder = process.decoder
            counted = int(decoder.totals[:, 2].sum())
            if decoder.ended and counted != decoder.records:
                problems.append(
                    {
                        "layer": OPERATORS, "code": "totals_differ",
                        "what": f"process {decoder.about.get('pid')}: {decoder.records} records were read where "
                        f"{counted} were written",
                        "remedy": "the raw files were changed or damaged: record again", "lost": "",
                    }
                )  # fmt: skip
        return problems


def _from_part(data: pa.Table, names: dict[str, int]) -> dict[str, np.ndarray]:
    """The columns of a part that this conversion wrote, as it had them in memory."""
    columns: dict[str, np.ndarray] = {}
    for name in ("span", "track", "depth", "start_ns", "dur_ns", "self_ns", "unfinished"):
        columns[name] = data[name].to_numpy()
    for name in ("parent", "seq"):
        columns[name] = data[name].fill_null(-1).to_numpy()
    codes = {"kind": {kind: i for i, kind in enumerate(KINDS)}, "name": names}
    for name, known in codes.items():
        merged = data[name].unify_dictionaries().combine_chunks()
        chunk = merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged
        own = np.array([known[text] for text in chunk.dictionary.to_pylist()], np.int32)
        columns[f"{name}_code"] = own[chunk.indices.to_numpy()]
    return columns


def _readings(decoder: Decoder) -> list[dict[str, Any]]:
    """The clock readings worth keeping: one a second, and the last."""
    rows = []
    next_ns = 0
    for i, (tsc, run_ns, realtime_ns, error_ns) in enumerate(decoder.readings):
        if run_ns < next_ns and i + 1 < len(decoder.readings):
            continue
        next_ns = run_ns + READING_EVERY_NS
        rows.append({"clock": "tsc", "its": tsc, "run_ns": run_ns, "error_ns": error_ns})
        rows.append({"clock": "realtime", "its": realtime_ns, "run_ns": run_ns, "error_ns": error_ns})
    return rows


def read_session(raw: Path) -> dict[str, Any]:
    """What the session left for the converter; empty when it never came to its end."""
    try:
        session: dict[str, Any] = json.loads((raw / "session.json").read_text())
    except (OSError, ValueError):
        return {}
    return session
