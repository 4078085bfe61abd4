"""A flame graph of a recording, or of two that are compared: a tree of frames whose weights add up
to the whole.

Kinds: cpu, offcpu, wall and pagefaults are made of samples; operators, primitives and gpu of
spans, which are exact; alloc, live and leak of blocks of memory, which are exact too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.analyse import thinned
from layerscope.analyse.result import BYTES, COUNT, NS
from layerscope.analyse.stacks import memory, sample_reader, spans
from layerscope.analyse.stacks.busy_threads import several_are_busy
from layerscope.analyse.stacks.compared import RUN, Compared, how_compared
from layerscope.analyse.stacks.frame_filter import folded
from layerscope.analyse.stacks.frames import (
    NO_LINE,
    OTHER,
    PYTHON,
    FrameTable,
    StackFrame,
    told_apart,
)
from layerscope.analyse.stacks.groups import AUTO, CATEGORY, STATE, STEP, THREAD, Groups
from layerscope.analyse.stacks.imports import NOTE, with_imports_as_one
from layerscope.analyse.stacks.innermost import functions
from layerscope.analyse.stacks.marked import left_out_shown, spinning
from layerscope.analyse.stacks.memory import ALLOC, LEAK, LIVE
from layerscope.analyse.stacks.openmp_workers import WORKERS, as_workers
from layerscope.analyse.stacks.sample_reader import (
    CPU,
    OFFCPU,
    PAGEFAULTS,
    SAMPLES_OF,
    WALL,
    Choice,
)
from layerscope.analyse.stacks.tree import (
    NONE,
    Bools,
    FrameTree,
    GroupWeights,
    Ints,
    added_up,
    apart,
    by_level,
    depths,
    inverted,
    merged,
    summed,
)
from layerscope.analyse.stacks.weights import Weights
from layerscope.analyse.step_times import MeasuredSteps, process_of_tracks
from layerscope.model.errors import UsageError
from layerscope.model.layers import GPU, OPERATORS, PRIMITIVES
from layerscope.model.units import duration

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# What each kind shows, as the beginning of a sentence.
KINDS = {
    CPU: "CPU time",
    OFFCPU: "Time waiting, off the CPU",
    WALL: "Time on the CPU and waiting",
    OPERATORS: "Time in operators",
    PRIMITIVES: "Time in primitives",
    GPU: "Time of work on GPUs",
    PAGEFAULTS: "Page faults",
    ALLOC: "Memory allocated",
    LIVE: "Memory live at its highest moment",
    LEAK: "Memory that outlived its step",
}
_UNITS = {PAGEFAULTS: COUNT, **dict.fromkeys(memory.KINDS, BYTES)}
_LINES = 3
_SEVERAL = "Several threads were busy, so each has a frame; --by none leaves that out."

# Lines of a function, each with its share of the function.
LineShares = list[tuple[int, float]]


def unit_of(kind: str) -> str:
    """What the weight of frames is counted in."""
    return _UNITS.get(kind, NS)


class Look(Struct, frozen=True):
    """What is asked for. layers: numbers of the layers of frames that are shown, None: the default
    (`shown`).
    """

    kind: str = CPU
    choice: Choice = field(default_factory=Choice)
    layers: tuple[int, ...] | None = None
    by_line: bool = False
    is_inverted: bool = False
    # Frames with less of the whole are not looked into when the stacks are inverted: nobody would
    # see them.
    least: float = 0.0
    # A frame around all for each of these: `groups.BY`, or AUTO.
    by: str | None = None
    # Two recordings are compared for each of these: `compared.PER`. None: a step, where both have
    # some, else the run.
    per: str | None = None
    # What imports of libraries ran has frames of its own.
    has_imports: bool = False

    @property
    def folds_imports(self) -> bool:
        """Whether an import is one frame: not where all frames are asked for, or none of Python."""
        if self.has_imports or self.kind not in SAMPLES_OF:
            return False
        is_all = self.layers is not None and len(self.layers) == OTHER
        return not is_all and (self.layers is None or PYTHON in self.layers)


class Graph(Struct, frozen=True):
    """Columns of `tree.own`: weight in `unit` (NS, COUNT or BYTES) and number of samples, spans or
    blocks; of two recordings then the same of the one before. upright: the tree with the outermost
    frames first, `tree` itself unless it is inverted. lines: of functions of Python the lines with
    most weight, each with its share of the function. by: what the frames around all are.
    """

    kind: str
    unit: str
    frames: list[StackFrame]
    tree: FrameTree
    upright: FrameTree
    is_inverted: bool
    lines: dict[int, LineShares]
    notes: tuple[str, ...]
    compared: Compared | None = None
    by: str | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether samples were counted; else every span and block was measured."""
        return self.kind in SAMPLES_OF

    @property
    def whole(self) -> int:
        """The weight of everything."""
        return int(self.tree.whole()[0])


