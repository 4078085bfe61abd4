"""Made-up recordings with stacks, and the flame graphs of them as plain dictionaries."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.analyse.stacks import flame_layout, graphs
from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.model.layers import PHASES
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording

MAIN = ("python <module> train.py:9", "python main train.py:5")


@contextmanager
def opened(*recordings: Recording, **info: Any) -> Iterator[Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        readers = [
            stack.enter_context(Reader(recording.write(folder / f"{number}.layerscope", **info)))
            for number, recording in enumerate(recordings)
        ]
        yield readers[0] if len(readers) == 1 else readers


def graph_of(recording: Recording, look: Look | None = None) -> Graph:
    with opened(recording) as reader:
        return graphs.build(reader, look or Look())


def compared(after: Recording, before: Recording, look: Look | None = None, **info: Any) -> Graph:
    with opened(after, before, **info) as readers:
        return graphs.compare(*readers, look or Look())


def stacks_of(graph: Graph, column: int = 0) -> dict[str, int]:
    """Weights by stack, `a > b > c`."""
    tree, found = graph.tree, {}
    for node in np.flatnonzero(tree.own[:, column]).tolist():
        names, place = [], node
        while place >= 0:
            names.append(graph.frames[int(tree.frame[place])].label)
            place = int(tree.parent[place])
        found[" > ".join(reversed(names))] = int(tree.own[node, column])
    return found


def sampled(*stacks: tuple[tuple[str, ...], int], **more: Any) -> Recording:
    recording = Recording()
    for stack, weight in stacks:
        recording.add_sample(recording.add_stack(*stack), weight, **more)
    return recording


def stepped(samples: list[tuple[str, int, int]], steps: int, warmup: int = 0) -> Recording:
    """(function, weight, step) of samples, and so many steps."""
    recording = Recording()
    for name, weight, step in samples:
        recording.add_sample(recording.add_stack(*MAIN, f"python {name} a.py:1"), weight, step=step)
    for step in range(steps):
        recording.add_step(step, step * MS, (1, 1, 1, 1, 1), warmup=step < warmup)
    return recording


def partly_in_kernel(samples: int) -> Recording:
    """So many samples of 10 ms of the functions f and g in turn: each for a half in the kernel, as
    a row more.
    """
    recording = Recording()
    for number in range(samples):
        stack = (
            *MAIN,
            f"python {'fg'[number % 2]} a.py:1",
            "operators aten::copy",
            "native copy libc.so",
        )
        at_ns = number * 10 * MS
        recording.add_sample(recording.add_stack(*stack), 5 * MS, at_ns, count=0)
        recording.add_sample(
            recording.add_stack(*stack, "kernel [kernel]"), 5 * MS, at_ns, state="kernel"
        )
    return recording


def changes(graph: Graph) -> dict[str, float]:
    made = flame_layout.draw(graph)
    return {
        graph.frames[int(frame)].label: float(change)
        for frame, change in zip(made.frame, made.change, strict=True)
    }


def many() -> Recording:
    """Samples of two threads, in two modules, in steps and outside, at every 100 ms; the weight
    tells them apart.
    """
    recording = Recording()
    worker = recording.add_thread(recording.process, 102, "worker")
    for number in range(24):
        stack = recording.add_stack(
            *MAIN, "modules Net", f"modules Net.conv{number % 3}", "operators op"
        )
        recording.add_sample(
            stack, 1 << number, at_ns=number * 100 * MS, track=worker if number % 2 else recording.thread,
            step=number // 4 if number % 5 else None, phase=PHASES[number % 5] if number % 5 else None,
        )  # fmt: skip
    return recording


def random_recording(samples: list[Any]) -> Recording:
    recording = Recording()
    for stack, weight, kind, state, idle in samples:
        key = recording.add_stack(*stack) if stack else None
        recording.add_sample(
            key, 0 if kind == "fault" else weight, kind=kind, count=weight % 100 + 1 if kind == "fault" else 1,
            state=state if kind == "offcpu" else "user", idle=idle and kind == "offcpu",
        )  # fmt: skip
    return recording
