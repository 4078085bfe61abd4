"""The tree of memory: in which module, by which operator and on which line blocks were allocated.

Of `alloc` the weight is every byte that was allocated; of `live` what was live at the highest
moment of each process and device; of `leak` what the lines that leak left behind, step after step
(`analyse.memory.leaks`).

`Choice.steps` and `Choice.seconds` choose blocks by when they were allocated; of `live` they say in
which time the highest moment is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from layerscope.analyse.memory.blocks import Blocks
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.memory.leaks import FEWEST_STEPS, judged_places
from layerscope.analyse.memory.live_curve import live_at_allocations
from layerscope.analyse.memory.notes import loss_notes
from layerscope.analyse.memory.peak import Heap
from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.memory_places import nodes_of_places
from layerscope.analyse.stacks.sample_reader import Choice, chosen_rows
from layerscope.analyse.stacks.spans import modules_called
from layerscope.analyse.stacks.tree import Bools, Ints
from layerscope.analyse.step_times import MeasuredSteps
from layerscope.model.errors import UsageError
from layerscope.model.units import duration, size

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

KINDS = ALLOC, LIVE, LEAK = ("alloc", "live", "leak")
NOT_RECORDED = (
    "has no memory of tensors. Record it: layerscope run --layers=+memory ..., or with "
    "profile_memory=True of the framework's profiler"
)


class MemoryNodes(Struct, frozen=True):
    """Where blocks were allocated as nodes, `up` the one around each; and the blocks: the node of
    each, its bytes and a 1 (`own`), its track, its step and its category (a place in `CATEGORIES`).
    notes: what must be said of them.
    """

    up: Ints
    frame: Ints
    node: Ints
    own: Ints
    track: Ints
    step: Ints
    category: Ints
    notes: tuple[str, ...]


def read_memory(reader: Reader, frames: FrameTable, kind: str, choice: Choice) -> MemoryNodes:
    """The blocks of a kind of picture that `choice` leaves. UsageError with the reason and the
    remedy when no memory was recorded.
    """
    if not reader.has("allocations"):
        raise UsageError(f"{reader.run.path.name} {NOT_RECORDED}")
    memory = RecordedMemory(reader)
    if kind == LEAK:
        leaking_steps(reader)
    chosen = _Chosen(reader, choice)
    parts: list[Blocks] = []
    categories: list[Ints] = []
    for heap in memory.heaps:
        rows = np.flatnonzero(chosen.of_kind(kind, memory, heap))
        found = memory.categories(heap)
        module = memory.modules(heap, rows, found)
        blocks = heap.blocks.at(rows)
        blocks = replace(blocks, module=module)
        is_chosen = chosen.of_place(blocks)
        parts.append(blocks.at(is_chosen))
        kept = rows[is_chosen]
        categories.append(found.category[kept])
    blocks = _joined(parts)
    up, frame, node = nodes_of_places(reader, frames, blocks)
    own = np.stack([blocks.bytes, np.ones_like(blocks.bytes)], axis=1)
    category, notes = np.concatenate(categories), chosen.notes(kind)
    return MemoryNodes(up, frame, node, own, blocks.track, blocks.step, category, notes)


def leaking_steps(reader: Reader) -> MeasuredSteps:
    """The steps of which is looked whether they leave something behind. UsageError when there are
    too few.
    """
    steps, memory = MeasuredSteps(reader), RecordedMemory(reader)
    step, process = steps.columns["step"], steps.columns["process"]
    is_judged = np.zeros(len(step), np.bool_)
    for number in steps.processes:
        of_process = memory.steps(number)
        judged = of_process.step[judged_places(of_process)]
        is_judged |= (process == number) & np.isin(step, judged)
    steps.measured &= is_judged
    if not steps.measured.any():
        raise UsageError(
            f"{reader.run.path.name} has too few steps: {FEWEST_STEPS} besides warm-up and the "
            "last two show what goes on growing. Run more, or say what a step is: "
            "run --step-mark NAME"
        )
    return steps


def _joined(parts: list[Blocks]) -> Blocks:
    """The blocks of all parts, whose names have the same numbers."""
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in Blocks.__struct_fields__
        if name != "names"
    }
    return Blocks(**columns, names=parts[0].names)


class _Chosen:
    """Which blocks a kind of picture is made of, and what must be said of them."""

    def __init__(self, reader: Reader, choice: Choice) -> None:
        self._reader = reader
        self._choice = choice
        self._moments: list[str] = []
        # The process of each heap that has something at its highest moment.
        self._processes: list[int] = []
        self._filled_bytes = 0
        self._losses: list[str] = []

    def of_kind(self, kind: str, memory: RecordedMemory, heap: Heap) -> Bools:
        """Which of a process and device."""
        if kind == LIVE:
            return self._live(memory, heap)
        within = self._within(heap.blocks)
        if kind == ALLOC:
            return within
        left_behind = self._left_behind(memory, heap)
        return within & left_behind

    def of_place(self, blocks: Blocks) -> Bools:
        """Those of the thread, the phase and the module that are chosen."""
        choice = self._choice
        columns = {
            "track": blocks.track,
            "phase": blocks.phase,
            "phase.names": blocks.names["phase"],
        }
        place = Choice(thread=choice.thread, phase=choice.phase)
        chosen = chosen_rows(self._reader, columns, place, len(blocks))
        if choice.module is not None:
            modules = modules_called(self._reader, choice.module)
            chosen &= np.isin(blocks.module, modules)
        return chosen

    def notes(self, kind: str) -> tuple[str, ...]:
        """Sentences."""
        heaps, processes = len(self._processes), len(set(self._processes))
        if heaps > 1:
            several = f"{heaps} processes and devices, each at its own highest moment"
            # Devices of one process stay together.
            apart = "; --by process has them apart" if processes == heaps else ""
            return (f"Added up are {several}{apart}.",)
        name = self._reader.run.name
        said = [f"The highest moment of {name} is {moment}." for moment in self._moments]
        said += self._losses
        if kind == LEAK and self._filled_bytes and not self._losses:
            filled = f"{size(self._filled_bytes)} that outlived their step too are left out"
            said.append(f"{filled}: their lines do not go on keeping more, like a full cache.")
        return tuple(said)

    def _within(self, blocks: Blocks) -> Bools:
        """Those that were allocated in the steps and in the time that are chosen."""
        choice = self._choice
        in_time = Choice(steps=choice.steps, seconds=choice.seconds)
        columns = {
            "at_ns": blocks.at_ns,
            "step": blocks.step,
        }
        rows = len(blocks)
        return chosen_rows(self._reader, columns, in_time, rows)

    def _left_behind(self, memory: RecordedMemory, heap: Heap) -> Bools:
        """Those that outlived their step and the last one, of lines that leak."""
        blocks = heap.blocks
        steps = memory.steps(heap.process)
        judged = judged_places(steps)
        is_judged = np.isin(blocks.step, steps.step[judged])
        is_old = is_judged & (blocks.end_ns > steps.last_end_ns)
        growth = memory.growth(heap)
        if growth.loss:
            self._losses = loss_notes(memory)
        leaking = growth.line[growth.is_leak]
        is_leaking = np.isin(blocks.line, leaking)
        leaks: Bools = is_old & is_leaking
        filled = is_old & ~is_leaking
        filled_bytes = blocks.bytes[filled].sum()
        self._filled_bytes += int(filled_bytes)
        return leaks

    def _live(self, memory: RecordedMemory, heap: Heap) -> Bools:
        """Those that are live at the highest moment of the time that is chosen."""
        blocks = heap.blocks
        at_ns = self._highest_ns(memory, heap)
        if at_ns is None:
            rows = len(blocks)
            return np.zeros(rows, np.bool_)
        is_live = blocks.live_at(at_ns)
        if not is_live.any():
            return is_live
        self._processes.append(heap.process)
        if heap.is_timed:
            info = self._reader.run.info
            since_ns = at_ns - info.start_ns
            since = duration(since_ns)
            where = _of_step(blocks, at_ns)
            self._moments.append(f"{since} after its start{where}")
        return is_live

    def _highest_ns(self, memory: RecordedMemory, heap: Heap) -> int | None:
        """When most is live in the time that is chosen; None: that process has nothing there."""
        choice, blocks = self._choice, heap.blocks
        if choice.steps is None and choice.seconds is None:
            return heap.peak.at_ns
        live = live_at_allocations(blocks)
        within = self._within(blocks)
        outside = ~within
        live[outside] = -1
        highest = int(np.argmax(live))
        most = live[highest]
        begin_ns = self._begin_ns(memory, heap.process)
        if begin_ns is not None:
            # What was there already when that time began may be more than ever later.
            is_there = blocks.live_at(begin_ns)
            there = blocks.bytes[is_there]
            at_begin = there.sum()
            if at_begin > most:
                return begin_ns
        if most < 0:
            return None
        return int(blocks.at_ns[highest])

    def _begin_ns(self, memory: RecordedMemory, process: int) -> int | None:
        """When the chosen time of a process begins; None: it has none of these steps."""
        choice = self._choice
        begins_ns = []
        if choice.seconds is not None:
            info = self._reader.run.info
            since_s, _ = choice.seconds
            since_ns = round(since_s * 1e9)
            # Seconds are those since the start of the run.
            begin_ns = info.start_ns + since_ns
            begins_ns.append(begin_ns)
        if choice.steps is not None:
            steps = memory.steps(process)
            is_late = steps.step >= choice.steps.start
            is_early = steps.step < choice.steps.stop
            wanted = is_late & is_early
            if not wanted.any():
                return None
            starts_ns = steps.start_ns[wanted]
            first_ns = starts_ns.min()
            begins_ns.append(int(first_ns))
        return max(begins_ns)


def _of_step(blocks: Blocks, at_ns: int) -> str:
    """The step and the phase of the block that was allocated last before a moment, as the end of a
    sentence. Outside of steps there is the phase alone.
    """
    behind = np.searchsorted(blocks.at_ns, at_ns, side="right")
    last = int(behind) - 1
    number = blocks.phase[last]
    texts = blocks.names["phase"]
    phase = texts[number]
    step = blocks.step[last]
    named = "" if phase == "other" else f" ({phase})"
    if step < 0:
        return named
    return f", in step {step}{named}"