class _Nodes(Struct, frozen=True):
    """Stacks of one recording before anything is merged, and what must be said of them. depth:
    frames around each.
    """

    up: Ints
    frame: Ints
    own: Ints
    depth: Ints
    notes: tuple[str, ...]


def build(reader: Reader, look: Look) -> Graph:
    """The flame graph of a recording. UsageError when there is nothing to make it of."""
    frames = FrameTable()
    chosen = _with_threads(look, reader)
    return _graph(frames, _nodes(reader, frames, chosen), chosen, is_auto=look.by == AUTO)


def turned(graph: Graph, least: float = 0.0) -> Graph:
    """`graph` with the innermost frames first; what `least` is, `Look` says."""
    tree = inverted(graph.upright, len(graph.frames), least)
    return replace(graph, tree=tree, is_inverted=True)


def _with_threads(look: Look, *readers: Reader) -> Look:
    """`look` by thread, or by nothing, where it says AUTO."""
    if look.by != AUTO:
        return look
    is_of_all = look.kind in SAMPLES_OF and look.choice.thread is None
    is_by_thread = is_of_all and any(several_are_busy(reader) for reader in readers)
    return replace(look, by=THREAD if is_by_thread else None)


def compare(reader: Reader, before: Reader, look: Look) -> Graph:
    """The flame graph of a recording, with the weights of the one `before`: of measured steps where
    both have some, unless `look.per` says otherwise.
    """
    if look.by == STEP:
        raise UsageError("--diff compares the average of steps with another. Leave out --by step")
    if look.kind == LIVE:
        look = replace(look, per=_of_one_moment(look.per))
    is_auto = look.by == AUTO
    look = _with_threads(look, reader, before)
    frames = FrameTable()
    steps_of = memory.leaking_steps if look.kind == LEAK else MeasuredSteps
    steps = steps_of(reader), steps_of(before)
    compared = how_compared(look.per, look.choice, (reader, before), steps)
    by_step = compared.per == STEP
    new, old = (
        _nodes(side, frames, look, of if by_step else None, is_compared=True)
        for side, of in zip((reader, before), steps, strict=True)
    )
    nothing = np.zeros_like
    joined = _Nodes(
        np.concatenate((new.up, np.where(old.up >= 0, old.up + len(new.up), NONE))),
        np.concatenate((new.frame, old.frame)),
        np.concatenate(
            (np.hstack((new.own, nothing(new.own))), np.hstack((nothing(old.own), old.own)))
        ),
        np.concatenate((new.depth, old.depth)),
        tuple(dict.fromkeys((*new.notes, *old.notes))),
    )
    return _graph(frames, joined, look, compared, is_auto)


def _of_one_moment(per: str | None) -> str:
    """What lives at one moment is of the run as a whole; UsageError where it is to be divided."""
    if per not in (None, RUN):
        raise UsageError(f"--kind live is what lives at one moment. Leave out --per {per}")
    return RUN


