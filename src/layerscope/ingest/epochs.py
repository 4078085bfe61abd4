"""The spans of a recording, from when their parents and self times are known until they are rows of
a part.

They wait here until there are enough of them: an epoch. What the end of it still leaves open, the
spans of a step that goes on, waits for the next one. Memory stays that of a few epochs, whatever
the length of the run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from layerscope.ingest.autograd_links import operators_of
from layerscope.ingest.epoch import Epoch
from layerscope.ingest.limits import IngestLimits
from layerscope.ingest.lines import SpanColumns
from layerscope.ingest.module_attribution import inherit
from layerscope.ingest.parts import Parts, by_process
from layerscope.ingest.primitives import (
    FORWARD_BACKWARD,
    SUBMIT_EXECUTE,
    link_primitives,
    links_of,
)
from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.spans import (
    BACKWARD,
    CALL,
    FUNCTION,
    MODULE,
    SUBMIT,
    ColumnBuffer,
    Columns,
    in_order,
    joined,
    keep,
    taken,
    without_inner_operators,
)
from layerscope.ingest.stacks import StackIngest
from layerscope.ingest.step_marks import marked_names, name_lines
from layerscope.ingest.stepping import Stretch
from layerscope.ingest.steps import no_steps
from layerscope.ingest.string_table import StringTable
from layerscope.ingest.totals import SpanTotals, keys_of
from layerscope.model.frameworks import backward_prefixes, gradient_sums

# A step that has not ended after so many epochs is not waited for any longer.
PATIENCE = 3
# What spans get when they are complete.
OF_THE_END = ("step", "phase")
# What is not asked for any more then.
OF_LINKING = ("thread", "optimizer")
NO_STEPS = no_steps()
# The columns of a span that say what the steps are.
OF_STEPS = (
    "track",
    "depth",
    "start_ns",
    "dur_ns",
    "kind_code",
    "name_code",
    "sequence",
    "line_code",
    "optimizer",
    "args",
)
_EVER = np.iinfo(np.int64).max
_NO_ROWS = np.zeros(0, np.intp)
_NO_SPANS: Columns = {name: np.zeros(0, np.int64) for name in (*OF_STEPS, "span", "asked_track")}


class Epochs:
    """Takes spans in and makes parts of them; knows the steps of every process."""

    def __init__(
        self,
        texts: StringTable,
        totals: SpanTotals,
        parts: Parts,
        stacks: StackIngest,
        limits: IngestLimits,
        step_mark: str,
    ) -> None:
        self.step_mark = step_mark
        self._stacks = stacks
        self._texts = texts
        self._totals = totals
        self._parts = parts
        self._limits = limits
        self._waiting = ColumnBuffer(limits.epoch_spans)
        self._close_at = limits.epoch_spans
        self._until_ns = _EVER  # of the samples that this epoch is joined with

    def add(self, columns: Columns) -> None:
        """Take in ended spans, as `RunConversion` makes them."""
        self._waiting.add(columns)

    @property
    def is_full(self) -> bool:
        """Whether it is time to `close` an epoch."""
        return self._waiting.rows >= self._close_at

    def close(
        self, processes: Iterable[IngestedProcess], process_of: np.ndarray, last: bool = False
    ) -> None:
        """Make a part of what is complete; `process_of`: the process of each track. `last`: of
        everything.
        """
        if last:
            self._marked_alone(processes)
        if not self._waiting.rows:
            return
        columns = self._waiting.empty()
        held = self._held_back(columns, last)
        if len(columns["span"]):
            known = {one.number: one for one in processes}
            epoch = Epoch(columns, known, process_of, self._texts.phases_told())
            self._complete(epoch, last)
            del columns, epoch
            self._parts.make_room()
        self._waiting.add(held)
        for process in processes:
            process.submissions.forget(self._waiting.least_key)
        self._close_at = self._waiting.rows + self._limits.epoch_spans

    def _complete(self, epoch: Epoch, last: bool) -> None:
        """Write what is complete of an epoch; the rest waits."""
        for number, stretch in self._stretches(epoch, last).items():
            if stretch is not None:
                epoch.take(number, stretch, last)
        left = np.flatnonzero(~epoch.done)
        recorded = {
            name: values for name, values in epoch.columns.items() if name not in OF_THE_END
        }
        waiting = taken(recorded, left)
        del recorded
        epoch.keep(_in_order(epoch.columns, np.flatnonzero(epoch.done)))
        self._waiting.add(waiting)
        if len(epoch.columns["span"]):
            self._write(epoch, last)

    def _held_back(self, columns: Columns, last: bool) -> Columns:
        """Leave the spans for which all samples are known; those that wait for more are returned,
        if they are not too many.
        """
        self._until_ns = _EVER if last else self._stacks.known_until_ns()
        is_held = columns["start_ns"] >= self._until_ns
        most = PATIENCE * self._limits.epoch_spans
        if np.count_nonzero(is_held) > most:
            self._until_ns = _EVER
            is_held[:] = False
        held = taken(columns, np.flatnonzero(is_held))
        if len(held["span"]):
            keep(columns, np.flatnonzero(~is_held))
        return held

    # -- steps -------------------------------------------------------------------------------------

    def _stretches(self, epoch: Epoch, last: bool) -> dict[int, Stretch | None]:
        """By process, what is complete of it. None: nothing is."""
        outer = without_inner_operators(epoch.columns["kind_code"], epoch.inside)
        spans = len(epoch.columns["span"])
        most = self._most_waiting(spans, len(epoch.groups)) if not last else 0
        columns = {**epoch.columns, "asked_track": epoch.asked_track}
        found = {
            number: self._stretch(epoch.processes[number], columns, rows, outer, most)
            for number, rows in epoch.groups.items()
        }
        for number, stretch in found.items():
            if stretch is not None and stretch.forgets:
                self._forget_steps(number)
        self._drop_side_requests(epoch.processes, found)
        return found

    def _stretch(
        self,
        process: IngestedProcess,
        columns: Columns,
        rows: np.ndarray,
        outer: np.ndarray,
        most: int,
    ) -> Stretch | None:
        """What is complete of a process, and its steps. None: nothing is; wait for more.

        `most`: how many spans of it may wait; 0: nothing more will come.
        """
        last = not most
        end_ns = _EVER if last else min(process.events.clock_end_ns, self._until_ns)
        has_marks = bool(self.step_mark) or process.events.has_step_marks
        has_marks |= bool(len(process.request_tracks()))
        if process.is_side or not (process.has_scopes or has_marks):
            return Stretch(end_ns, NO_STEPS)
        is_mine = np.zeros(len(columns["span"]), np.bool_)
        is_mine[rows] = True
        lines = outer[is_mine[outer]]
        lines = lines[(columns["kind_code"][lines] != MODULE) | (columns["sequence"][lines] == 0)]
        lines = self._without_calls(columns, lines)
        marked = marked_names(self._texts, self.step_mark)
        if marked:  # wherever they lie
            is_line = np.zeros(len(is_mine), np.bool_)
            is_line[lines] = True
            is_line[rows[np.isin(columns["name_code"][rows], marked)]] = True
            lines = np.flatnonzero(is_line)
        outline = {name: columns[name][lines] for name in OF_STEPS}
        requests = process.request_tracks()
        if len(requests):  # a call that answers one lies on its track
            asked = columns["asked_track"][lines]
            answers = (outline["kind_code"] == MODULE) & np.isin(asked, requests)
            outline["track"] = np.where(answers, asked, outline["track"])
        # A program that has made no step so far may be one that makes none.
        is_waiting = process.stepping.count > 0 or process.cut_ns < 0
        patient = is_waiting and len(rows) < most

        def prepare(chosen: Columns, from_ns: int) -> SpanColumns:
            """Those lines as the rules of steps take them."""
            return self._span_columns(process, chosen, from_ns, end_ns)

        return process.stepping.advance(outline, prepare, end_ns, last, patient)

    def _without_calls(self, columns: Columns, lines: np.ndarray) -> np.ndarray:
        """The rows among `lines` that are no calls of a C interface, but those that run a backward
        pass.
        """
        is_call = columns["kind_code"][lines] == CALL
        if not is_call.any():
            return lines
        around = backward_prefixes()
        names = enumerate(self._texts.names)
        backward = [code for code, name in names if name.startswith(around)]
        name_code = columns["name_code"][lines]
        is_backward = np.isin(name_code, backward)
        is_kept = ~is_call | is_backward
        kept: np.ndarray = lines[is_kept]
        return kept

    def _marked_alone(self, processes: Iterable[IngestedProcess]) -> None:
        """The steps of processes that marked them and recorded no span."""
        for process in processes:
            if process.events.has_step_marks and not process.has_spans and not process.is_side:
                self._stretch(process, _NO_SPANS, _NO_ROWS, _NO_ROWS, 0)

    def _most_waiting(self, spans: int, processes: int) -> int:
        """How many spans of a process may wait for the end of a step; of several together, twice as
        many.
        """
        most = PATIENCE * self._limits.epoch_spans
        return most if spans < 2 * most else min(most, max(1, spans // processes))

    def _span_columns(
        self, process: IngestedProcess, lines: Columns, from_ns: int, end_ns: int
    ) -> SpanColumns:
        lines = taken(lines, np.lexsort((lines["depth"], lines["start_ns"], lines["track"])))
        # To the thread that submits it an operator is no more than that.
        kind = np.where(lines["kind_code"] == SUBMIT, FUNCTION, lines["kind_code"])
        name_lines(self._texts, self.step_mark, lines)
        track, records = process.events.step_marks()
        marks = np.flatnonzero((records["start"] >= from_ns) & (records["start"] < end_ns))
        return SpanColumns(
            track=lines["track"],
            depth=lines["depth"],
            start_ns=lines["start_ns"],
            dur_ns=lines["dur_ns"],
            kind=kind.astype(np.uint8),
            name=lines["name_code"],
            names=list(self._texts.names),
            optimizer=lines["optimizer"],
            marks_ns=records["start"][marks].astype(np.int64),
            marks_track=np.array(
                [process.track_key(number) for number in track[marks].tolist()], np.int32
            ),
            step_mark=self.step_mark,
            ending=-1 if process.stepping.optimizer is None else process.stepping.optimizer,
            windows=tuple(process.windows.known(process.events.window_marks).known),
            request_tracks=process.request_tracks(),
            silent=tuple(process.events.silent),
            told=self._texts.phases_told().take(lines["args"]),
        )

    def _drop_side_requests(
        self, known: dict[int, IngestedProcess], found: dict[int, Stretch | None]
    ) -> None:
        """Requests are none where another process has steps of a stronger rule.

        A worker of a loader that calls modules to prepare its data serves nobody; the recording is
        about the training.
        """
        rules = {
            number: process.stepping.rule
            for number, process in known.items()
            if process.stepping.count
        }
        if not any(rule != "request" for rule in rules.values()):
            return
        for number in [number for number, rule in rules.items() if rule == "request"]:
            known[number].is_side = True
            known[number].stepping.forget()
            stretch = found.get(number)
            if stretch is not None:
                found[number] = Stretch(stretch.cut_ns, NO_STEPS)
            self._forget_steps(number)

    def _forget_steps(self, number: int) -> None:
        self._parts.forget_steps(number)
        self._totals.forget_steps(number)

    # -- parts -------------------------------------------------------------------------------------

    def _write(self, epoch: Epoch, last: bool) -> None:
        columns, process_of = epoch.columns, epoch.process_of
        links = [self._link_backward(columns, process_of)]
        links += link_primitives(
            columns, process_of, epoch.with_shares, epoch.main_tracks, epoch.inside
        )
        self._stacks.fuse(columns, epoch.inside, process_of, links[-1], epoch.until)
        for process in epoch.processes.values():
            links.append(_link_submissions(process))
            is_all = last or process.events.read_until_ns == _EVER
            links += process.device_work.links(is_all)
        self._add_totals(columns, process_of)
        for name in OF_LINKING:
            del columns[name]
        self._parts.process_of = process_of
        self._parts.add(columns, joined(links), epoch.units)

    def _link_backward(self, columns: Columns, process_of: np.ndarray) -> Columns:
        """Links of backward functions with the operators whose gradients they compute; they get the
        modules of those.
        """
        start_ns, kind, span = columns["start_ns"], columns["kind_code"], columns["span"]
        backward = np.flatnonzero(kind == BACKWARD)
        operator = np.full(len(backward), -1, np.intp)  # the row of each one's
        if len(backward):
            operator = operators_of(columns, process_of, backward)
            if self._texts.modules:
                end_ns, module = start_ns + columns["dur_ns"], columns["module"]
                sums = self._adds_gradients(columns["name_code"][backward])
                inherit(columns["track"], start_ns, end_ns, module, backward, operator, sums)
        linked = operator >= 0
        return links_of(span[operator[linked]], span[backward[linked]], FORWARD_BACKWARD)

    def _add_totals(self, columns: Columns, process_of: np.ndarray) -> None:
        """Add the spans that have ended to the exact sums."""
        unfinished = columns["unfinished"]
        rows = np.flatnonzero(~unfinished) if unfinished.any() else slice(None)
        keys = keys_of(
            columns["kind_code"][rows],
            columns["name_code"][rows],
            columns["module"][rows],
            columns["step"][rows] >= 0,
        )
        dur_ns = columns["dur_ns"][rows]
        self_ns = columns["self_ns"][rows]
        process = process_of.take(columns["track"][rows])
        for number, mine in by_process(process):
            of = slice(None) if len(mine) == len(keys) else mine
            self._totals.add(number, keys[of], dur_ns[of], self_ns[of])

    def _adds_gradients(self, codes: np.ndarray) -> np.ndarray:
        """Which of these names are the engine's of adding up a gradient."""
        names = list(self._texts.names)
        found, inverse = np.unique(codes, return_inverse=True)
        parts = gradient_sums()
        adds = [_has_part(names[code], parts) for code in found.tolist()]
        return np.array(adds, np.bool_)[inverse]


def _in_order(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """These rows as the table has them."""
    if len(rows) == len(columns["span"]):
        return in_order(columns)
    of_order = ("track", "start_ns", "depth")
    order = in_order({name: columns[name].take(rows) for name in of_order})
    return rows.take(order)


def _link_submissions(process: IngestedProcess) -> Columns:
    """Links of submissions with the operators that were submitted, as far as both are known."""
    submitted, executed = process.submissions.pairs()
    return links_of(submitted, executed, SUBMIT_EXECUTE)


def _has_part(name: str, parts: tuple[str, ...]) -> bool:
    """Whether one of these parts is in the name."""
    return any(part in name for part in parts)
