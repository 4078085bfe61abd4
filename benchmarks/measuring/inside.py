"""One program compared with itself: callbacks on and off in turns, in blocks of a few milliseconds.

That has far less noise than comparing processes, and sees only what recording costs inside the program.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.store.reader import Reader
from measuring.intervals import Interval, mean_difference, mean_increase
from measuring.runs import BenchmarkError, Setting, last_words, plain, recorded

# Steps in a block: about 10 ms each, so that what a block leaves in the caches weighs little in the next.
BLOCKS = {"tiny": 3, "mlp": 4, "cnn": 1}
SECONDS = {"tiny": 4.0, "mlp": 20.0, "cnn": 45.0}
QUICK_SECONDS = {"tiny": 1.0, "mlp": 2.0, "cnn": 3.0}
PROFILED_BLOCK = 20


@dataclass(frozen=True)
class Comparison:
    """What a step costs with and without, and what layerscope says that it costs."""

    blocks: int
    step_ns: float
    ratio: Interval
    added_ns: Interval  # a step
    parts_ns: list[Interval]  # the same for each part of a step
    parts_ratio: list[Interval]
    operators: float  # recorded in a step
    operator_ns: Interval
    stated_operator_ns: float
    stated_start_ns: int
    dropped: int


@functools.cache
def compare(setting: Setting, name: str, tsc: bool = True) -> Comparison:
    """Measure workload `name` once; who asks again gets the same answer."""
    seconds = (QUICK_SECONDS if setting.quick else SECONDS)[name]
    arguments = [name, "--toggle", "recording", "--block", str(BLOCKS[name]), "--seconds", str(seconds)]
    with recorded(setting, "workload.py", *arguments, tsc=tsc) as run:
        found = run.done.json
        with Reader(run.run) as reader:
            starts = np.sort(reader.arrays("spans", ["start_ns"])["start_ns"])
        layer = run.run.info.layers[0]
        final = last_words(run.run)
        dropped = run.dropped
    if not tsc and final["clock"] != "monotonic":
        raise BenchmarkError("the recording used the TSC where it should not")
    block = found["block"]
    on, off = split(found["blocks"])
    windows = np.array([entry["window_ns"] for entry in found["blocks"] if entry["on"]])
    inside = np.searchsorted(starts, windows[:, 1]) - np.searchsorted(starts, windows[:, 0])
    operators = float(inside.mean()) / block
    added = mean_difference(on.sum(1), off.sum(1)).scaled(1 / block)
    return Comparison(
        blocks=len(on),
        step_ns=float(np.median(off.sum(1))) / block,
        ratio=mean_increase(on.sum(1), off.sum(1)),
        added_ns=added,
        parts_ns=[mean_difference(on[:, i], off[:, i]).scaled(1 / block) for i in range(on.shape[1])],
        parts_ratio=[mean_increase(on[:, i], off[:, i]) for i in range(on.shape[1])],
        operators=operators,
        operator_ns=added.scaled(1 / operators),
        stated_operator_ns=(layer.cpu_ns - final["agent_cpu_ns"]) / max(layer.records, 1),
        stated_start_ns=final["agent_cpu_ns"],
        dropped=dropped,
    )


def compare_profiler(setting: Setting) -> Interval:
    """The same for PyTorch's own profiler on `tiny`."""
    seconds = 1.0 if setting.quick else 4.0
    arguments = ["tiny", "--toggle", "profiler", "--block", str(PROFILED_BLOCK), "--seconds", str(seconds)]
    on, off = split(plain(setting, "workload.py", *arguments).json["blocks"])
    return mean_increase(on.sum(1), off.sum(1))


def split(blocks: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """CPU ns with and without, (pairs, parts); the pairs are neighbours."""
    spent = [np.array([block["cpu_ns"] for block in blocks if block["on"] == on], float) for on in (True, False)]
    return spent[0], spent[1]