def _graph(
    frames: FrameTable,
    nodes: _Nodes,
    look: Look,
    compared: Compared | None = None,
    is_auto: bool = False,
) -> Graph:
    up = nodes.up
    frame = nodes.frame
    own = nodes.own
    notes = nodes.notes
    if not own.any():
        raise UsageError(_nothing(look))
    levels = by_level(up, nodes.depth)
    del nodes  # there may be millions, and each column counts
    lines = {}
    if look.kind in SAMPLES_OF and not look.by_line:
        function = functions(frames).astype(np.int32)
        lines = _hot_lines(frames, function, frame, added_up(up, own[:, :1], levels)[:, 0])
        frame = function[frame]
    frame = left_out_shown(as_workers(up, frame, frames), frames)
    if is_auto and look.by == THREAD:
        # They have one frame for all of them.
        up = np.where(frame == frames.number(WORKERS), np.int32(NONE), up)
        levels = by_level(up)
        notes = (*notes, _SEVERAL)
    if look.folds_imports:
        up, frame, own, has_imports = with_imports_as_one(up, frame, own, frames, levels)
        if has_imports:
            notes = (*notes, NOTE)
            levels = by_level(up)
    up, frame, own = folded(up, frame, own, frames, look.layers, levels)
    del levels
    upright, _ = merged(up, frame, own, len(frames))
    tree = inverted(upright, len(frames), look.least) if look.is_inverted else upright
    return Graph(
        look.kind,
        unit_of(look.kind),
        told_apart(frames.all()),
        tree,
        upright,
        look.is_inverted,
        lines,
        notes,
        compared,
        look.by,
    )


def _nothing(look: Look) -> str:
    """What is said in place of an empty picture."""
    nothing = f"nothing of kind {look.kind} is left to show"
    if look.choice != Choice():
        left_out = "Leave out some of --thread, --step, --module, --phase and --time"
        hint = "" if look.kind in memory.KINDS else ", or add --idle"
        return f"{nothing}. {left_out}{hint}"
    if look.kind == LEAK:
        return f"{nothing}. No line goes on keeping memory step after step"
    if look.kind in spans.KINDS:
        nothing = f"nothing of kind {look.kind} was recorded"
    return f"{nothing}. Kinds are {', '.join(KINDS)}"


def _nodes(
    reader: Reader,
    frames: FrameTable,
    look: Look,
    steps: MeasuredSteps | None = None,
    is_compared: bool = False,
) -> _Nodes:
    if look.by == CATEGORY and look.kind not in memory.KINDS:
        of_memory = ", ".join(memory.KINDS)
        raise UsageError(f"--by category is for memory. Choose one of {of_memory} with --kind")
    if look.by == STATE and look.kind not in SAMPLES_OF:
        made_of = "are made of spans" if look.kind in spans.KINDS else "is made of blocks of memory"
        raise UsageError(
            f"--by state is for samples, and {look.kind} {made_of}. Choose cpu, offcpu, wall or "
            "pagefaults with --kind"
        )
    groups = Groups(reader, look.by, is_compared) if look.by is not None else None
    if look.kind in memory.KINDS:
        return _memory_nodes(reader, frames, look, steps, groups)
    if look.kind in spans.KINDS:
        return _span_nodes(reader, frames, look, steps, groups)
    sample_reader.check_recorded(reader)
    stacks = sample_reader.read_stacks(reader, frames)
    spins = np.zeros(len(stacks.up), np.bool_)
    if look.by == STATE and len(spins):
        levels = by_level(stacks.up, stacks.depth)
        spins = spinning(frames.all(), stacks.up, stacks.frame, levels)
    with_place = steps is not None or groups is not None
    weights, idle_weight = Weights(len(stacks.up)), 0
    for samples in sample_reader.pieces_of_samples(
        reader, stacks, frames, look.kind, look.choice, with_place
    ):
        counted = None
        if steps is not None:
            counted = _is_measured(reader, steps, samples.track, samples.step)
        group = None
        if groups and groups.is_state:
            group = groups.of_states(samples.stack, samples.is_wait, spins)
        elif groups:
            group = groups.of(samples.track, samples.step)
        weights.add(samples, counted, group)
        idle_weight += samples.idle_weight
    notes = []
    if idle_weight:
        time = duration(idle_weight)
        left_out = "that threads of pools waited without work are left out"
        notes.append(f"{time} {left_out}; --idle shows them.")
    roots = groups.frames(frames) if groups else None
    nodes = weights.nodes(stacks, frames, roots)
    return _Nodes(*nodes, tuple(notes))


