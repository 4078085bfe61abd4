"""A part of a recording for a page that cannot hold all of it: some steps, or whole steps that
stand for others.

What a part leaves out are spans, and of chosen steps the samples outside of them. Tables and sums
are made of the whole recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerscope.analyse.step_times import process_of_tracks
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.thinning import Units, choose, units_of_slices, units_of_steps

Arrays = dict[str, np.ndarray]
# Behind everything that a run can hold.
_END_NS = 2**62
_PLACE_COLUMNS = ["track", "start_ns", "dur_ns", "step", "weight"]
_STEP_COLUMNS = ["step", "process", "start_ns", "dur_ns", "weight"]


class PartReader(Reader):
    """A recording of which `arrays` gives some spans and samples only; `note` says which."""

    note = ""

    def __init__(self, whole: Reader, needed: Mapping[str, Sequence[str]]) -> None:
        """`needed`: the columns that say what is left out, of each table that is concerned."""
        super().__init__(whole.run)
        self._needed = needed

    def arrays(self, table: str, columns: list[str]) -> Arrays:
        """As `Reader.arrays`, without what is left out."""
        if table not in self._needed or not self.rows(table):
            return super().arrays(table, columns)
        wanted = list(dict.fromkeys([*columns, *self._needed[table]]))
        pieces = [self._kept(piece) for piece in self.pieces(table, wanted)]
        return _joined(pieces, columns)

    def _kept(self, piece: Arrays) -> Arrays:
        """What is kept of some rows of a table."""
        return piece


class StepsReader(PartReader):
    """The spans and the samples of the steps `first` to `last` - 1 of every process."""

    def __init__(self, whole: Reader, first: int, last: int) -> None:
        super().__init__(whole, {"spans": ["step"], "samples": ["step"]})
        steps = whole.arrays("steps", ["step"])["step"]
        if not ((steps >= first) & (steps < last)).any():
            raise UsageError(_no_such_step(f"{first}:{last}", steps))
        self._first, self._last = first, last
        which = f"step {first}" if last == first + 1 else f"the steps {first} to {last - 1}"
        self.note = (
            f"The page has the spans and samples of {which}; its tables and its summary are "
            "of the whole recording."
        )

    def _kept(self, piece: Arrays) -> Arrays:
        step = piece["step"]
        is_chosen = (step >= self._first) & (step < self._last)
        return _taken(piece, is_chosen)


def _no_such_step(words: str, steps: np.ndarray) -> str:
    """The sentence for steps that a recording does not have."""
    has = "it has no steps, leave --steps out"
    if len(steps):
        has = f"it has the steps {steps.min()} to {steps.max()}"
    return f"--steps {words} holds no step of the recording: {has}"


class ThinnedReader(PartReader):
    """At most about `most` spans: whole steps, each with the weight of those it stands for.

    It thins as a long run is thinned while it is recorded (`recording.thinning`). The first and the
    last step of each process stay, for themselves.
    """

    def __init__(self, whole: Reader, most: int) -> None:
        super().__init__(whole, {"spans": _PLACE_COLUMNS})
        self._process_of = process_of_tracks(whole.arrays("tracks", ["track", "process"]))
        self._units = _units(whole, self._process_of)
        self._weights = {process: units.weight for process, units in self._units.items()}
        counts, outside = self._counts()
        self._thin(counts, outside, most)
        kept = outside + self._count_of_kept(counts)
        self.note = self._sentence(kept, whole.rows("spans"))

    def _counts(self) -> tuple[dict[int, np.ndarray], int]:
        """Spans of each unit by process, and those that lie in none."""
        counts = {process: np.zeros(len(units), int) for process, units in self._units.items()}
        outside = 0
        for piece in self.pieces("spans", _PLACE_COLUMNS):
            for process, rows, unit in self._placed(piece):
                found = unit[unit >= 0]
                counts[process] += np.bincount(found, minlength=len(counts[process]))
                outside += len(rows) - len(found)
        return counts, outside

    def _placed(self, piece: Arrays) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Each process with its rows of the piece and their units."""
        process_of = self._process_of[piece["track"]]
        for process in np.unique(process_of).tolist():
            rows = np.flatnonzero(process_of == process)
            units = self._units[process]
            start_ns, step = piece["start_ns"][rows], piece["step"][rows]
            end_ns = start_ns + piece["dur_ns"][rows]
            yield process, rows, units.place(start_ns, end_ns, step)

    def _thin(self, counts: dict[int, np.ndarray], outside: int, most: int) -> None:
        longest = max(map(len, self._units.values()), default=0)
        factor = 1
        while factor < longest and outside + self._count_of_kept(counts) > most:
            factor *= 2
            for process, units in self._units.items():
                self._weights[process] = _inner_chosen(units, factor)

    def _count_of_kept(self, counts: dict[int, np.ndarray]) -> int:
        kept = 0
        for process, count in counts.items():
            stays = self._weights[process] > 0
            kept += int(count[stays].sum())
        return kept

    def _sentence(self, kept: int, spans: int) -> str:
        steps, slices = self._weights_of(is_step=True), self._weights_of(is_step=False)
        weight, what = (steps, "steps") if len(steps) else (slices, "slices of time")
        heaviest = int(weight.max(initial=1))
        others = ""
        if len(steps) and not slices.all():
            others = f", and of processes without steps {_count_of(slices, 'slices of time')}"
        return (
            f"The page has {kept:,} of {spans:,} spans: {_count_of(weight, what)}, of which one "
            f"stands for up to {heaviest:,}{others}. "
            "Its tables and its summary are of the whole recording"
        )

    def _weights_of(self, is_step: bool) -> np.ndarray:
        """For how many each step stands, or each slice of a process without steps; 0: it goes."""
        found = [np.zeros(0, np.int64)]
        for process, units in self._units.items():
            found.append(self._weights[process][(units.step >= 0) == is_step])
        return np.concatenate(found)

    def _kept(self, piece: Arrays) -> Arrays:
        """The spans of the steps that stay, with their weights, and those that outlast a step."""
        weight = piece["weight"].astype(np.int64)
        for process, rows, unit in self._placed(piece):
            inside = unit >= 0
            units = unit[inside]
            now, before = self._weights[process][units], self._units[process].weight[units]
            weight[rows[inside]] = weight[rows[inside]] * now // np.maximum(before, 1)
        return _taken({**piece, "weight": weight}, weight > 0)


