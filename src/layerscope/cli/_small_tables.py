"""The tables of few rows: processes, tracks, counters, marks, clocks, gaps, problems, modules, arguments.

Used by `_conversion` when a recording is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from layerscope.cli._process import Process
from layerscope.cli._texts import Texts
from layerscope.collect import layout
from layerscope.collect.layers.operators import Decoder
from layerscope.model.layers import MARKS, MODULES, OPERATORS
from layerscope.model.secrets import mask

READING_EVERY_NS = 1_000_000_000
TABLES = ("processes", "tracks", "counters", "marks", "clock_readings", "gaps", "problems", "modules", "args")
NO_DOMAIN = "program"
# What is said inside the program has no room for more than a code and a reason: code -> remedy, what is lost.
REFUSALS = {
    "modules_refused": (
        "run the program with CPython 3.10 to 3.14 as it is usually built, with its GIL",
        "the calls of modules, and which module an operator belongs to",
    ),
}
Row = dict[str, Any]


class SmallTables:
    """Collects their rows in `rows`, by table."""

    def __init__(self, texts: Texts, next_track: int) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._texts = texts
        self._next_track = next_track

    def add_process(self, process: Process, session: dict[str, Any]) -> None:
        """What is known of a process. `session`: what the recorder said at its end, or that of each rank in `ranks`."""
        session = session.get("ranks", {}).get(process.rank, session)
        decoder = process.decoder
        about = decoder.about
        is_main = about.get("pid") == session.get("pid")
        last_ns = decoder.readings[-1][1] if decoder.readings else int(about.get("start_ns", 0))
        start_ns = min([int(about.get("start_ns", last_ns))] + [reading[1] for reading in decoder.readings[:1]])
        self.rows["processes"].append(
            {
                "process": process.number, "pid": about.get("pid", 0), "ppid": about.get("ppid"),
                "rank": about.get("rank"), "host": process.host, "argv": " ".join(mask(about.get("argv", []))),
                "start_ns": start_ns,
                "end_ns": session.get("end_ns") if is_main else (last_ns if decoder.ended else None),
                "exit": session.get("exit") if is_main else None,
            }
        )  # fmt: skip
        for number, key in process.tracks.items():
            self._add_thread(process, number, key, start_ns)
        if decoder.counters:
            key = self._counter_track(process, "process", start_ns)
            self.rows["counters"].extend(
                {"track": key, "at_ns": at_ns, "name": name, "value": value, "unit": unit}
                for at_ns, name, value, unit in decoder.counters
            )
        self._add_moments(process, start_ns)
        for loss in decoder.losses:
            self.rows["gaps"].append(
                {
                    "track": process.tracks.get(loss.track), "process": process.number,
                    "start_ns": decoder.to_run(loss.start), "end_ns": decoder.to_run(loss.end),
                    "lost": loss.lost, "reason": loss.reason,
                }
            )  # fmt: skip
        if process.reader.damaged or (process.reader.left_bytes and session):
            self.rows["gaps"].append(
                {"process": process.number, "start_ns": last_ns, "end_ns": last_ns, "lost": None, "reason": "damaged"}
            )
        self.rows["clock_readings"].extend(_readings(decoder))

    def _add_thread(self, process: Process, number: int, key: int, start_ns: int) -> None:
        decoder = process.decoder
        track = decoder.tracks.get(number)
        self.rows["tracks"].append(
            {
                "track": key, "process": process.number, "kind": "thread", "tid": track.tid if track else None,
                "name": track.name if track else "",
                "start_ns": decoder.to_run(track.start) if track else start_ns,
                "end_ns": decoder.to_run(track.end) if track and track.end is not None else None,
            }
        )  # fmt: skip

    def _counter_track(self, process: Process, name: str, start_ns: int) -> int:
        key = self._next_track
        self._next_track += 1
        about = {"track": key, "process": process.number, "kind": "counter", "name": name, "start_ns": start_ns}
        self.rows["tracks"].append(about)
        return key

    def _add_moments(self, process: Process, start_ns: int) -> None:
        """What the program counted, on a track for each domain, and what it marked."""
        tracks, records = process.decoder.moments()
        counted = records["kind"] == layout.COUNTER
        domains: dict[str, int] = {}
        known = process.decoder.names
        for record in records[counted]:
            number = int(record["name"])
            name, _, domain = (known[number] if number < len(known) else "(name lost)").partition("\n")
            if domain not in domains:
                domains[domain] = self._counter_track(process, domain or NO_DOMAIN, start_ns)
            value = int(np.uint64(record["end"]).astype(np.int64))
            self.rows["counters"].append(
                {"track": domains[domain], "at_ns": int(record["start"]), "name": name, "value": value, "unit": "count"}
            )
        refused = ~counted & (records["module"] == layout.MARK_PROBLEM)
        for number in np.unique(records["name"][refused]).tolist():
            self._add_refusal(process, *(known[number] if number < len(known) else "").split("\n", 1))
        told = ~counted & ~refused
        marked = records[told]
        keys = process.texts.domains(marked["name"]).tolist()
        for track, record, args in zip(tracks[told].tolist(), marked, keys, strict=True):
            number, what = int(record["name"]), int(record["module"])
            text = known[number] if number < len(known) else "(name lost)"
            if track not in process.tracks:  # a thread that has nothing but marks
                process.tracks[track] = self._next_track
                self._next_track += 1
                self._add_thread(process, track, process.tracks[track], start_ns)
            self.rows["marks"].append(
                {
                    "track": process.tracks[track], "at_ns": int(record["start"]),
                    "kind": MARKS[what] if what < len(MARKS) else "marker", "name": text.partition("\n")[0],
                    "args": args if args >= 0 else None,
                }
            )  # fmt: skip

    def _add_refusal(self, process: Process, code: str, reason: str = "") -> None:
        """What the part of ours inside the program could not record, in its own words."""
        remedy, lost = REFUSALS.get(code, ("", ""))
        what = f"process {process.decoder.about.get('pid')}: {reason or code}"
        self.rows["problems"].append({"layer": MODULES, "code": code, "what": what, "remedy": remedy, "lost": lost})

    def add_texts(self) -> None:
        """Modules and arguments: every process has added its own."""
        self.rows["modules"] = self._texts.module_rows()
        self.rows["args"] = self._texts.args_rows()

    def add_problems(self, processes: Iterable[Process]) -> None:
        """What the raw files themselves show to be wrong."""
        for process in processes:
            decoder = process.decoder
            counted = int(decoder.totals[:, 2].sum())
            if decoder.ended and counted != decoder.records:
                self.rows["problems"].append(
                    {
                        "layer": OPERATORS, "code": "totals_differ",
                        "what": f"process {decoder.about.get('pid')}: {decoder.records} records were read where "
                        f"{counted} were written",
                        "remedy": "the raw files were changed or damaged: record again", "lost": "",
                    }
                )  # fmt: skip
            unnamed = decoder.final.get("lost_names", 0)
            if unnamed:
                self.rows["problems"].append(
                    {
                        "layer": OPERATORS, "code": "names_lost",
                        "what": f"process {decoder.about.get('pid')} had no room for a new name {unnamed} times",
                        "remedy": "give ranges fewer different names (at most 1,048,576)",
                        "lost": "the names of those spans: they are called (other names)",
                    }
                )  # fmt: skip


def _readings(decoder: Decoder) -> list[Row]:
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
