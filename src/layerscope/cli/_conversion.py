"""From the raw files of a recording to its tables, while the files still grow or long after.

Puts together what `collect` reads, `store` computes and writes, and `analyse` finds; the same code
converts beside a running program, after it, and an old recording again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.analyse.steps import SpanColumns, Steps, find_steps
from layerscope.cli._spans import FUNCTION, Columns, SpanTable, without_inner_operators
from layerscope.collect import spool
from layerscope.collect.layers.operators import Decoder
from layerscope.model.layers import KINDS, OPERATORS
from layerscope.model.secrets import mask
from layerscope.store.linking import ForwardBackward
from layerscope.store.nesting import Keys, TrackNesting
from layerscope.store.writer import write_columns, write_rows

# Below this a batch costs more in overhead than in work.
BATCH_RECORDS = 50_000
READING_EVERY_NS = 1_000_000_000
FIRST_SCOPE = KINDS.index("optimizer")


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
    has_scopes: bool = False
    pairs: ForwardBackward = field(default_factory=ForwardBackward)
    totals: dict[int, list[int]] = field(default_factory=dict)

    def spans_of(self, kind: int) -> int:
        """Number of finished spans of a kind (index into KINDS)."""
        return sum(count for key, (count, *_) in self.totals.items() if key >> 32 == kind)


class RunConversion:
    """Converts the recording whose raw files are in `raw` into Parquet below `tables`."""

    def __init__(self, raw: Path, tables: Path) -> None:
        self.raw = raw
        self.tables = tables
        self.processes: dict[Path, Process] = {}
        self.rows: dict[str, int] = {}
        self._keys = Keys()
        self._spans = SpanTable(tables)
        self._next_track = 0

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
                    self._take(process)
        return sum(process.decoder.records for process in self.processes.values()) - before

    def finish(self, session: dict[str, Any]) -> None:
        """Write everything that is left, and the tables that only the end knows."""
        self.advance()
        for process in self.processes.values():
            self._take(process, last=True)
            for nesting in process.nesting.values():
                nesting.finish()
        lost = [key for process in self.processes.values() for n in process.nesting.values() for key in n.never_came]
        found = {number: steps for number, steps in self._find_steps(lost) if len(steps)}
        self._write_links()
        self.rows["spans"] = self._spans.finish(self._assigner(found) if found else None, lost)
        self._write_steps(found)
        self._write_totals()
        self._write_small(session)

    # -- spans -------------------------------------------------------------------------------------

    def _take(self, process: Process, last: bool = False) -> None:
        """Give the spans that can be judged now keys, parents and self times, and pass them on to the table."""
        for track, rows in process.decoder.batches(last):
            self._take_track(process, track, rows)

    def _take_track(self, process: Process, track: int, rows: np.ndarray) -> None:
        nesting = process.nesting.setdefault(track, TrackNesting(self._keys))
        start, end = rows["start"].astype(np.int64), rows["end"].astype(np.int64)
        end = np.maximum(end, start)
        nested = nesting.add(start, end, rows["depth"])
        numbered = np.flatnonzero(rows["optimizer"])
        if len(numbered):
            process.optimizers.append((nested.key[numbered], rows["optimizer"][numbered]))
        backward = np.flatnonzero(rows["forward_thread"])
        if len(backward):
            of = rows[backward]
            process.pairs.add_backward(nested.key[backward], of["forward_thread"], of["seq"], start[backward])
        codes = self._codes(process, rows["name"])
        process.has_scopes |= bool((rows["kind"] >= FIRST_SCOPE).any())
        done = rows["unfinished"] == 0
        _add_totals(process.totals, rows["kind"][done], codes[done], (end - start)[done])
        self._spans.add(
            {
                "span": nested.key,
                "track": np.full(len(rows), self._track_key(process, track), np.int32),
                "parent": nested.parent,
                "depth": rows["depth"],
                "start_ns": start,
                "dur_ns": end - start,
                "self_ns": nested.self_ns,
                "kind_code": rows["kind"].astype(np.int32),
                "name_code": codes,
                "seq": rows["seq"],
                "unfinished": rows["unfinished"].astype(bool),
            }
        )

    def _track_key(self, process: Process, track: int) -> int:
        if track not in process.tracks:
            process.tracks[track] = self._next_track
            self._next_track += 1
        return process.tracks[track]

    def _codes(self, process: Process, numbers: np.ndarray) -> np.ndarray:
        """The recording's own number for each of the process's names."""
        known, names = process.decoder.names, self._spans.names
        for text in known[len(process.name_codes) :]:
            process.name_codes.append(names.setdefault(text, len(names)))
        codes = process.name_codes
        missing = int(numbers.max()) + 1 - len(codes)
        if missing > 0:  # a name whose text was lost with the tail of a cut file
            codes = codes + [names.setdefault("(name lost)", len(names))] * missing
        chosen: np.ndarray = np.array(codes, np.int32)[numbers]
        return chosen

    # -- what only the end knows -------------------------------------------------------------------

    def _find_steps(self, lost_parents: list[int]) -> Iterator[tuple[int, Steps]]:
        """The steps of every process that has an optimizer or a loader."""
        looped = [process for process in self.processes.values() if process.has_scopes]
        wanted: dict[int, list[Columns]] = {process.number: [] for process in looped}
        if not looped:
            return
        owner = self._owner()
        for piece in self._spans.pieces():
            rows = without_inner_operators(piece)
            of = owner[piece["track"][rows]]
            for number, kept in wanted.items():
                mine = rows[of == number]
                names = ("span", "parent", "track", "depth", "start_ns", "dur_ns", "kind_code", "name_code")
                kept.append({name: piece[name][mine] for name in names})
        for process in looped:
            kept = wanted[process.number]
            spans = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
            # Once more over all, in an order of their own: what is found must not depend on where a part ended.
            rows = without_inner_operators(spans, lost_parents)
            own_number = np.zeros(self._next_track, np.int64)
            own_number[list(process.tracks.values())] = list(process.tracks)
            track = own_number[spans["track"][rows]]
            rows = rows[np.lexsort((spans["depth"][rows], spans["start_ns"][rows], track))]
            yield process.number, self._steps_of(process, {name: values[rows] for name, values in spans.items()})

    def _steps_of(self, process: Process, spans: Columns) -> Steps:
        optimizer = np.full(len(spans["span"]), -1, np.int32)
        if process.optimizers:
            keys, numbers = (np.concatenate(column) for column in zip(*process.optimizers, strict=True))
            by_key = np.argsort(spans["span"], kind="stable")
            optimizer[by_key[np.searchsorted(spans["span"], keys, sorter=by_key)]] = numbers
        return find_steps(
            SpanColumns(
                track=spans["track"],
                depth=spans["depth"],
                start_ns=spans["start_ns"],
                dur_ns=spans["dur_ns"],
                kind=spans["kind_code"].astype(np.uint8),
                name=spans["name_code"],
                names=list(self._spans.names),
                optimizer=optimizer,
            )
        )

    def _write_links(self) -> None:
        """Forward and backward: which operator each backward function belongs to."""
        looped = [process for process in self.processes.values() if process.pairs]
        for piece in self._spans.pieces() if looped else ():
            forward = np.flatnonzero((piece["seq"] >= 0) & (piece["kind_code"] == FUNCTION))
            for process in looped:
                thread = np.full(self._next_track, -1, np.int64)
                for number, key in process.tracks.items():
                    known = process.decoder.tracks.get(number)
                    thread[key] = known.framework_thread if known else -1
                of = thread[piece["track"][forward]]
                mine = forward[of >= 0]
                about = (piece[name][mine] for name in ("seq", "start_ns", "depth"))
                process.pairs.add_forward(piece["span"][mine], of[of >= 0], *about)
        pairs = [process.pairs.links() for process in looped]
        columns: Columns = {
            "from_span": np.concatenate([np.zeros(0, np.int64), *(forward for forward, _ in pairs)]),
            "to_span": np.concatenate([np.zeros(0, np.int64), *(backward for _, backward in pairs)]),
        }
        columns["kind"] = np.full(len(columns["to_span"]), "forward_backward", object)
        self.rows["links"] = write_columns(self.tables, "links", columns)

    def _owner(self) -> np.ndarray:
        """The process of every track, by track."""
        owner = np.zeros(self._next_track, np.int32)
        for process in self.processes.values():
            owner[list(process.tracks.values())] = process.number
        return owner

    def _assigner(self, found: dict[int, Steps]) -> Any:
        owner = self._owner()

        def assign(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
            step = np.full(len(columns["span"]), -1, np.int32)
            phase = np.full(len(columns["span"]), -1, np.int32)
            of = owner[columns["track"]]
            for number, steps in found.items():
                rows = np.flatnonzero(of == number)
                step[rows], phase[rows] = steps.assign(columns["start_ns"][rows])
            return step, phase

        return assign

    def _write_steps(self, found: dict[int, Steps]) -> None:
        columns = ("start_ns", "dur_ns", "load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns", "warmup")
        rows = []
        for number, steps in found.items():
            values = [getattr(steps, name).tolist() for name in columns]
            for i, row in enumerate(zip(*values, strict=True)):
                about = {"step": i, "process": number, "rule": steps.rule, "optimizer": steps.optimizer}
                rows.append(about | dict(zip(columns, row, strict=True)))
        self.rows["steps"] = write_rows(self.tables, "steps", rows)

    def _write_totals(self) -> None:
        names = list(self._spans.names)
        rows = [
            {
                "process": process.number, "layer": OPERATORS, "kind": KINDS[key >> 32],
                "name": names[key & 0xFFFFFFFF], "count": count, "total_ns": total, "min_ns": least, "max_ns": most,
            }
            for process in self.processes.values()
            for key, (count, total, least, most) in sorted(process.totals.items())
        ]  # fmt: skip
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
            unnamed = decoder.final.get("lost_names", 0)
            if unnamed:
                problems.append(
                    {
                        "layer": OPERATORS, "code": "names_lost",
                        "what": f"process {decoder.about.get('pid')} had no room for a new name {unnamed} times",
                        "remedy": "give ranges fewer different names (at most 1,048,576)",
                        "lost": "the names of those spans: they are called (other names)",
                    }
                )  # fmt: skip
        return problems


def _add_totals(totals: dict[int, list[int]], kind: np.ndarray, name: np.ndarray, dur_ns: np.ndarray) -> None:
    """Add finished spans to `totals`: kind << 32 | name -> [count, total, least, most]."""
    if not len(kind):
        return
    key = (kind.astype(np.int64) << 32) | name
    order = np.argsort(key, kind="stable")
    keys, firsts = np.unique(key[order], return_index=True)
    dur = dur_ns[order]
    counts = np.diff(np.append(firsts, len(dur)))
    sums = [ufunc.reduceat(dur, firsts).tolist() for ufunc in (np.add, np.minimum, np.maximum)]
    for k, count, total, least, most in zip(keys.tolist(), counts.tolist(), *sums, strict=True):
        known = totals.setdefault(k, [0, 0, least, most])
        totals[k] = [known[0] + count, known[1] + total, min(known[2], least), max(known[3], most)]


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