def _count_of(weight: np.ndarray, what: str) -> str:
    stay = int(np.count_nonzero(weight))
    return f"{stay:,} whole {what} of {len(weight):,}"


def _units(whole: Reader, process_of: np.ndarray) -> dict[int, Units]:
    """What stays or goes as a whole, by process: its steps, else slices of its time."""
    steps = whole.arrays("steps", _STEP_COLUMNS)
    found = {}
    starts = _starts(whole, process_of)
    for process, start_ns in starts.items():
        rows = np.flatnonzero((steps["process"] == process) & (steps["weight"] > 0))
        first_ns = int(start_ns.min())
        if not len(rows):
            found[process] = units_of_slices(start_ns, first_ns, _END_NS)
            continue
        rows = rows[np.argsort(steps["start_ns"][rows], kind="stable")]
        of = {name: steps[name][rows] for name in _STEP_COLUMNS}
        units = units_of_steps(
            of["step"], of["start_ns"], of["dur_ns"], first_ns, _END_NS, _END_NS - 1
        )
        found[process] = units.taken(np.arange(len(rows)), of["weight"].astype(np.int64))
    return found


def _starts(whole: Reader, process_of: np.ndarray) -> dict[int, np.ndarray]:
    """When the spans of each process start."""
    pieces: dict[int, list[np.ndarray]] = {}
    for piece in whole.pieces("spans", ["track", "start_ns"]):
        of = process_of[piece["track"]]
        for process in np.unique(of).tolist():
            starts = piece["start_ns"][of == process]
            pieces.setdefault(process, []).append(starts)
    found = {}
    for process in sorted(pieces):
        found[process] = np.concatenate(pieces[process])
    return found


def _inner_chosen(units: Units, factor: int) -> np.ndarray:
    """For how many each unit stands when of `factor` between the first and the last one stays."""
    weight = units.weight.copy()
    inner = np.arange(1, len(units) - 1)
    weight[inner] = choose(units.taken(inner, units.weight[inner]), factor)
    return weight


def _taken(piece: Arrays, is_wanted: np.ndarray) -> Arrays:
    rows = np.flatnonzero(is_wanted)
    return {
        name: values if name.endswith(".names") else values[rows] for name, values in piece.items()
    }


def _joined(pieces: list[Arrays], columns: list[str]) -> Arrays:
    """The pieces behind each other, with those names only that a row has."""
    found: Arrays = {}
    for name in columns:
        values = np.concatenate([piece[name] for piece in pieces])
        if f"{name}.names" in pieces[-1]:
            values, found[f"{name}.names"] = _used(values, pieces[-1][f"{name}.names"])
        found[name] = values
    return found


def _used(codes: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    used = np.unique(codes[codes >= 0])
    # The last place is for null, whose code is -1.
    places = len(names) + 1
    place = np.full(places, -1, np.int32)
    place[used] = np.arange(len(used))
    return place[codes], names[used]


def part_of(whole: Reader, steps: range | None, most: int, all_of_it: str) -> PartReader | None:
    """What a page has of a recording: some steps, or at most `most` spans; None: all of it.

    `all_of_it`: the command that shows what the page leaves out.
    """
    if steps is not None:
        chosen = StepsReader(whole, steps.start, steps.stop)
        _check_size(whole, steps, most)
        return chosen
    if whole.rows("spans") <= most:
        return None
    thinned = ThinnedReader(whole, most)
    thinned.note += f"; {all_of_it} shows all of it."
    return thinned


def _check_size(whole: Reader, steps: range, most: int) -> None:
    answer = whole.query(
        "SELECT count(*) AS spans FROM spans WHERE step >= ? AND step < ?",
        [steps.start, steps.stop],
    )
    spans = answer.column("spans")[0].as_py()
    if spans > most:
        raise UsageError(
            f"--steps {steps.start}:{steps.stop} holds {spans:,} spans, and the page at most "
            f"{most:,}. Choose fewer steps, or a larger --max-spans"
        )
