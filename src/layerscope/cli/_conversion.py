"""From the raw files of a recording to its tables, while the files still grow or long after.

Puts together what `collect` reads, `store` computes and writes, and `analyse` finds; the same code
converts beside a running program, after it, and an old recording again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from layerscope.analyse.steps import SpanColumns, Steps, find_steps, without_side_requests
from layerscope.cli._process import Process
from layerscope.cli._small_tables import SmallTables
from layerscope.cli._spans import BACKWARD, FUNCTION, LAYERS, MODULE, Columns, SpanTable, without_inner_operators
from layerscope.cli._texts import ProcessTexts, Texts
from layerscope.collect import layout, spool
from layerscope.collect.layers.operators import Decoder
from layerscope.model.clocks import Elsewhere, Identity
from layerscope.model.layers import KINDS, LAYER_OF_KIND, MARKS, OPERATORS, SPAN_LAYERS
from layerscope.store.inheriting import BackwardModules
from layerscope.store.nesting import Keys, TrackNesting
from layerscope.store.writer import write_columns, write_rows

# Below this a batch costs more in overhead than in work.
BATCH_RECORDS = 50_000
# The columns of a span that say what the steps are.
OF_STEPS = (
    "span", "parent", "track", "depth", "start_ns", "dur_ns", "kind_code", "name_code", "seq", "line_code",
)  # fmt: skip
FIRST_SCOPE = KINDS.index("optimizer")
GRADIENT_SUM = "AccumulateGrad"


class RunConversion:
    """Converts the recording whose raw files are in `raw` into Parquet below `tables`.

    Of several ranks, `raw` is the folder of their recordings, and `shifts_ns` puts each on the run's clock.
    """

    def __init__(self, raw: Path, tables: Path, shifts_ns: Mapping[str, int] | None = None) -> None:
        self.raw = raw
        self.tables = tables
        self._shifts_ns = shifts_ns or {}
        self.processes: dict[Path, Process] = {}
        self.rows: dict[str, int] = {}
        self._keys = Keys()
        self._texts = Texts()
        self._spans = SpanTable(tables, self._texts)
        self._backward = BackwardModules()
        self._next_track = 0
        self._step_mark = ""

    def advance(self) -> int:
        """Read what is new in the raw files; returns the number of records that were read."""
        before = sum(process.decoder.records for process in self.processes.values())
        for path in spool.spools(self.raw):
            process = self.processes.get(path)
            if process is None:
                process = self.processes[path] = self._process(path)
            for chunk in process.reader.chunks():
                process.decoder.add(chunk)
                if process.decoder.waiting >= BATCH_RECORDS and chunk.kind == spool.POLL:
                    self._take(process)
        return sum(process.decoder.records for process in self.processes.values()) - before

    def _process(self, path: Path) -> Process:
        """The process whose raw file is at `path`."""
        folder = path.parent
        rank = folder.parent.parent.name if folder.parent != self.raw else ""
        shift_ns = self._shifts_ns.get(rank, 0)
        clock = Elsewhere(shift_ns) if shift_ns else Identity()
        host = folder.name.rsplit("-", 2)[0]
        decoder = Decoder(shift_ns=shift_ns, clock=clock)
        texts = ProcessTexts(self._texts, decoder.names)
        return Process(len(self.processes), host, spool.SpoolReader(path), texts, decoder, rank)

    def finish(self, session: dict[str, Any]) -> None:
        """Write everything that is left, and the tables that only the end knows."""
        self.advance()
        self._step_mark = read_options(self.raw).get("step_mark", "")
        for process in self.processes.values():
            self._take(process, last=True)
            for nesting in process.nesting.values():
                nesting.finish()
        lost = [key for process in self.processes.values() for n in process.nesting.values() for key in n.never_came]
        found = without_side_requests({number: steps for number, steps in self._find_steps(lost) if len(steps)})
        self._write_links()
        has_more = bool(found or self._texts.modules)
        self.rows["spans"] = self._spans.finish(self._assigner(found) if has_more else None, lost)
        self._write_steps(found)
        self._write_totals()
        self._write_small(session, self._unmatched(found))

    # -- spans -------------------------------------------------------------------------------------

    def _take(self, process: Process, last: bool = False) -> None:
        """Give the spans that can be judged now keys, parents and self times, and pass them on to the table."""
        for track, rows in process.decoder.batches(last):
            self._take_track(process, track, rows)

    def _take_track(self, process: Process, track: int, rows: np.ndarray) -> None:
        nesting = process.nesting.setdefault(track, TrackNesting(self._keys, len(SPAN_LAYERS)))
        start, end = rows["start"].astype(np.int64), rows["end"].astype(np.int64)
        end = np.maximum(end, start)
        kind = rows["kind"]
        nested = nesting.add(start, end, rows["depth"], LAYERS[kind])
        key = self._track_key(process, track)
        codes, args = self._codes(process, rows)
        module = process.texts.modules(rows["module"])
        numbered = np.flatnonzero(rows["optimizer"])
        if len(numbered):
            process.optimizers.append((nested.key[numbered], rows["optimizer"][numbered]))
        backward = np.flatnonzero(kind == BACKWARD)
        if len(backward):
            sums = self._adds_gradients(codes[backward])
            self._backward.add(key, nested.key[backward], start[backward], end[backward], module[backward], sums)
            backward = backward[rows["seq"][backward] >= 0]
            of = rows[backward]
            own = process.decoder.tracks[track].framework_thread if track in process.decoder.tracks else 0
            forward = np.where(of["forward_thread"] != 0, of["forward_thread"], own)
            process.pairs.add_backward(nested.key[backward], forward, of["seq"], start[backward])
        process.has_scopes |= bool(((kind >= FIRST_SCOPE) & (kind <= MODULE)).any())
        done = rows["unfinished"] == 0
        _add_totals(process.totals, kind[done], codes[done], (end - start)[done])
        self._spans.add(
            {
                "span": nested.key,
                "track": np.full(len(rows), key, np.int32),
                "parent": nested.parent,
                "depth": rows["depth"],
                "start_ns": start,
                "dur_ns": end - start,
                "self_ns": nested.self_ns,
                "kind_code": kind.astype(np.int32),
                "name_code": codes,
                "line_code": process.texts.lines(rows["line"]),
                "module": module,
                "seq": rows["seq"],
                "args": args,
                "unfinished": rows["unfinished"].astype(bool),
            }
        )

    def _track_key(self, process: Process, track: int) -> int:
        if track not in process.tracks:
            process.tracks[track] = self._next_track
            self._next_track += 1
        return process.tracks[track]

    def _codes(self, process: Process, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The recording's own number for each of the process's names, and the keys of their arguments."""
        codes = process.texts.names(rows["name"])
        args = np.full(len(rows), -1, np.int64)
        told = np.flatnonzero(rows["kind"] >= MODULE)
        if len(told):
            codes[told] = process.texts.first_lines(rows["name"][told])
            marked = told[rows["kind"][told] != MODULE]
            args[marked] = process.texts.domains(rows["name"][marked])
        return codes, args

    def _adds_gradients(self, codes: np.ndarray) -> np.ndarray:
        """Which of these names are the engine's of adding up a gradient."""
        names = list(self._texts.names)
        found, inverse = np.unique(codes, return_inverse=True)
        return np.array([GRADIENT_SUM in names[code] for code in found.tolist()], np.bool_)[inverse]

    # -- what only the end knows -------------------------------------------------------------------

    def _find_steps(self, lost_parents: list[int]) -> Iterator[tuple[int, Steps]]:
        """The steps of every process that has an optimizer or a loader."""
        looped = [
            process for process in self.processes.values()
            if process.has_scopes or self._step_mark or len(self._step_marks(process)[0])
        ]  # fmt: skip
        wanted: dict[int, list[Columns]] = {process.number: [] for process in looped}
        if not looped:
            return
        owner = self._owner()
        for piece in self._spans.pieces():
            rows = self._with_marked(piece, without_inner_operators(piece))
            of = owner[piece["track"][rows]]
            for number, kept in wanted.items():
                mine = rows[of == number]
                kept.append({name: piece[name][mine] for name in OF_STEPS})
        for process in looped:
            kept = wanted[process.number]
            if not kept:  # the recording has marks and no span
                continue
            spans = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
            # Once more over all, in an order of their own: what is found must not depend on where a part ended.
            rows = without_inner_operators(spans, lost_parents)
            rows = rows[(spans["kind_code"][rows] != MODULE) | (spans["seq"][rows] == 0)]
            rows = self._with_marked(spans, rows)
            own_number = np.zeros(self._next_track, np.int64)
            own_number[list(process.tracks.values())] = list(process.tracks)
            track = own_number[spans["track"][rows]]
            rows = rows[np.lexsort((spans["depth"][rows], spans["start_ns"][rows], track))]
            yield process.number, self._steps_of(process, {name: values[rows] for name, values in spans.items()})

    def _with_marked(self, spans: Columns, rows: np.ndarray) -> np.ndarray:
        """`rows`, and those that the user calls the steps, wherever they lie."""
        code = self._texts.names.get(self._step_mark, -1)
        return np.union1d(rows, np.flatnonzero(spans["name_code"] == code)) if code >= 0 else rows

    def _steps_of(self, process: Process, spans: Columns) -> Steps:
        optimizer = np.full(len(spans["span"]), -1, np.int32)
        if process.optimizers:
            keys, numbers = (np.concatenate(column) for column in zip(*process.optimizers, strict=True))
            by_key = np.argsort(spans["span"], kind="stable")
            optimizer[by_key[np.searchsorted(spans["span"], keys, sorter=by_key)]] = numbers
        marks_ns, marks_track = self._step_marks(process)
        self._name_lines(spans)
        return find_steps(
            SpanColumns(
                track=spans["track"],
                depth=spans["depth"],
                start_ns=spans["start_ns"],
                dur_ns=spans["dur_ns"],
                kind=spans["kind_code"].astype(np.uint8),
                name=spans["name_code"],
                names=list(self._texts.names),
                optimizer=optimizer,
                marks_ns=marks_ns,
                marks_track=marks_track,
                step_mark=self._step_mark,
            )
        )

    def _name_lines(self, spans: Columns) -> None:
        """Where the user said FILE:LINE, the ranges of that line are called by it; in place."""
        file, _, number = self._step_mark.rpartition(":")
        if not file or not number.isdigit():
            return
        codes = [code for line, code in self._texts.lines.items() if f"/{line}".endswith(f"/{self._step_mark}")]
        spans["name_code"][np.isin(spans["line_code"], codes)] = self._texts.name(self._step_mark)

    def _step_marks(self, process: Process) -> tuple[np.ndarray, np.ndarray]:
        """The moments that the program marked as the end of a step, and their tracks."""
        track, records = process.decoder.moments()
        rows = np.flatnonzero((records["kind"] == layout.MARK) & (records["module"] == MARKS.index("step")))
        keys = np.array([self._track_key(process, number) for number in track[rows].tolist()], np.int32)
        return records["start"][rows].astype(np.int64), keys

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
                about = (piece[name][mine] for name in ("seq", "start_ns", "dur_ns", "module"))
                process.pairs.add_forward(piece["span"][mine], of[of >= 0], *about)
        pairs = [process.pairs.links() for process in looped]
        columns: Columns = {
            "from_span": np.concatenate([np.zeros(0, np.int64), *(forward for forward, _, _ in pairs)]),
            "to_span": np.concatenate([np.zeros(0, np.int64), *(backward for _, backward, _ in pairs)]),
        }
        if self._texts.modules:
            module = np.concatenate([np.zeros(0, np.int64), *(module for _, _, module in pairs)])
            self._backward.settle(columns["to_span"], module.astype(np.int32))
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
            self._backward.inherit(columns)
            of = owner[columns["track"]]
            for number, steps in found.items():
                rows = np.flatnonzero(of == number)
                step[rows], phase[rows] = steps.assign(columns["start_ns"][rows], columns["track"][rows])
            return step, phase

        return assign

    def _write_steps(self, found: dict[int, Steps]) -> None:
        names = ("start_ns", "dur_ns", "load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns", "warmup")
        parts = [
            {
                "step": np.arange(len(steps)),
                "process": np.full(len(steps), number),
                "rule": np.full(len(steps), steps.rule, object),
                "optimizer": np.full(len(steps), -1 if steps.optimizer is None else steps.optimizer),
                **{name: getattr(steps, name) for name in names},
            }
            for number, steps in found.items()
        ]
        if not parts:
            self.rows["steps"] = write_rows(self.tables, "steps", [])
            return
        columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns["optimizer"] = pa.array(columns["optimizer"], mask=columns["optimizer"] < 0)
        self.rows["steps"] = write_columns(self.tables, "steps", columns)

    def _write_totals(self) -> None:
        names = list(self._texts.names)
        rows = [
            {
                "process": process.number, "layer": SPAN_LAYERS[LAYER_OF_KIND[key >> 32]], "kind": KINDS[key >> 32],
                "name": names[key & 0xFFFFFFFF], "count": count, "total_ns": total, "min_ns": least, "max_ns": most,
            }
            for process in self.processes.values()
            for key, (count, total, least, most) in sorted(process.totals.items())
        ]  # fmt: skip
        self.rows["totals"] = write_rows(self.tables, "totals", rows)

    def _unmatched(self, found: dict[int, Steps]) -> list[dict[str, Any]]:
        """The problem that what the user called a step never came."""
        if not self._step_mark or any(steps.rule == "mark" for steps in found.values()):
            return []
        what = f"--step-mark {self._step_mark}: nothing was recorded by that name or line"
        remedy = "see the names in `layerscope table spans`, or the lines in `layerscope table operators --by line`"
        return [{"layer": OPERATORS, "code": "no_step_mark", "what": what, "remedy": remedy, "lost": "steps as asked"}]

    def _write_small(self, session: dict[str, Any], problems: list[dict[str, Any]]) -> None:
        """All that is not made of spans; `problems` are those of the conversion itself."""
        small = SmallTables(self._texts, self._next_track)
        for process in self.processes.values():
            small.add_process(process, session)
        small.add_texts()
        small.rows["problems"].extend([*session.get("problems", []), *problems])
        small.add_problems(list(self.processes.values()))
        self.rows.update(small.write(self.tables))


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


def read_options(raw: Path) -> dict[str, Any]:
    """What the user asked for when the recording was made and its conversion must know; of several ranks, of one."""
    for file in sorted([*raw.glob(spool.OPTIONS), *raw.glob(f"*/raw/{spool.OPTIONS}")]):
        try:
            options: dict[str, Any] = json.loads(file.read_text())
            return options
        except (OSError, ValueError):
            continue
    return {}


def read_session(raw: Path) -> dict[str, Any]:
    """What the session left for the converter; empty when it never came to its end."""
    try:
        session: dict[str, Any] = json.loads((raw / "session.json").read_text())
    except (OSError, ValueError):
        return {}
    return session
