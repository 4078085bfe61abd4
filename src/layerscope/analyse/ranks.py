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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse import rank_questions as questions
from layerscope.analyse.across import engines
from layerscope.analyse.columns import Columns
from layerscope.analyse.step_times import MeasuredSteps, process_of_tracks
from layerscope.analyse.thinned import is_thinned
from layerscope.model.distinct import distinct
from layerscope.recording.apart import ranks_apart
from layerscope.recording.reader import Reader

if TYPE_CHECKING:
    import pyarrow as pa

# Collectives that nobody leaves before all have arrived. On a GPU the name stands for the launch
# only.
_COLLECTIVE = re.compile(
    r"(gloo|nccl|mpi|ucc|xccl):_?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier)\w*"
)
# Below this share of the median a rank is not called slow: two runs of the same loop differ by as
# much.
SLOWER = 0.05


class RankTimes(Struct):
    """One rank. Times are means over its `measured` steps, None where it has none; `wait_ns` None:
    not known.
    """

    rank: int
    host: str
    processes: int
    steps: int
    mean_ns: float | None
    wait_ns: float | None
    of_median: float | None = None
    measured: int = 0

    @property
    def work_ns(self) -> float | None:
        """The mean step without waiting for other ranks."""
        return None if self.mean_ns is None else max(self.mean_ns - (self.wait_ns or 0.0), 0.0)


class SlowestRank(Struct):
    """The rank that works longest in a step, `over` the median rank by this fraction, and what the
    others wait.
    """

    rank: int
    ranks: int
    work_ns: float
    over: float
    others_wait_ns: float | None


def rank_times(reader: Reader, engine: str = engines.DEFAULT) -> list[RankTimes]:
    """One for each rank, in order; empty when no process knew that it was one."""
    processes = reader.arrays("processes", ["process", "rank", "host"])
    rank_of = _rank_of_processes(processes)
    ranks = distinct(processes["rank"][processes["rank"] >= 0]).tolist()
    if not ranks:
        return []
    hosts = dict(
        zip(processes["rank"].tolist()[::-1], processes["host"].tolist()[::-1], strict=True)
    )
    found = {rank: RankTimes(rank, str(hosts[rank]), 0, 0, None, None) for rank in sorted(ranks)}
    steps = MeasuredSteps(reader)
    _count(found, processes["rank"], steps, rank_of)
    is_whole = len(ranks) > 1 and not is_thinned(reader)
    calls = _collectives(reader, rank_of, steps) if is_whole else None
    times = list(found.values())
    if len(times) > 1:
        return _compared(times, calls, engine)
    times[0].of_median = 1.0 if times[0].mean_ns else None
    return times


def _rank_of_processes(processes: Columns) -> NDArray[Any]:
    """The rank of each process, by its key; -1: of none."""
    last = int(processes["process"].max(initial=-1))
    rank_of = np.full(last + 1, -1)
    rank_of[processes["process"]] = processes["rank"]
    return rank_of


def _count(
    found: dict[int, RankTimes], ranks: NDArray[Any], steps: MeasuredSteps, rank_of: NDArray[Any]
) -> None:
    """Add to each rank its processes and its steps."""
    for rank, its in _by_rank(ranks):
        found[rank].processes = len(its)
    of_step = rank_of[steps.columns["process"]]
    for rank, its in _by_rank(of_step):
        found[rank].steps = len(its)
    measured = of_step[steps.measured]
    dur_ns = steps.columns["dur_ns"][steps.measured]
    for rank, its in _by_rank(measured):
        found[rank].measured = len(its)
        found[rank].mean_ns = float(np.mean(dur_ns[its]))


def _by_rank(ranks: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Each rank with the places where it is."""
    order = np.argsort(ranks, kind="stable")
    in_order = ranks[order]
    changes = np.flatnonzero(np.diff(in_order)) + 1
    for places in np.split(order, changes):
        rank = int(ranks[places[0]]) if len(places) else -1
        if rank >= 0:
            yield rank, places


def _compared(found: list[RankTimes], calls: pa.Table | None, engine: str) -> list[RankTimes]:
    """The ranks with how long they waited, and how they compare."""
    import pyarrow as pa

    names = questions.rank_columns().names
    own = {name: [getattr(one, name) for one in found] for name in names}
    with engines.opened(engine) as opened:
        opened.give("ranks", pa.table(own, questions.rank_columns()))
        opened.give("calls", calls or questions.call_columns().empty_table())
        answer = opened.answer(questions.compared())
    rows = answer.to_pylist()
    for one, row in zip(found, rows, strict=True):
        one.wait_ns = row["wait_ns"]
        one.of_median = row["of_median"]
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


def _collectives(reader: Reader, rank_of: NDArray[Any], steps: MeasuredSteps) -> pa.Table:
    """All calls of collectives in processes that are ranks (`rank_questions`)."""
    import pyarrow as pa

    tables = [questions.call_columns().empty_table()]
    for its in ranks_apart(reader):
        pieces = list(_pieces(its, rank_of, steps))
        if pieces:
            calls = pa.concat_tables(pieces)
            tables.append(_numbered(calls))
    return pa.concat_tables(tables)


def _numbered(calls: pa.Table) -> pa.Table:
    """The calls with their numbers: those of a name on a rank in the order of time."""
    import pyarrow as pa

    ordered = calls.sort_by([(name, "ascending") for name in ("rank", "name", "start_ns")])
    names = ordered["name"].combine_chunks()
    code = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    rank = ordered["rank"].to_numpy()
    is_first = np.ones(len(code), np.bool_)
    is_first[1:] = (np.diff(code) != 0) | (np.diff(rank) != 0)
    first = np.flatnonzero(is_first)
    place = np.arange(len(code))
    number = place - first[np.cumsum(is_first) - 1]
    schema = questions.call_columns()
    with_number = ordered.append_column("number", pa.array(number))
    return with_number.select(schema.names).cast(schema)


def _pieces(reader: Reader, rank_of: NDArray[Any], steps: MeasuredSteps) -> Iterator[pa.Table]:
    """The same without numbers, as the spans are read."""
    import pyarrow as pa

    tracks = reader.arrays("tracks", ["track", "process"])
    process_of = process_of_tracks(tracks)
    wanted: NDArray[np.bool_] = np.zeros(0, np.bool_)
    for spans in reader.pieces("spans", ["track", "name", "start_ns", "dur_ns", "step"]):
        names = spans["name.names"]
        fresh = [bool(_COLLECTIVE.fullmatch(str(name))) for name in names[len(wanted) :]]
        wanted = np.append(wanted, np.array(fresh, np.bool_))
        is_call = wanted[spans["name"]]
        process = process_of[spans["track"]]
        rows = np.flatnonzero(is_call & (rank_of[process] >= 0))
        if not len(rows):
            continue
        chosen = {name: spans[name][rows] for name in ("track", "step")}
        measured, _ = steps.of_spans(chosen, process_of)
        columns = {
            "rank": rank_of[process[rows]].astype(np.int32),
            "name": names[spans["name"][rows]].tolist(),
            "start_ns": spans["start_ns"][rows],
            "dur_ns": spans["dur_ns"][rows],
            "measured": measured.astype(np.int64),
        }
        yield pa.table(columns)
