"""A recording with a known answer: each step waits for its loader, by another amount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.recordings import MS, Recording

STEP_MS = 20


def slow_loader(
    loads_ms: Sequence[int], state: str = "sleep", busy: bool = False, **samples: Any
) -> Recording:
    """Steps of STEP_MS each, of which the loader takes so much, waiting (`state`; "cpu": computing). `busy`: half of
    the rest of each step the thread waits for a CPU.
    """
    made = Recording()
    stack = made.add_stack("python load data.py:7", "native read libc.so")
    work = made.add_stack("python train train.py:3", "native gemm libtorch.so")
    for step, load_ms in enumerate(loads_ms):
        start_ns = step * STEP_MS * MS
        rest_ms = STEP_MS - load_ms
        made.add_step(step, start_ns, (load_ms * MS, rest_ms * MS, 0, 0, 0))
        made.add_span("DataLoader", start_ns, load_ms * MS, kind="loader", step=step)
        at = {"at_ns": start_ns, "step": step, **samples}
        if load_ms and state == "cpu":
            made.add_sample(stack, load_ms * MS, phase="loading", **at)
        elif load_ms:
            made.add_sample(stack, load_ms * MS, kind="offcpu", state=state, phase="loading", **at)
        made.add_sample(work, (rest_ms // 2 if busy else rest_ms) * MS, phase="forward", **at)
        if busy:
            made.add_sample(
                work, rest_ms // 2 * MS, kind="offcpu", state="preempted", phase="forward", **at
            )
    return made
