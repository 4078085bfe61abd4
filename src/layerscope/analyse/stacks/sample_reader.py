"""The stacks and samples of a recording, and which of them are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from layerscope.analyse.columns import Columns
from layerscope.analyse.stacks.frames import (
    MODULES,
    NATIVE,
    NO_LINE,
    PYTHON,
    FrameTable,
    StackFrame,
)
from layerscope.analyse.stacks.tree import NONE, Bools, Ints, has_above
from layerscope.model.distinct import distinct
from layerscope.model.errors import UsageError
from layerscope.model.layers import FRAME_LAYERS, PHASES, STACKS

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

CPU, OFFCPU, WALL, PAGEFAULTS = "cpu", "offcpu", "wall", "pagefaults"
# The kinds of samples (`samples.kind`) that a kind of picture is made of.
SAMPLES_OF = {CPU: ("cpu",), OFFCPU: ("offcpu",), WALL: ("cpu", "offcpu"), PAGEFAULTS: ("fault",)}
NO_SAMPLES = "no stacks were recorded"
REMEDY = (
    "they are recorded without `--without stacks`; a program that ends within a tenth of a "
    "second may have none"
)
EMPTY = f"No stacks were recorded. {REMEDY[:1].upper()}{REMEDY[1:]}"
# Of the file of another program.
NOT_IN_FILE = "there are no samples of stacks in the file"
OTHER_REMEDY = "record them with layerscope run, or with perf record"
EMPTY_OF_OTHERS = f"{NOT_IN_FILE[:1].upper()}{NOT_IN_FILE[1:]}: {OTHER_REMEDY}."
_LISTED = 12
_EVER_NS = 2**63 - 1
# Keys that are spread over at most so many times their count are found by a table of all numbers.
_MOST_GAPS = 4
# Columns that are read piece by piece. Whole, they are as short as they can be: there may be
# millions.
_STACK_TYPES = {"stack": np.int32, "parent": np.int32, "frame": np.int32, "depth": np.int32}
_SAMPLE_TYPES = {
    "stack": np.int32,
    "weight": np.int64,
    "state": np.int8,
    "is_wait": np.bool_,
    "track": np.int32,
    "step": np.int32,
    "idle": np.bool_,
    "is_counted": np.bool_,
}


class Choice(Struct, frozen=True):
    """Which samples or spans count; None: all. `steps` is half-open, times are seconds since the
    start of the run.

    seconds: a wait counts with the part of it that lies there, anything else if it begins there.
    module: a path, which stands for all modules in it too. idle: waits of idle threads of pools
    count too.
    """

    thread: str | None = None
    steps: range | None = None
    module: str | None = None
    phase: str | None = None
    seconds: tuple[float, float] | None = None
    idle: bool = False


class StackColumns(Struct, frozen=True):
    """The table `stacks` with places for keys: `up` the parent's, `frame` the number of the frame,
    by line.

    depth: how many frames are around each.
    """

    up: Ints
    frame: Ints
    layer: Ints
    key: Ints
    depth: Ints

    def place(self, keys: Ints) -> Ints:
        """Where the stacks called `keys` are; NONE stays, and so become those that are in no
        table.
        """
        return places_of(self.key, keys)


# What was read, as long as somebody has the recording open.
_READ: WeakKeyDictionary[Reader, tuple[StackColumns, FrameTable]] = WeakKeyDictionary()


def stacks_once(reader: Reader) -> tuple[StackColumns, FrameTable]:
    """The stacks of a recording and their frames, read when they are first asked for, for those who
    add no frames of another one.
    """
    if reader not in _READ:
        frames = FrameTable()
        _READ[reader] = read_stacks(reader, frames), frames
    return _READ[reader]


def read_stacks(reader: Reader, frames: FrameTable) -> StackColumns:
    """The stacks of a recording; frames that are new become known to `frames`."""
    pieces = reader.pieces("stacks", list(_STACK_TYPES))
    columns = _filled(pieces, _STACK_TYPES, reader.rows("stacks"))
    rows = reader.arrays("frames", ["frame", "layer", "name", "file", "line", "object"])
    numbers = frame_numbers(rows, frames).astype(np.int32)
    key = columns.pop("stack")
    is_sorted = (key[1:] > key[:-1]).all()
    if not is_sorted:
        order = np.argsort(key)
        key = key[order]
        columns = {name: values[order] for name, values in columns.items()}
    frame = numbers[places_of(rows["frame"], columns["frame"])]
    up = places_of(key, columns["parent"]).astype(np.int32, copy=False)
    layer = frames.layers().astype(np.int8)[frame]
    return StackColumns(up, frame, layer, key, columns["depth"])


def frame_numbers(rows: Columns, frames: FrameTable) -> Ints:
    """The number in `frames` of each row of the table `frames`."""
    layer_codes = [FRAME_LAYERS.index(str(name)) for name in rows["layer.names"]]
    codes = rows["layer"].tolist()
    layers = [layer_codes[code] for code in codes]
    others = [rows[name].tolist() for name in ("name", "file", "object", "line")]
    return frames.numbers(map(_stack_frame, layers, *others))


def places_of(known: Ints, keys: Ints) -> Ints:
    """Where in `known` each of `keys` is, NONE where it is not."""
    if not len(known):
        return np.full(len(keys), NONE)
    if _is_range(known):
        if keys.max(initial=NONE) < len(known):
            return keys
        return np.where(keys < len(known), keys, NONE)
    if known.min() >= 0 and known.max() < _MOST_GAPS * len(known):
        place_of = np.full(known.max() + 2, NONE, np.int64)  # the last one is for all others
        place_of[known] = np.arange(len(known))
        beyond = len(place_of) - 1
        is_within = (keys >= 0) & (keys < beyond)
        return place_of.take(np.where(is_within, keys, beyond))
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known[order], keys).clip(max=len(known) - 1)
    found = order[at]
    places: Ints = np.where(known[found] == keys, found, NONE)
    return places


def _is_range(keys: Ints) -> bool:
    """Whether they are 0, 1, 2 and so on."""
    if keys[0] != 0 or keys[-1] != len(keys) - 1:
        return False
    return bool((keys[1:] > keys[:-1]).all())


def _stack_frame(
    layer: int, name: str, file: str | None, library: str | None, line: int
) -> StackFrame:
    """A frame with what says where it comes from in its layer."""
    if layer == PYTHON:
        path = file or ""
        return StackFrame(layer, name, path, line)
    if layer == NATIVE:
        return StackFrame(layer, name, library or "", NO_LINE)
    return StackFrame(layer, name, "", NO_LINE)


class SampleColumns(Struct, frozen=True):
    """Chosen rows of the table `samples`: their stack (a place, NONE: not known), weight and what
    they say besides.

    weight: ns, of page faults their number. state: as an index into `states`, of waits alone.
    track, step: only if they were asked for. is_counted: of what is one sample together, the last
    row. idle_weight: what was left out because it is a wait of an idle thread.
    """

    stack: Ints
    weight: Ints
    state: Ints
    states: list[str]
    is_wait: Bools
    track: Ints
    step: Ints
    idle: Bools
    is_counted: Bools
    idle_weight: int


def check_recorded(reader: Reader) -> None:
    """UsageError with the reason and the remedy when there are no samples at all."""
    if reader.has("samples"):
        return
    query = "SELECT what, remedy FROM problems WHERE layer = ? LIMIT 1"
    problems = reader.query(query, [STACKS]).to_pylist()
    what, remedy = NO_SAMPLES, REMEDY
    if reader.run.info.imported_from:
        what, remedy = NOT_IN_FILE, OTHER_REMEDY
    for problem in problems:
        what = problem["what"]
        remedy = problem["remedy"]
    remedy = remedy[:1].upper() + remedy[1:]
    raise UsageError(f"{reader.run.path.name} has no samples: {what}. {remedy}")


def read_samples(
    reader: Reader,
    stacks: StackColumns,
    frames: FrameTable,
    kind: str,
    choice: Choice,
    with_place: bool = False,
) -> SampleColumns:
    """The samples of a kind of picture that `choice` leaves; `with_place`: with their tracks and
    steps.
    """
    idle_weight, states = 0, list[str]()

    def columns() -> Iterator[dict[str, NDArray[Any]]]:
        nonlocal idle_weight, states
        for piece in pieces_of_samples(reader, stacks, frames, kind, choice, with_place):
            idle_weight += piece.idle_weight
            states = piece.states
            yield {name: getattr(piece, name) for name in _SAMPLE_TYPES}

    return SampleColumns(
        **_filled(columns(), _SAMPLE_TYPES, reader.rows("samples")),
        states=states,
        idle_weight=idle_weight,
    )


def pieces_of_samples(
    reader: Reader,
    stacks: StackColumns,
    frames: FrameTable,
    kind: str,
    choice: Choice,
    with_place: bool = False,
) -> Iterator[SampleColumns]:
    """The same piece by piece, so that memory does not grow with their number. States mean the same
    in all of them.
    """
    weighed = "count" if kind == PAGEFAULTS else "weight_ns"
    names = list(dict.fromkeys(("stack", weighed, "count", "kind", "state", "idle")))
    wanted_for = {
        "track": choice.thread,
        "step": choice.steps,
        "phase": choice.phase,
        "at_ns": choice.seconds,
        "weight_ns": choice.seconds,
    }
    names += [
        name
        for name, of in wanted_for.items()
        if (of is not None and name != weighed) or (with_place and name in ("track", "step"))
    ]
    below = (
        None
        if choice.module is None
        else has_above(stacks.up, _module_frames(stacks, frames, choice.module))
    )
    nothing = np.zeros(0, np.int32)
    for columns in reader.pieces("samples", names):
        is_chosen, waits = _chosen(reader, stacks, columns, kind, choice, below)
        idle = columns["idle"].astype(np.bool_)
        left_out = is_chosen & idle & (not choice.idle)
        rows = np.flatnonzero(is_chosen & ~left_out)
        weight = columns[weighed]
        if choice.seconds is not None and weighed == "weight_ns":
            weight = np.where(waits, _inside_ns(reader, columns, choice.seconds), weight)
        yield SampleColumns(
            stacks.place(columns["stack"][rows]),
            weight[rows],
            columns["state"][rows],
            [str(name) for name in columns["state.names"]],
            waits[rows],
            columns["track"][rows] if with_place else nothing,
            columns["step"][rows] if with_place else nothing,
            idle[rows],
            columns["count"][rows] > 0,
            int(weight[left_out].sum()),
        )


def _chosen(
    reader: Reader,
    stacks: StackColumns,
    columns: dict[str, NDArray[Any]],
    kind: str,
    choice: Choice,
    below: Bools | None,
) -> tuple[Bools, Bools]:
    """Which samples a kind of picture is made of and `choice` leaves, idle ones too; and which are
    waits.

    below: of each stack whether it is in the module that was chosen.
    """
    rows = len(columns["stack"])
    names = columns["kind.names"]
    if not len(names):
        return np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    kinds = columns["kind"]
    waits: Bools = (names == "offcpu")[kinds]
    chosen = np.isin(names, SAMPLES_OF[kind])[kinds]
    at_any_time = replace(choice, seconds=None)
    chosen &= chosen_rows(reader, columns, at_any_time, rows)
    seconds = choice.seconds
    if seconds is not None:
        begins = chosen_rows(reader, columns, Choice(seconds=seconds), rows)
        goes_on = _inside_ns(reader, columns, seconds) > 0
        chosen &= begins | (waits & goes_on)
    if below is not None:
        is_below = np.append(below, False)  # the last place is for -1
        place = stacks.place(columns["stack"])
        chosen &= is_below[place]
    return chosen, waits


def _inside_ns(reader: Reader, columns: Columns, seconds: tuple[float, float]) -> Ints:
    """How much of each wait lies between `seconds`."""
    begin = columns["at_ns"] - reader.run.info.start_ns
    end = begin + columns["weight_ns"]
    first, last = (round(min(at * 1e9, _EVER_NS)) for at in seconds)
    inside: Ints = np.minimum(end, last) - np.maximum(begin, first)
    return inside.clip(min=0)


def _filled(
    pieces: Iterable[dict[str, NDArray[Any]]], types: Mapping[str, type], most: int
) -> dict[str, Any]:
    """The columns of all pieces, which have `most` rows or fewer."""
    whole: dict[str, NDArray[Any]] = {}
    for name, kind in types.items():
        whole[name] = np.empty(most, kind)
    rows = dict.fromkeys(types, 0)
    for piece in pieces:
        for name, column in whole.items():
            values = piece[name]
            first = rows[name]
            last = first + len(values)
            column[first:last] = values
            rows[name] = last
    return {name: values[: rows[name]] for name, values in whole.items()}


def chosen_rows(
    reader: Reader, columns: dict[str, NDArray[Any]], choice: Choice, rows: int
) -> Bools:
    """Which of so many rows of samples or spans thread, step, phase and time leave.

    `columns` has what `choice` looks at, times in `at_ns`.
    """
    chosen: Bools = np.ones(rows, np.bool_)
    if choice.thread is not None:
        tracks = tracks_called(reader, choice.thread)
        chosen &= np.isin(columns["track"], tracks)
    if choice.steps is not None:
        step = columns["step"]
        chosen &= step >= choice.steps.start
        chosen &= step < choice.steps.stop
    if choice.phase is not None:
        if choice.phase not in PHASES:
            phases = ", ".join(PHASES)
            raise UsageError(f"there is no phase {choice.phase!r}. The phases are {phases}")
        phase = columns["phase"]
        codes = np.flatnonzero(columns["phase.names"] == choice.phase)
        chosen &= phase >= 0
        chosen &= np.isin(phase, codes)
    if choice.seconds is not None:
        since_s, until_s = choice.seconds
        until_ns = min(until_s * 1e9, _EVER_NS)
        after_ns = columns["at_ns"] - reader.run.info.start_ns
        chosen &= after_ns >= round(since_s * 1e9)
        chosen &= after_ns < until_ns
    return chosen


def tracks_called(reader: Reader, called: str) -> Ints:
    """The threads with this name or id; UsageError that lists the threads when there is none."""
    columns = reader.arrays("tracks", ["track", "tid", "name", "kind"])
    is_thread = (
        (columns["kind.names"] == "thread")[columns["kind"]]
        if len(columns["kind"])
        else columns["kind"] > 0
    )
    names = columns["name"][is_thread].tolist()
    ids = columns["tid"][is_thread].tolist()
    found = [
        track
        for track, name, tid in zip(columns["track"][is_thread].tolist(), names, ids, strict=True)
        if called in (name, str(tid), f"{name} {tid}".strip())
    ]
    if not found:
        known = sorted({f"{name} {tid}".strip() for name, tid in zip(names, ids, strict=True)})
        raise UsageError(f"there is no thread {called!r}. The threads are {listed(known)}")
    return np.array(found, np.int64)


def _module_frames(stacks: StackColumns, frames: FrameTable, path: str) -> Bools:
    """The stacks that end in a module, or in one that it holds."""
    every = frames.all()
    is_module = stacks.layer == MODULES
    numbers = distinct(stacks.frame[is_module]).tolist()
    names = {number: every[number].name for number in numbers}
    inside = [number for number, name in names.items() if is_inside(name, path)]
    if not inside:
        known = sorted(set(names.values()))
        raise UsageError(no_module(path, known))
    chosen: Bools = is_module & np.isin(stacks.frame, inside)
    return chosen


def is_inside(path: str, module: str) -> bool:
    """Whether the module at `path` is `module` or one that it holds, as the summary calls them too.

    `module` may leave out the name of the network itself, and have * for any one name:
    blocks.*.attention.
    """
    names, wanted = path.split("."), module.split(".")
    return any(
        len(names) - first >= len(wanted)
        and all(one in ("*", name) for one, name in zip(wanted, names[first:], strict=False))
        for first in (0, 1)
    )


def no_module(path: str, known: list[str]) -> str:
    """The sentence about a module that is not there."""
    there = (
        f"The modules are {listed(known)}"
        if known
        else "No modules were recorded with these stacks"
    )
    return f"there is no module {path!r}. {there}"


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
