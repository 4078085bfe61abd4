"""The ranks of a distributed job side by side: how long a step takes on each, and how much of that
is waiting.

Ranks that average gradients all take as long as the slowest. So the one that holds the others up is
told by its work: the time of a step without the time in which it waited for others. It waits in a
collective, such as an all-reduce, from its own arrival until the last rank arrives, at most for as
long as the call took. The k-th call of a name on one rank belongs to the k-th on the others, where
all ranks made as many; elsewhere, and where a run was thinned, so that not the same calls of each
rank are there, waiting is not known.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.columns import Columns
from layerscope.analyse.step_times import MeasuredSteps, process_of_tracks
from layerscope.analyse.thinned import is_thinned
from layerscope.model.distinct import distinct
from layerscope.recording.reader import Reader

# Collectives that nobody leaves before all have arrived. On a GPU the name stands for the launch
# only.
_COLLECTIVE = re.compile(
    r"(gloo|nccl|mpi|ucc|xccl):_?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier)\w*"
)
# Below this share of the median a rank is not called slow: two runs of the same loop differ by as
# much.
SLOWER = 0.05


@dataclass(slots=True)
class RankTimes:
    """One rank. Times are means over its measured steps, None where it has none; `wait_ns` None:
    not known.
    """

    rank: int
    host: str
    processes: int
    steps: int
    mean_ns: float | None
    wait_ns: float | None
    of_median: float | None = None

    @property
    def work_ns(self) -> float | None:
        """The mean step without waiting for other ranks."""
        return None if self.mean_ns is None else max(self.mean_ns - (self.wait_ns or 0.0), 0.0)


@dataclass(slots=True)
class SlowestRank:
    """The rank that works longest in a step, `over` the median rank by this fraction, and what the
    others wait.
    """

    rank: int
    ranks: int
    work_ns: float
    over: float
    others_wait_ns: float | None


def rank_times(reader: Reader) -> list[RankTimes]:
    """One for each rank, in order; empty when no process knew that it was one."""
    processes = reader.arrays("processes", ["process", "rank", "host"])
    of_process = {
        process: rank
        for process, rank in zip(
            processes["process"].tolist(), processes["rank"].tolist(), strict=True
        )
        if rank >= 0
    }
    ranks = sorted(set(of_process.values()))
    if not ranks:
        return []
    hosts = dict(
        zip(processes["rank"].tolist()[::-1], processes["host"].tolist()[::-1], strict=True)
    )
    steps = MeasuredSteps(reader)
    waits = _waits(reader, of_process, steps) if len(ranks) > 1 and not is_thinned(reader) else {}
    found = []
    for rank in ranks:
        own = [process for process, of in of_process.items() if of == rank]
        mine = np.isin(steps.columns["process"], own)
        times = RankTimes(rank, str(hosts[rank]), len(own), int(np.count_nonzero(mine)), None, None)
        dur_ns = steps.columns["dur_ns"][mine & steps.measured]
        if len(dur_ns):
            times.mean_ns = float(np.mean(dur_ns))
            times.wait_ns = waits[rank] / len(dur_ns) if rank in waits else None
        found.append(times)
    typical = statistics.median(
        [times.work_ns for times in found if times.work_ns is not None] or [0.0]
    )
    for times in found:
        times.of_median = times.work_ns / typical if times.work_ns is not None and typical else None
    return found


def slowest_rank(times: list[RankTimes]) -> SlowestRank | None:
    """The rank that holds the others up; None when there is one rank only, or no step on most of
    them.
    """
    timed = [one for one in times if one.work_ns is not None and one.of_median is not None]
    if len(timed) < 2:
        return None
    last = max(timed, key=lambda one: one.work_ns or 0.0)
    # Of two ranks the median lies between them: the other one is what it is slower than.
    others = [one for one in timed if one is not last]
    usual_ns = statistics.median([one.work_ns or 0.0 for one in others])
    waits = [one.wait_ns for one in others if one.wait_ns is not None]
    wait_ns = None
    if waits:
        wait_ns = statistics.median(waits)
    work_ns = last.work_ns or 0.0
    over = work_ns / max(usual_ns, 1.0) - 1
    return SlowestRank(
        rank=last.rank,
        ranks=len(times),
        work_ns=work_ns,
        over=over,
        others_wait_ns=wait_ns,
    )


def _waits(reader: Reader, of_process: dict[int, int], steps: MeasuredSteps) -> dict[int, float]:
    """By rank, how long it waited for others in its measured steps. Empty where calls cannot be
    matched.
    """
    found = _collectives(reader, of_process, steps)
    if found is None:
        return {}
    ranks = distinct(found["rank"])
    total = {int(rank): 0.0 for rank in ranks.tolist()}
    for name in distinct(found["name"]).tolist():
        calls = _calls_by_rank(found, name, ranks)
        if calls is None:
            return {}
        start_ns = found["start_ns"][calls]
        until_last_ns = start_ns.max(axis=0) - start_ns
        wait_ns = np.minimum(until_last_ns, found["dur_ns"][calls])
        waits_ns = (wait_ns * found["measured"][calls]).sum(axis=1)
        for rank, waited in zip(ranks.tolist(), waits_ns.tolist(), strict=True):
            total[rank] += waited
    return total


def _calls_by_rank(found: Columns, name: str, ranks: NDArray[Any]) -> NDArray[Any] | None:
    """The rows of the calls of this name, for each rank in the order of time; None if some rank
    called it more often than another.
    """
    calls = []
    for rank in ranks:
        rows = np.flatnonzero((found["name"] == name) & (found["rank"] == rank))
        order = np.argsort(found["start_ns"][rows], kind="stable")
        calls.append(rows[order])
    counts = {len(rows) for rows in calls}
    return np.stack(calls) if len(counts) == 1 else None


def _collectives(
    reader: Reader, of_process: dict[int, int], steps: MeasuredSteps
) -> dict[str, NDArray[Any]] | None:
    """All calls of collectives in processes that are ranks: rank, name, start_ns, dur_ns,
    measured.
    """
    tracks = reader.arrays("tracks", ["track", "process"])
    process_of = process_of_tracks(tracks)
    kept: list[dict[str, NDArray[Any]]] = []
    wanted: NDArray[np.bool_] = np.zeros(0, np.bool_)
    for spans in reader.pieces("spans", ["track", "name", "start_ns", "dur_ns", "step"]):
        fresh = [
            bool(_COLLECTIVE.fullmatch(str(name))) for name in spans["name.names"][len(wanted) :]
        ]
        wanted = np.append(wanted, np.array(fresh, np.bool_))
        rows = np.flatnonzero(wanted[spans["name"]])
        process = process_of[spans["track"][rows]]
        measured, _ = steps.of_spans(
            {name: spans[name][rows] for name in ("track", "step")}, process_of
        )
        for number in distinct(process).tolist():
            if number in of_process:
                mine = rows[process == number]
                kept.append(
                    {
                        "rank": np.full(len(mine), of_process[number]),
                        "name": spans["name"][mine],
                        "start_ns": spans["start_ns"][mine],
                        "dur_ns": spans["dur_ns"][mine],
                        "measured": measured[process == number],
                    }
                )
    if not kept:
        return None
    return {name: np.concatenate([piece[name] for piece in kept]) for name in kept[0]}