def _span_nodes(
    reader: Reader,
    frames: FrameTable,
    look: Look,
    steps: MeasuredSteps | None,
    groups: Groups | None,
) -> _Nodes:
    if not reader.has("spans"):
        raise UsageError(
            f"{reader.run.path.name} has no {look.kind}. Record them: layerscope run ..."
        )
    found = spans.read_spans(reader, frames, look.kind, look.choice)
    up, frame, own, depth = found.up, found.frame, found.own, depths(found.up)
    if steps is not None:
        own = own * _is_measured(reader, steps, found.track, found.step)[:, None]
    if groups is not None:
        rows = np.flatnonzero(own.any(axis=1))
        group = groups.of(found.track[rows], found.step[rows])
        weighed = GroupWeights(rows, group, own[rows])
        up, frame, own, depth = apart(up, frame, depth, weighed, groups.frames(frames))
    return _Nodes(up, frame, own, depth, thinned.notes(reader))


def _memory_nodes(
    reader: Reader,
    frames: FrameTable,
    look: Look,
    steps: MeasuredSteps | None,
    groups: Groups | None,
) -> _Nodes:
    found = memory.read_memory(reader, frames, look.kind, look.choice)
    own, up = found.own, found.up
    if steps is not None:
        is_measured = _is_measured(reader, steps, found.track, found.step)
        own = own * is_measured[:, None]
    depth = depths(up)
    if groups is None:
        own = summed(len(up), found.node, own)
        return _Nodes(up, found.frame, own, depth, found.notes)
    group = found.category
    if not groups.is_category:
        group = groups.of(found.track, found.step)
    weighed = GroupWeights(found.node, group, own)
    roots = groups.frames(frames)
    nodes = apart(up, found.frame, depth, weighed, roots)
    return _Nodes(*nodes, found.notes)


def _hot_lines(
    frames: FrameTable, function: Ints, frame: Ints, totals: Ints
) -> dict[int, LineShares]:
    """By function of Python its lines with most weight; a line that calls itself counts twice."""
    weights = summed(len(frames), frame, totals[:, None])[:, 0]
    every = frames.all()
    lines_of: dict[int, Counter[int]] = defaultdict(Counter)
    for number in np.flatnonzero(weights).tolist():
        line = every[number]
        if line.layer == PYTHON and line.line != NO_LINE:
            lines = lines_of[int(function[number])]
            lines[line.line] = weights[number].item()
    return {number: _heaviest(lines) for number, lines in lines_of.items()}


def _heaviest(weights: Counter[int]) -> LineShares:
    """The lines with most weight, of equal ones the first."""
    whole = weights.total()
    heaviest = sorted(weights)
    heaviest.sort(key=weights.__getitem__, reverse=True)
    return [(line, weights[line] / whole) for line in heaviest[:_LINES]]


def _is_measured(reader: Reader, steps: MeasuredSteps, track: Ints, step: Ints) -> Bools:
    """What lies in a step that is no warm-up, of its own process."""
    process_of = process_of_tracks(reader.arrays("tracks", ["track", "process"]))
    return steps.of_spans({"track": track, "step": step}, process_of)[0]
