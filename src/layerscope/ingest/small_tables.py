"""Every table but spans, steps, totals and links: processes, tracks, counters, marks, clocks, gaps,
problems, texts.

Used by `conversion` when a recording is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.refusals import REFUSALS, UNREAD
from layerscope.ingest.spans import nullable
from layerscope.ingest.string_table import StringTable
from layerscope.model.distinct import distinct
from layerscope.model.layers import (
    COUNTERS,
    GROUP_COUNTERS,
    HEAP_COUNTERS,
    MACHINE_COUNTERS,
    MARKS,
    MEMORY,
    MODULES,
    OPERATORS,
    PROCESS_COUNTERS,
    SYSTEM_COUNTERS,
    THREAD,
)
from layerscope.model.secrets import mask
from layerscope.rawfile import counters, layout
from layerscope.recording.writer import write_columns, write_rows
from layerscope.sources.process import ProcessEvents

READING_EVERY_NS = 1_000_000_000
TABLES = ("processes", "tracks", "clock_readings", "gaps", "problems", "modules", "args")
# These grow with the length of the run: whole columns, no object for each row.
LONG_TABLES = ("counters", "marks")
NO_DOMAIN = "program"
# What the program's own domains are called that have the name of one of ours.
OWN_DOMAINS = {name: f"{name} (program)" for name in SYSTEM_COUNTERS}
# As native/agent/heap_statistics.c says it.
OWN_DOMAINS["layerscope: malloc"] = HEAP_COUNTERS
# By number, the track that a counter belongs to.
DOMAIN_OF_COUNTER = np.array(
    [
        GROUP_COUNTERS
        if name in counters.OF_GROUP
        else MACHINE_COUNTERS
        if name.startswith("machine_")
        else PROCESS_COUNTERS
        for name in counters.NAMES
    ],
    object,
)
# The kind of a mark that was made from outside.
OUTSIDE = "outside"
NO_ARGUMENTS = -1
Row = dict[str, Any]


class SmallTables:
    """Collects their rows, of those that stay short in `rows`, by table; `write` writes them
    all.
    """

    def __init__(self, texts: StringTable, next_track: int) -> None:
        self.rows: dict[str, list[Row]] = {}
        for name in TABLES:
            self.rows[name] = []
        self._columns: dict[str, list[dict[str, Any]]] = {}
        for name in LONG_TABLES:
            self._columns[name] = []
        self._texts = texts
        self._next_track = next_track
        self._named: set[int] = set()  # tracks of threads that have a name by NVTX or ITT

    def add_process(self, process: IngestedProcess, session: dict[str, Any]) -> None:
        """What is known of a process. `session`: what the recorder said at its end."""
        events = process.events
        about = events.about
        is_main = about.get("pid") == session.get("pid")
        last_ns = events.readings[-1][1] if events.readings else int(about.get("start_ns", 0))
        ended_ns = last_ns if events.ended else None
        start_ns = int(about.get("start_ns", last_ns))
        for ticks, run_ns, *_ in events.readings[:1]:
            start_ns = min(start_ns, run_ns) if ticks >= 0 else start_ns
        self.rows["processes"].append(
            {
                "process": process.number,
                "pid": about.get("pid", 0),
                "ppid": about.get("ppid"),
                "rank": about.get("rank"),
                "role": about.get("role"),
                "host": process.source.host,
                "argv": " ".join(mask(about.get("argv", []))),
                "start_ns": start_ns,
                "end_ns": session.get("end_ns") if is_main else about.get("end_ns", ended_ns),
                "exit": session.get("exit") if is_main else None,
                "about": about.get("about"),
            }
        )
        for number, key in process.tracks.items():
            self._add_thread(process, number, key, start_ns)
        if events.counters:
            self._add_read(process, np.concatenate(events.counters), start_ns)
        self._add_moments(process, start_ns)
        for loss in events.losses:
            self.rows["gaps"].append(
                {
                    "track": process.tracks.get(loss.track),
                    "process": process.number,
                    "start_ns": events.to_run(loss.start),
                    "end_ns": events.to_run(loss.end),
                    "lost": loss.lost,
                    "reason": loss.reason,
                }
            )
        if process.source.is_damaged or (process.source.left_bytes and session):
            self.rows["gaps"].append(
                {
                    "process": process.number,
                    "start_ns": last_ns,
                    "end_ns": last_ns,
                    "lost": None,
                    "reason": "damaged",
                }
            )
        self.rows["clock_readings"].extend(_readings(events))

    def _add_read(self, process: IngestedProcess, read: np.ndarray, start_ns: int) -> None:
        """What was read of a process, of its control group, which the first process in it tells,
        and of the machine, which the first process of all tells.
        """
        domain = DOMAIN_OF_COUNTER[read["counter"]]
        for name in SYSTEM_COUNTERS:
            rows = read[domain == name]
            if not len(rows):
                continue
            key = self._counter_track(process.number, name, start_ns)
            if name == MACHINE_COUNTERS:
                rows = _from_first(rows)
            names, unit = (
                np.array(texts, object)[rows["counter"]]
                for texts in (counters.NAMES, counters.UNITS)
            )
            self._add_counted(
                np.full(len(rows), key, np.int32), rows["at_ns"], names, rows["value"], unit
            )

    def _add_thread(self, process: IngestedProcess, number: int, key: int, start_ns: int) -> None:
        events = process.events
        track = events.tracks.get(number)
        self.rows["tracks"].append(
            {
                "track": key,
                "process": process.number,
                "kind": track.kind if track else THREAD,
                "tid": track.tid if track else None,
                "device": track.device if track else None,
                "name": track.name if track else "",
                "start_ns": events.to_run(track.start) if track else start_ns,
                "end_ns": events.to_run(track.end) if track and track.end is not None else None,
            }
        )

    def _counter_track(self, process: int, name: str, start_ns: int) -> int:
        key = self._next_track
        self._next_track += 1
        about = {
            "track": key,
            "process": process,
            "kind": "counter",
            "name": name,
            "start_ns": start_ns,
        }
        self.rows["tracks"].append(about)
        return key

    def _add_moments(self, process: IngestedProcess, start_ns: int) -> None:
        """What the program counted, on a track for each domain, and what it marked."""
        tracks, records = process.events.moments()
        is_counted = records["kind"] == layout.COUNTER
        mark = records["module"]
        is_refused = ~is_counted & (mark == layout.MARK_PROBLEM)
        is_named = ~is_counted & (mark == layout.MARK_NAMED)
        refusals = distinct(records["name"][is_refused])
        for number in refusals.tolist():
            text = _text(process, number, "")
            self._add_refusal(process, *text.split("\n", 1))
        self._add_counters(process, records[is_counted], start_ns)
        is_mark = ~(is_counted | is_refused | is_named)
        self._add_marks(process, tracks[is_mark], records[is_mark], start_ns)
        self._name_threads(process, records[is_named])
        self._add_outside(process, start_ns)

    def _add_outside(self, process: IngestedProcess, start_ns: int) -> None:
        """What somebody marked from outside, on the track of the first thread."""
        if not process.events.outside:
            return
        at_ns, names = zip(*process.events.outside, strict=True)
        count = len(names)
        self._columns["marks"].append(
            {
                "track": np.full(count, self._first_thread(process, start_ns), np.int32),
                "at_ns": np.array(at_ns, np.int64),
                "kind": np.full(count, OUTSIDE, object),
                "name": np.array(names, object),
                "args": np.full(count, NO_ARGUMENTS, np.int64),
            }
        )

    def _first_thread(self, process: IngestedProcess, start_ns: int) -> int:
        """The key of its track, which is made where nothing else was recorded of it."""
        pid = process.events.about.get("pid", 0)
        for row in self.rows["tracks"]:
            if row["process"] == process.number and row.get("tid") == pid:
                return int(row["track"])
        for _, _, sampled in process.keys.sampled.get((process.number, pid), []):
            return sampled
        key = self._next_track
        self._next_track += 1
        about = {"track": key, "process": process.number, "kind": "thread", "tid": pid}
        self.rows["tracks"].append({**about, "name": "", "start_ns": start_ns})
        return key

    def _name_threads(self, process: IngestedProcess, records: np.ndarray) -> None:
        """What the program calls its threads, by NVTX or ITT, instead of the names that the kernel
        has.
        """
        names: dict[int, str] = {}
        for record in records:
            tid = int(record["seq"])
            names[tid] = _text(process, int(record["name"]))
        for row in self.rows["tracks"]:
            is_thread = row["kind"] == "thread"
            if is_thread and row["process"] == process.number and row["tid"] in names:
                row["name"] = names[row["tid"]]
                self._named.add(row["track"])

    def name_threads(self, names: dict[int, str]) -> None:
        """What Python calls threads, by the key of their track. A name by NVTX or ITT stays."""
        for row in self.rows["tracks"]:
            if row["kind"] == "thread" and row["track"] not in self._named:
                row["name"] = names.get(row["track"], row["name"])

    def _add_counters(self, process: IngestedProcess, records: np.ndarray, start_ns: int) -> None:
        """Values of the program's own counters, on one track for each domain."""
        numbers, counter = np.unique(records["name"], return_inverse=True)
        tracks: dict[str, int] = {}
        names = np.empty(len(numbers), object)
        keys = np.zeros(len(numbers), np.int32)
        for index, number in enumerate(numbers.tolist()):
            name, _, domain = _text(process, number).partition("\n")
            if domain not in tracks:
                track_name = OWN_DOMAINS.get(domain, domain or NO_DOMAIN)
                tracks[domain] = self._counter_track(process.number, track_name, start_ns)
            names[index] = name
            keys[index] = tracks[domain]
        self._add_counted(
            track=keys[counter],
            at_ns=records["start"],
            name=names[counter],
            value=records["end"],
            unit=np.array([_unit(name) for name in names.tolist()], object)[counter],
        )

    def _add_counted(
        self,
        track: np.ndarray,
        at_ns: np.ndarray,
        name: np.ndarray,
        value: np.ndarray,
        unit: np.ndarray,
    ) -> None:
        columns = {
            "track": track,
            "at_ns": at_ns.astype(np.int64),
            "name": name,
            "value": value.astype(np.int64),
        }
        self._columns["counters"].append({**columns, "unit": unit})

    def add_process_counters(self, process: int, columns: dict[str, Any]) -> None:
        """More of what the system accounts for a process: columns of `counters` but `track`."""
        for row in self.rows["tracks"]:
            if (
                row["process"] == process
                and row["kind"] == "counter"
                and row["name"] == PROCESS_COUNTERS
            ):
                count = len(columns["at_ns"])
                track = np.full(count, row["track"], np.int32)
                self._columns["counters"].append({"track": track, **columns})
                return
        starts = [row["start_ns"] for row in self.rows["processes"] if row["process"] == process]
        if starts:
            key = self._counter_track(process, PROCESS_COUNTERS, starts[0])
            keys = np.full(len(columns["at_ns"]), key, np.int32)
            self._columns["counters"].append({"track": keys, **columns})

    def _add_marks(
        self, process: IngestedProcess, tracks: np.ndarray, records: np.ndarray, start_ns: int
    ) -> None:
        numbers, row = np.unique(tracks, return_inverse=True)
        for number in numbers.tolist():
            if number not in process.tracks:  # a thread that has nothing but marks
                process.tracks[number] = self._next_track
                self._next_track += 1
                self._add_thread(process, number, process.tracks[number], start_ns)
        keys = np.array([process.tracks[number] for number in numbers.tolist()], np.int32)
        texts, text_row = np.unique(records["name"], return_inverse=True)
        names = np.array(
            [_text(process, number).partition("\n")[0] for number in texts.tolist()], object
        )
        self._columns["marks"].append(
            {
                "track": keys[row],
                "at_ns": records["start"].astype(np.int64),
                "kind": np.array([*MARKS, "marker"], object)[
                    np.minimum(records["module"], len(MARKS))
                ],
                "name": names[text_row],
                "args": _arguments_of_marks(process, records),
            }
        )

    def _add_refusal(self, process: IngestedProcess, code: str, reason: str = "") -> None:
        """What the part of ours inside the program could not record, in its own words."""
        remedy, lost = REFUSALS.get(code, ("", ""))
        pid = process.events.about.get("pid")
        what = f"process {pid}: {reason or code}"
        layer = OPERATORS
        for other in (MODULES, MEMORY):
            layer = other if code.startswith(other) else layer
        self._add_problem(code, what, remedy, lost, layer)

    def write(self, tables: Path) -> dict[str, int]:
        """Write every table below `tables`; returns their numbers of rows."""
        written = {name: write_rows(tables, name, rows) for name, rows in self.rows.items()}
        for name, parts in self._columns.items():
            columns = (
                {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
                if parts
                else {}
            )
            if "args" in columns:
                columns["args"] = nullable(columns["args"])
            written[name] = (
                write_columns(tables, name, columns) if columns else write_rows(tables, name, [])
            )
        return written

    def add_texts(self) -> None:
        """Modules and arguments: every process has added its own."""
        self.rows["modules"] = self._texts.module_rows()
        self.rows["args"] = self._texts.args_rows()

    def add_problems(self, processes: Iterable[IngestedProcess]) -> None:
        """What the raw files themselves show to be wrong."""
        unread: dict[tuple[str, str], list[str]] = {}
        for process in processes:
            events = process.events
            for what, why in events.final.get("unread", {}).items():
                unread.setdefault((what, why), []).append(str(events.about.get("pid")))
            who = f"process {events.about.get('pid')}"
            counted = int(events.totals[:, 2].sum())
            if events.ended and counted != events.records + events.stripped:
                what = f"{who}: {events.records} records were read where {counted} were written"
                self._add_problem(
                    "totals_differ", what, "the raw files were changed or damaged: record again", ""
                )
            if events.unknown_kinds:
                kinds = ", ".join(events.unknown_kinds)
                what = f"{who} has spans of kinds that this layerscope does not know: {kinds}"
                remedy = "read the recording with the layerscope that made it, or a newer one"
                lost = "what these spans are: they count as ranges"
                self._add_problem("kinds_unknown", what, remedy, lost)
            doubt = events.clock_doubt()
            if doubt:
                what = f"{who}: the time stamp counter of its CPUs {doubt}"
                remedy = "boot with tsc=unstable: the clock of the kernel is then used"
                self._add_problem("clock_wrong", what, remedy, "exact times around these moments")
            unnamed = events.final.get("lost_names", 0)
            if unnamed:
                what = f"{who} had no room for a new name {unnamed} times"
                remedy = "give ranges fewer different names (at most 1,048,576)"
                self._add_problem(
                    "names_lost",
                    what,
                    remedy,
                    "the names of those spans: they are called (other names)",
                )
        for (name, why), pids in unread.items():
            source, remedy, lost = UNREAD.get(name, (name, "", name))
            whose = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
            what = f"{source} of {whose} could not be read: {why}"
            self._add_problem(f"{name}_unread", what, remedy, lost, COUNTERS)

    def _add_problem(
        self, code: str, what: str, remedy: str, lost: str, layer: str = OPERATORS
    ) -> None:
        self.rows["problems"].append(
            {"layer": layer, "code": code, "what": what, "remedy": remedy, "lost": lost}
        )


def _from_first(rows: np.ndarray) -> np.ndarray:
    """Counters that grow since the machine was started, from their first readings on."""
    rows = rows.copy()
    for counter in distinct(rows["counter"]).tolist():
        mine = np.flatnonzero(rows["counter"] == counter)
        first = rows["value"][mine[0]]
        rows["value"][mine] -= first
    return rows


def _unit(name: str) -> str:
    """Of a counter of the program, by its name."""
    return "bytes" if name.endswith("_bytes") else "count"


def _text(process: IngestedProcess, number: int, lost: str = "(name lost)") -> str:
    """The text with this number, `lost` where it did not arrive."""
    known = process.events.names
    if number >= len(known):
        return lost
    return known[number]


def _readings(events: ProcessEvents) -> list[Row]:
    """The clock readings worth keeping: one a second, and the last."""
    rows = []
    next_ns = 0
    for i, (tsc, run_ns, realtime_ns, error_ns) in enumerate(events.readings):
        if run_ns < next_ns and i + 1 < len(events.readings):
            continue
        next_ns = run_ns + READING_EVERY_NS
        if tsc >= 0:
            rows.append(
                {"clock": "tsc", "clock_value": tsc, "run_ns": run_ns, "error_ns": error_ns}
            )
        rows.append(
            {
                "clock": "realtime",
                "clock_value": realtime_ns,
                "run_ns": run_ns,
                "error_ns": error_ns,
            }
        )
    return rows


def _arguments_of_marks(process: IngestedProcess, records: np.ndarray) -> np.ndarray:
    """The keys of their arguments: the domain of a marker, the operator that raised an
    exception.
    """
    args = process.texts.domains(records["name"]).astype(np.int64)
    for at in np.flatnonzero(
        (records["module"] == layout.MARK_RAISED) & (records["end"] > 0)
    ).tolist():
        operator = {"operator": _text(process, int(records["end"][at]))}
        args[at] = process.texts.texts.arguments(json.dumps(operator, ensure_ascii=False))
    return args
