"""The tree of memory: in which module, by which operator and on which line blocks were allocated.

Of `alloc` the weight is every byte that was allocated; of `live` what was live at the highest
moment of each process and device; of `leak` what steps allocated and nobody had released when the
last step ended. Steps of warm-up are not looked at, nor the last one, whose blocks are in use.

`Choice.steps` and `Choice.seconds` choose blocks by when they were allocated; of `live` they say in
which time the highest moment is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.memory.blocks import Blocks, read_blocks, steps_of
from layerscope.analyse.memory.live_curve import live_at_allocations
from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.memory_places import distinct_places, nodes_of_places
from layerscope.analyse.stacks.sample_reader import Choice, chosen_rows
from layerscope.analyse.stacks.spans import modules_called
from layerscope.analyse.stacks.tree import Bools, Ints
from layerscope.analyse.step_times import MeasuredSteps, process_of_tracks
from layerscope.model.distinct import distinct
from layerscope.model.errors import UsageError
from layerscope.model.units import duration, size

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

KINDS = ALLOC, LIVE, LEAK = ("alloc", "live", "leak")
NOT_RECORDED = "has no memory of tensors. Record it: layerscope run --layers=+memory ..."


@dataclass(frozen=True, slots=True)
class MemoryNodes:
    """Where blocks were allocated as nodes, `up` the one around each; and the blocks: the node of
    each, its bytes and a 1 (`own`), its track and its step. notes: what must be said of them.
    """

    up: Ints
    frame: Ints
    node: Ints
    own: Ints
    track: Ints
    step: Ints
    notes: tuple[str, ...]


def check_recorded(reader: Reader) -> None:
    """UsageError with the reason and the remedy when no memory was recorded."""
    if not reader.has("allocations"):
        raise UsageError(f"{reader.run.path.name} {NOT_RECORDED}")


def read_memory(reader: Reader, frames: FrameTable, kind: str, choice: Choice) -> MemoryNodes:
    """The blocks of a kind of picture that `choice` leaves."""
    check_recorded(reader)
    blocks = read_blocks(reader)
    if kind == LIVE:
        chosen, notes = _live(reader, blocks, choice)
    elif kind == LEAK:
        chosen, notes = _left_over(reader, blocks, choice)
    else:
        chosen, notes = _within(reader, blocks, choice), ()
    chosen &= _of_place(reader, blocks, choice)
    blocks = blocks.at(chosen)
    up, frame, node = nodes_of_places(reader, frames, blocks)
    own = np.stack([blocks.bytes, np.ones_like(blocks.bytes)], axis=1)
    return MemoryNodes(up, frame, node, own, blocks.track, blocks.step, notes)


def _within(reader: Reader, blocks: Blocks, choice: Choice) -> Bools:
    """Those that were allocated in the steps and in the time that are chosen."""
    in_time = Choice(steps=choice.steps, seconds=choice.seconds)
    columns = {"at_ns": blocks.at_ns, "step": blocks.step}
    return chosen_rows(reader, columns, in_time, len(blocks))


def _of_place(reader: Reader, blocks: Blocks, choice: Choice) -> Bools:
    """Those of the thread, the phase and the module that are chosen."""
    place = Choice(thread=choice.thread, phase=choice.phase)
    columns = {
        "track": blocks.track,
        "phase": blocks.phase,
        "phase.names": blocks.names["phase"],
    }
    chosen = chosen_rows(reader, columns, place, len(blocks))
    if choice.module is not None:
        chosen &= np.isin(blocks.module, modules_called(reader, choice.module))
    return chosen


def _live(reader: Reader, blocks: Blocks, choice: Choice) -> tuple[Bools, tuple[str, ...]]:
    """Those that are live at the highest moment of their process and device."""
    chosen = np.zeros(len(blocks), np.bool_)
    may_be = _within(reader, blocks, choice)
    begin_ns = _beginnings(reader, choice)
    moments = []
    for process, rows in _heaps(blocks):
        heap = blocks.at(rows)
        live = np.where(may_be[rows], live_at_allocations(heap), -1)
        first = int(np.argmax(live))
        at_ns = int(heap.at_ns[first]) if live[first] >= 0 else None
        begin = begin_ns.get(process)
        if begin is not None:
            # What was there already when that time began may be more than ever later.
            most = int(heap.bytes[heap.live_at(begin)].sum())
            at_ns = begin if most > live[first] else at_ns
        if at_ns is None:
            continue
        is_live = heap.live_at(at_ns)
        chosen[rows[is_live]] = True
        if is_live.any():
            since = duration(at_ns - reader.run.info.start_ns)
            moments.append(f"{since} after its start{_of_step(heap, at_ns)}")
    if len(moments) > 1:
        several = f"{len(moments)} processes and devices, each at its own highest moment"
        return chosen, (f"Added up are {several}; --by process has them apart.",)
    name = reader.run.name
    return chosen, tuple(f"The highest moment of {name} is {moment}." for moment in moments)


def _of_step(heap: Blocks, at_ns: int) -> str:
    """The step and the phase of the block that was allocated last before a moment."""
    last = int(np.searchsorted(heap.at_ns, at_ns, side="right")) - 1
    phase = str(heap.names["phase"][heap.phase[last]])
    step = int(heap.step[last])
    return f", in step {step} ({phase})" if step >= 0 else f" ({phase})"


def _heaps(blocks: Blocks) -> Iterator[tuple[int, Ints]]:
    """Processes, with the rows that lie on one device each."""
    devices = len(blocks.names["device"])
    code = blocks.process * devices + blocks.device
    order = np.argsort(code, kind="stable")
    known, first = np.unique(code[order], return_index=True)
    for one, rows in zip(known.tolist(), np.split(order, first[1:]), strict=True):
        yield one // devices, rows


def _beginnings(reader: Reader, choice: Choice) -> dict[int, int]:
    """By process when the chosen time begins; without a choice there is none."""
    found: dict[int, int] = {}
    processes = reader.arrays("processes", ["process"])["process"].tolist()
    if choice.steps is not None:
        for process, steps in steps_of(reader).items():
            wanted = (steps.step >= choice.steps.start) & (steps.step < choice.steps.stop)
            if wanted.any():
                found[process] = int(steps.start_ns[wanted].min())
    elif choice.seconds is not None:
        found = dict.fromkeys(processes, 0)
    if choice.seconds is not None:
        begin_ns = reader.run.info.start_ns + round(choice.seconds[0] * 1e9)
        found = {process: max(at_ns, begin_ns) for process, at_ns in found.items()}
    return found


def _left_over(reader: Reader, blocks: Blocks, choice: Choice) -> tuple[Bools, tuple[str, ...]]:
    """Those that outlived their step up to the end of the last one, of places that kept more in
    late steps as well as in early ones: what is filled once is a cache.
    """
    steps = steps_before_the_last(reader)
    process_of = process_of_tracks(reader.arrays("tracks", ["track", "process"]))
    columns = {"track": blocks.track, "step": blocks.step}
    is_old = steps.of_spans(columns, process_of)[0] & ~blocks.is_lost
    for process, rows in _heaps(blocks):
        is_late = blocks.end_ns[rows] > _end_of_last(steps, process)
        is_old[rows] &= blocks.is_open[rows] | is_late
    is_growing = _grows(blocks, steps, np.flatnonzero(is_old))
    notes = _of_filled_once(int(blocks.bytes[is_old & ~is_growing].sum()))
    return is_old & is_growing & _within(reader, blocks, choice), notes


def steps_before_the_last(reader: Reader) -> MeasuredSteps:
    """The measured steps that others follow: the blocks of the last one are in use. UsageError when
    there are none.
    """
    steps = MeasuredSteps(reader)
    start_ns, process = steps.columns["start_ns"], steps.columns["process"]
    for number in steps.processes:
        last_ns = start_ns[process == number].max()
        steps.measured &= ~((process == number) & (start_ns == last_ns))
    if not steps.measured.any():
        raise UsageError(
            f"{reader.run.path.name} has no steps that others follow but those of warm-up, so "
            "nothing can outlive one. Run more of them, or say what a step is: run --step-mark NAME"
        )
    return steps


def _end_of_last(steps: MeasuredSteps, process: int) -> int:
    """When the last step of a process ends."""
    of_process = steps.columns["process"] == process
    end_ns = steps.columns["start_ns"] + steps.columns["dur_ns"]
    return int(end_ns[of_process].max(initial=0))


def _grows(blocks: Blocks, steps: MeasuredSteps, rows: Ints) -> Bools:
    """Which of the blocks at `rows` lie in a place that has some of the first third of the steps
    and some of the last.
    """
    wanted = distinct(steps.columns["step"][steps.measured])
    some = max(1, len(wanted) // 3)
    at = np.searchsorted(wanted, blocks.step[rows])
    _, place = distinct_places(blocks.at(rows))
    is_early, is_late = (
        np.isin(place, place[part]) for part in (at < some, at >= len(wanted) - some)
    )
    grows = np.zeros(len(blocks), np.bool_)
    grows[rows] = is_early & is_late
    return grows


def _of_filled_once(size_bytes: int) -> tuple[str, ...]:
    if not size_bytes:
        return ()
    what = f"{size(size_bytes)} that outlived their step too are left out"
    return (f"{what}: their places kept more in early or in late steps alone, as a cache does.",)
