"""What the threads that make the steps did with their time: on a CPU, or waiting, and for what.
From samples.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.columns import has_name
from layerscope.analyse.step_times import (
    Arrays,
    Bools,
    Int64s,
    MeasuredSteps,
    StepTimes,
    process_of_tracks,
)
from layerscope.model.distinct import distinct
from layerscope.recording.reader import Reader

# Where samples tell less of the time than this, shares of it would mislead.
_LEAST_TOLD = 0.5


class ThreadTimes(Struct):
    """What a thread did in the measured steps or, without steps, the main thread in its life, as
    shares of that time.

    `waits` are shares by state (`samples.state`), the largest first. What is missing to 1 was not
    seen. `threads`: how many there are of whom this is the mean.
    """

    per_step: bool
    threads: int
    cpu: float
    waits: list[tuple[str, float]]


def thread_times(
    reader: Reader,
    steps: MeasuredSteps,
    times: StepTimes | None,
    tracks: Arrays,
    chosen: Bools | None,
) -> ThreadTimes | None:
    """None where nothing was sampled. `chosen`: the tracks that make steps; None: the main thread,
    in the whole run.
    """
    if not reader.has("samples"):
        return None
    samples = reader.arrays("samples", ["track", "step", "weight_ns", "kind", "state"])
    process_of = process_of_tracks(tracks)
    if chosen is None or times is None:
        mine, whole_ns = samples["track"] == _main_track(reader), 0
    else:
        if steps.rule == "mark" and times.at_once > len(steps.processes):
            return None  # they overlap: the time of a step is not that of one thread
        measured, _ = steps.of_spans(samples, process_of)
        mine = measured & np.append(chosen, False)[np.minimum(samples["track"], len(chosen))]
        whole_ns = int(steps.columns["dur_ns"][steps.measured].sum())
    by_state = _by_state(samples, mine)
    told_ns = sum(by_state.values())
    whole_ns = max(whole_ns, told_ns)
    if told_ns < _LEAST_TOLD * whole_ns or not told_ns:
        return None
    waits = [(name, ns / whole_ns) for name, ns in by_state.items() if name]
    threads = len(distinct(samples["track"][mine]))
    shares = sorted(waits, key=lambda pair: -pair[1])
    return ThreadTimes(chosen is not None, threads, by_state.get("", 0) / whole_ns, shares)


def _by_state(samples: Arrays, mine: Bools) -> dict[str, int]:
    """Time by what it was waited for; "" is CPU time."""
    weight_ns: Int64s = samples["weight_ns"]
    is_cpu = has_name(samples, "kind", "cpu")
    found = {"": int(weight_ns[mine & is_cpu].sum())}
    waits = np.flatnonzero(mine & has_name(samples, "kind", "offcpu"))
    states = samples["state"][waits]
    for code in distinct(states).tolist():
        rows = waits[states == code]
        name = str(samples["state.names"][code])
        found[name] = int(weight_ns[rows].sum())
    return found


def _main_track(reader: Reader) -> int:
    """The track of the first thread of the program, -1 where it was not seen."""
    processes = reader.arrays("processes", ["process", "pid"])
    tracks = reader.arrays("tracks", ["track", "process", "tid", "kind"])
    if not len(processes["pid"]):
        return -1
    is_thread = has_name(tracks, "kind", "thread")
    in_program = tracks["process"] == processes["process"][0]
    is_first = tracks["tid"] == processes["pid"][0]
    found = np.flatnonzero(is_thread & in_program & is_first)
    return int(tracks["track"][found[0]]) if len(found) else -1
