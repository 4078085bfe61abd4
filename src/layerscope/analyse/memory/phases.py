"""When a process was in a forward pass and when in a backward pass, as its spans tell.

Blocks say only in which phase they were allocated. Whether one outlives the backward pass is told
by the moment at which that pass ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.columns import has_name
from layerscope.analyse.memory.blocks import Array, Blocks, Int64s, Steps
from layerscope.analyse.step_times import Arrays, process_of_tracks
from layerscope.model.distinct import distinct

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Later than every moment.
NEVER = np.iinfo(np.int64).max
_COLUMNS = ("track", "start_ns", "end_ns", "module")


def _nothing() -> Int64s:
    return np.zeros(0, np.int64)


class SpansOfPhase(Struct):
    """Calls of modules, or spans of backward functions, in the order of their starts. `module`: -1
    where none is known.
    """

    track: Array = field(default_factory=_nothing)
    start_ns: Int64s = field(default_factory=_nothing)
    end_ns: Int64s = field(default_factory=_nothing)
    module: Array = field(default_factory=_nothing)


class PhaseSpans(Struct):
    """The spans of one process that tell its phases."""

    forward: SpansOfPhase = field(default_factory=SpansOfPhase)
    backward: SpansOfPhase = field(default_factory=SpansOfPhase)
    loading: SpansOfPhase = field(default_factory=SpansOfPhase)


class Passes(Struct):
    """The backward passes of a process, in order; they do not overlap. `first_forward_ns`: when the
    forward pass before each of them began, `NEVER` where none did. `forward_ns`: moments at which
    the process was in a forward pass, in order. `call_ns`, `call_end_ns`: the outermost calls of
    modules, in order; they do not overlap. `load_ns`, `load_end_ns`: the same of loaders.
    """

    begin_ns: Int64s
    end_ns: Int64s
    first_forward_ns: Int64s
    forward_ns: Int64s
    call_ns: Int64s = field(default_factory=_nothing)
    call_end_ns: Int64s = field(default_factory=_nothing)
    load_ns: Int64s = field(default_factory=_nothing)
    load_end_ns: Int64s = field(default_factory=_nothing)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.begin_ns)


def counted_until(at_ns: Int64s, moments_ns: Int64s) -> Int64s:
    """How many of these moments have come at each `at_ns`; both are in order."""
    first = np.searchsorted(at_ns, moments_ns, side="left")
    came = np.bincount(first, minlength=len(at_ns) + 1)
    found: Int64s = np.cumsum(came[:-1])
    return found


def phase_spans(reader: Reader) -> dict[int, PhaseSpans]:
    """The spans of modules, of backward functions and of loaders of every process."""
    tracks = reader.arrays("tracks", ["track", "process"])
    parts: dict[str, list[Arrays]] = {"module": [], "backward": [], "loader": []}
    for spans in reader.pieces("spans", ["track", "kind", "start_ns", "dur_ns", "module"]):
        spans["end_ns"] = spans["start_ns"] + spans["dur_ns"]
        for kind, found in parts.items():
            rows = np.flatnonzero(has_name(spans, "kind", kind))
            found.append({name: spans[name][rows] for name in _COLUMNS})
    process_of = process_of_tracks(tracks)
    of_kinds = [_by_process(found, process_of) for found in parts.values()]
    return {
        process: PhaseSpans(*(of_kind.get(process, SpansOfPhase()) for of_kind in of_kinds))
        for process in distinct(tracks["process"]).tolist()
    }


def _by_process(parts: list[Arrays], process_of: Int64s) -> dict[int, SpansOfPhase]:
    """Spans by their process, in order."""
    if not parts:
        return {}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.argsort(columns["start_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    process = process_of[columns["track"]]
    # Tracks of one process are put together: a backward pass may run on several.
    found = {}
    for number in distinct(process).tolist():
        rows = np.flatnonzero(process == number)
        found[number] = SpansOfPhase(*(columns[name][rows] for name in _COLUMNS))
    return found


def passes_of(spans: PhaseSpans, blocks: Blocks, steps: Steps) -> Passes:
    """The backward passes of a process. Between two of them there is a forward pass or the start of
    a step; what is called within one, as checkpoints do, does not end it.

    Where spans are missing (they were thinned, or never recorded), the blocks that were allocated
    in the backward phase tell roughly when it was.
    """
    forward = spans.forward
    forward_ns = forward.start_ns
    splits = np.sort(np.concatenate([forward_ns, steps.start_ns]))
    begin_ns, end_ns = _joined(spans.backward.start_ns, spans.backward.end_ns, splits)
    more_ns, more_end_ns = _of_blocks(blocks, steps, begin_ns, end_ns)
    if len(more_ns) or not len(forward_ns):
        in_forward = blocks.at_ns[blocks.has_name("phase", "forward")]
        forward_ns = np.sort(np.concatenate([forward_ns, in_forward]))
        begin_ns = np.concatenate([begin_ns, more_ns])
        end_ns = np.concatenate([end_ns, more_end_ns])
        order = np.argsort(begin_ns, kind="stable")
        begin_ns = begin_ns[order]
        end_ns = end_ns[order]
    call_ns, call_end_ns = _outermost(forward.start_ns, forward.end_ns)
    load_ns, load_end_ns = _outermost(spans.loading.start_ns, spans.loading.end_ns)
    from_ns = _earliest(begin_ns, end_ns, steps)
    first_ns = _following(forward_ns, from_ns, begin_ns)
    called_ns = _called(forward, call_ns, from_ns, begin_ns)
    is_called = called_ns < NEVER
    return Passes(
        begin_ns=begin_ns,
        end_ns=end_ns,
        first_forward_ns=np.where(is_called, called_ns, first_ns),
        forward_ns=forward_ns,
        call_ns=call_ns,
        call_end_ns=call_end_ns,
        load_ns=load_ns,
        load_end_ns=load_end_ns,
    )


def _outermost(start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """Spans in order without those that begin in another one."""
    # With a split at every start nothing is joined but what lies in each other.
    return _joined(start_ns, end_ns, start_ns)


def _joined(start_ns: Int64s, end_ns: Int64s, splits_ns: Int64s) -> tuple[Int64s, Int64s]:
    """Passes from spans in order: joined until a split lies between two that do not touch."""
    if not len(start_ns):
        return _nothing(), _nothing()
    ended_ns = np.maximum.accumulate(end_ns)
    before, behind = ended_ns[:-1], start_ns[1:]
    splits = np.searchsorted(splits_ns, behind, side="right") - np.searchsorted(
        splits_ns, before, side="left"
    )
    is_first = np.ones(len(start_ns), np.bool_)
    is_first[1:] = (behind >= before) & (splits > 0)
    first = np.flatnonzero(is_first)
    # Each ends with the last span before the next one.
    last = np.append(first[1:], len(start_ns)) - 1
    return start_ns[first], ended_ns[last]


def _of_blocks(
    blocks: Blocks, steps: Steps, begin_ns: Int64s, end_ns: Int64s
) -> tuple[Int64s, Int64s]:
    """A pass for each step, from blocks of the backward phase that lie in no known pass; none is
    around one that is known.
    """
    rows = np.flatnonzero(blocks.has_name("phase", "backward"))
    at_ns = blocks.at_ns[rows]
    begun = counted_until(at_ns, begin_ns)
    ended = counted_until(at_ns, end_ns)
    is_outside = begun == ended
    at_ns, begun = at_ns[is_outside], begun[is_outside]
    if not len(at_ns):
        return _nothing(), _nothing()
    place = steps.places_at(at_ns)
    is_first = np.ones(len(at_ns), np.bool_)
    is_first[1:] = (place[1:] != place[:-1]) | (begun[1:] != begun[:-1])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(at_ns)) - 1
    return at_ns[first], at_ns[last] + 1


def _earliest(begin_ns: Int64s, end_ns: Int64s, steps: Steps) -> Int64s:
    """When the forward pass before each backward pass may begin: after the one before it, in the
    same step.
    """
    place = steps.places_at(begin_ns)
    # One place more, for -1: in no step.
    starts_ns = np.append(steps.start_ns, 0)
    from_ns = starts_ns[place]
    from_ns[1:] = np.maximum(from_ns[1:], end_ns[:-1])
    return from_ns


def _following(moments_ns: Int64s, from_ns: Int64s, until_ns: Int64s) -> Int64s:
    """The first of the moments in each of these stretches of time, `NEVER`: none is."""
    following = np.searchsorted(moments_ns, from_ns, side="left")
    found = np.append(moments_ns, NEVER)[following]
    return np.where(found < until_ns, found, NEVER)


def _called(
    forward: SpansOfPhase,
    call_ns: Int64s,
    from_ns: Int64s,
    begin_ns: Int64s,
) -> Int64s:
    """The last call, before each backward pass, of the module that was called first since
    `from_ns`; `NEVER`: none was. A step may begin with an evaluation, which calls that module too.
    """
    rows = np.searchsorted(forward.start_ns, call_ns)
    module = forward.module[rows]
    first_ns = _following(call_ns, from_ns, begin_ns)
    found = first_ns.copy()
    was_called = np.flatnonzero(first_ns < NEVER)
    first = np.searchsorted(call_ns, first_ns[was_called])
    root = module[first]
    for number in distinct(root).tolist():
        own_ns = call_ns[module == number]
        of_root = was_called[root == number]
        last = np.searchsorted(own_ns, begin_ns[of_root]) - 1
        found[of_root] = own_ns[last]
    return found
