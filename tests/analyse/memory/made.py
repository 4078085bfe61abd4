"""Blocks with a known answer: a training that was never run, and blocks from tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.analyse.memory.blocks import Blocks
from layerscope.model.layers import PHASES
from tests.recordings import Recording

# A step takes so long, and the first one begins then.
STEP_NS = 100
FIRST_NS = 1000
PARAMETER, STATE, INPUT, ACTIVATION, LOSS = 1000, 1000, 64, 300, 4
FOREVER = None


def blocks_of(rows: Sequence[tuple[int, int, int]], phases: Sequence[int] = ()) -> Blocks:
    """Blocks of one process from (start, duration, bytes), in any order; `phases`: the place of
    each one's phase in `PHASES`.
    """
    count = len(rows)
    at_ns, dur_ns, size = (np.array([row[n] for row in rows], np.int64) for n in range(3))
    none, zero = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    made = Blocks(
        process=zero,
        track=zero,
        at_ns=at_ns,
        end_ns=at_ns + dur_ns,
        bytes=size,
        step=zero - 1,
        module=zero - 1,
        is_open=none,
        is_lost=none,
        device=zero,
        allocator=zero,
        operator=zero,
        line=zero,
        phase=np.array(phases or [4] * count, np.int64),
        names={
            **{name: np.array(["x"], object) for name in ("device", "allocator", "operator")},
            "line": np.array(["train.py:1"], object),
            "phase": np.array(PHASES, object),
        },
    )
    return made.at(np.argsort(at_ns, kind="stable"))


def allocate(recording: Recording, at_ns: int, end_ns: int | None, size: int, **more: Any) -> None:
    """A block that lives from `at_ns` until `end_ns`, or is never released."""
    dur_ns = None if end_ns is None else end_ns - at_ns
    recording.add_block(size, at_ns, dur_ns, **{"line": "train.py:1", **more})


def start_of(step: int) -> int:
    """When this step begins."""
    return FIRST_NS + step * STEP_NS


def training(steps: int = 30, has_spans: bool = True) -> Recording:
    """One parameter, trained with momentum: in each step an input, an activation, a loss that a
    variable names until the next one, a gradient that zero_grad drops, temporaries everywhere.
    """
    recording = Recording()
    recording.rows["modules"] = [{"module": 0, "path": "Net", "class": "Net"}]
    recording.rows["processes"][0]["end_ns"] = start_of(steps + 10)
    allocate(recording, 10, FOREVER, PARAMETER, line="net.py:1")
    allocate(recording, 20, 30, 555, line="net.py:2")
    for step in range(steps):
        _add_step(recording, step, steps, has_spans)
    return recording


def _add_step(recording: Recording, step: int, steps: int, has_spans: bool) -> None:
    at = start_of(step)
    following = at + STEP_NS if step < steps - 1 else None
    recording.add_step(step, at, (5, 25, 30, 20, 20), warmup=step == 0)
    if has_spans:
        about = {"step": step, "module": 0}
        recording.add_span("Net", at + 10, 20, layer="modules", kind="module", **about)
        recording.add_span("AddBackward0", at + 40, 20, kind="backward", **about)

    def made(offset_ns: int, end_ns: int | None, size: int, line: str, phase: str) -> None:
        module = 0 if phase == "forward" else None
        allocate(recording, at + offset_ns, end_ns, size, line=line, phase=phase, module=module)

    made(1, following and following + 2, INPUT, "train.py:2", "other")
    made(11, at + 16, 200, "net.py:3", "forward")
    made(12, at + 45, ACTIVATION, "net.py:4", "forward")
    made(32, following and following + 33, LOSS, "train.py:3", "other")
    made(41, at + 44, 210, "train.py:4", "backward")
    made(46, following and following + 38, PARAMETER, "train.py:4", "backward")
    made(71, at + 75, 220, "train.py:5", "optimizer")
    if step == 0:
        made(72, FOREVER, STATE, "train.py:5", "optimizer")
