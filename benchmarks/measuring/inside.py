"""One program compared with itself: callbacks on and off in turns, in blocks of a few milliseconds.

That has far less noise than comparing processes, and sees only what recording costs inside the
program.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.recording.reader import Reader
from measuring.intervals import Interval, mean_difference, mean_increase
from measuring.runs import BenchmarkError, Setting, last_words, plain, recorded

# Steps in a block: about 10 ms each, so that what a block leaves in the caches weighs little in the
# next.
BLOCKS = {"tiny": 3, "mlp": 2, "mlp_loader": 4, "cnn": 1, "transformer": 1, "modules": 4}
SECONDS = {
    "tiny": 4.0,
    "mlp": 20.0,
    "mlp_loader": 12.0,
    "cnn": 35.0,
    "transformer": 60.0,
    "modules": 8.0,
}
QUICK_SECONDS = {
    "tiny": 1.0,
    "mlp": 2.0,
    "mlp_loader": 2.0,
    "cnn": 2.0,
    "transformer": 3.0,
    "modules": 1.0,
}
PROFILED_BLOCK = 20
PARTS = ["loading", "learning"]


@dataclass(frozen=True)
class Part:
    """A part of a step: what recording adds to it, and what it records by kind."""

    name: str
    added_ns: Interval
    ratio: Interval
    kinds: dict[str, int]


@dataclass(frozen=True)
class Comparison:
    """What a step costs with and without, and what layerscope says that it costs."""

    blocks: int
    step_ns: float
    ratio: Interval
    added_ns: Interval  # a step
    parts: list[Part]
    operators: float  # recorded in a step
    operator_ns: Interval
    stated_operator_ns: float
    stated_start_ns: int
    dropped: int


def compare(setting: Setting, name: str, tsc: bool = True) -> Comparison:
    """Measure workload `name` once; who asks again gets the same answer."""
    return _compare(setting, name, tsc)


@functools.cache
def _compare(setting: Setting, name: str, tsc: bool) -> Comparison:
    seconds = (QUICK_SECONDS if setting.quick else SECONDS)[name]
    arguments = [
        name,
        "--toggle",
        "recording",
        "--block",
        str(BLOCKS[name]),
        "--seconds",
        str(seconds),
    ]
    with recorded(setting, "workload.py", *arguments, tsc=tsc) as run:
        found = run.done.json
        with Reader(run.run) as reader:
            spans = reader.arrays("spans", ["start_ns", "kind"])
        layer = run.run.info.layers[0]
        final = last_words(run.run)
        dropped = run.dropped
    if not tsc and final["clock"] != "monotonic":
        raise BenchmarkError("the recording used the TSC where it should not")
    block = found["block"]
    on, off = split(found["blocks"])
    windows = np.array([entry["window_ns"] for entry in found["blocks"] if entry["on"]])
    starts = np.sort(spans["start_ns"])
    inside = np.searchsorted(starts, windows[:, 1]) - np.searchsorted(starts, windows[:, 0])
    operators = float(inside.mean()) / block
    added = mean_difference(on.sum(1), off.sum(1)).scaled(1 / block)
    return Comparison(
        blocks=len(on),
        step_ns=float(np.median(off.sum(1))) / block,
        ratio=mean_increase(on.sum(1), off.sum(1)),
        added_ns=added,
        parts=[
            Part(
                name,
                mean_difference(on[:, i], off[:, i]).scaled(1 / block),
                mean_increase(on[:, i], off[:, i]),
                kinds_between(spans, *found["sample"][i]),
            )
            for i, name in enumerate(PARTS[: on.shape[1]] if on.shape[1] > 1 else ["all"])
        ],
        operators=operators,
        operator_ns=added.scaled(1 / operators),
        stated_operator_ns=(layer.cpu_ns - final["agent_cpu_ns"]) / max(layer.records, 1),
        stated_start_ns=final["agent_cpu_ns"],
        dropped=dropped,
    )


def kinds_between(spans: dict[str, np.ndarray], begin_ns: int, end_ns: int) -> dict[str, int]:
    """How many spans of each kind began in a span of time."""
    codes = spans["kind"][(spans["start_ns"] >= begin_ns) & (spans["start_ns"] <= end_ns)]
    return {
        str(name): int((codes == i).sum())
        for i, name in enumerate(spans["kind.names"])
        if (codes == i).any()
    }


def compare_other(setting: Setting, name: str, switch: str) -> list[Interval]:
    """The ratios of a step and of its parts when something else than layerscope is switched on and
    off.
    """
    seconds = 1.0 if setting.quick else 4.0
    block = PROFILED_BLOCK if switch == "profiler" else BLOCKS[name]
    arguments = [name, "--toggle", switch, "--block", str(block), "--seconds", str(seconds)]
    on, off = split(plain(setting, "workload.py", *arguments).json["blocks"])
    parts = [mean_increase(on[:, i], off[:, i]) for i in range(on.shape[1])]
    return [mean_increase(on.sum(1), off.sum(1)), *(parts if len(parts) > 1 else [])]


def split(blocks: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """CPU ns with and without, (pairs, parts); the pairs are neighbours."""
    spent = [
        np.array([block["cpu_ns"] for block in blocks if block["on"] == on], float)
        for on in (True, False)
    ]
    return spent[0], spent[1]
