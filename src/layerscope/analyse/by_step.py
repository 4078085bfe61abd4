"""What happened in each step: CPU time from samples, everything else from the readings of counters
around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.step_times import Array, Arrays, Int64s, process_of_tracks
from layerscope.model.distinct import distinct
from layerscope.model.layers import PROCESS_COUNTERS

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

Readings = dict[tuple[int, str], tuple[Int64s, Int64s]]
UNKNOWN = -1


def system_readings(
    reader: Reader, tracks: Arrays, names: list[str], domain: str = PROCESS_COUNTERS
) -> Readings:
    """When and what was read of each process, by its key and the name of the counter; of those in
    `names`, all if none.

    Not of counters that the program made, whatever these are called.
    """
    columns = reader.arrays("counters", ["track", "at_ns", "name", "value"])
    process_of = process_of_tracks(tracks)
    ours = np.isin(columns["track"], tracks["track"][tracks["name"] == domain])
    if names:
        ours &= np.isin(columns["name"], np.flatnonzero(np.isin(columns["name.names"], names)))
    rows = np.flatnonzero(ours)
    track, name = columns["track"][rows], columns["name"][rows]
    order = np.lexsort((columns["at_ns"][rows], name, track))
    begins = np.flatnonzero((np.diff(track[order]) != 0) | (np.diff(name[order]) != 0)) + 1
    found: Readings = {}
    for some in np.split(rows[order], begins) if len(rows) else ():
        key = (
            int(process_of[columns["track"][some[0]]]),
            str(columns["name.names"][columns["name"][some[0]]]),
        )
        found[key] = columns["at_ns"][some], columns["value"][some]
    return found


def cpu_ns_within(
    reader: Reader, tracks: Arrays, process: Array, start_ns: Int64s, end_ns: Int64s
) -> Int64s:
    """CPU time of all threads of each `process` between two times, from samples; UNKNOWN where it
    has none.

    A sample stands for what its thread used since its last one. That is spread evenly over the time
    between the two in which the thread did not wait, as far as its waits were measured. It is wrong
    by less than what the samples around the start and the end stand for, of each thread: the
    period, 10 ms at 99 Hz.
    """
    found = np.full(len(start_ns), UNKNOWN, np.int64)
    if not len(start_ns) or not reader.has("samples"):
        return found
    columns = reader.arrays("samples", ["at_ns", "track", "weight_ns", "kind", "exact"])
    cpu, waits = (_of_kind(columns, name) for name in ("cpu", "offcpu"))
    waits = waits[columns["exact"][waits].astype(np.bool_)]
    waits_of = _by_track(columns["track"], waits)
    process_of = process_of_tracks(tracks)
    edges_ns = distinct(np.append(start_ns, end_ns))
    used_ns: dict[int, Int64s] = {}  # of each process until each of these
    wanted = set(process.tolist())
    for track, rows in _by_track(columns["track"], cpu).items():
        if process_of[track] not in wanted:
            continue
        at_ns, weight_ns = (columns[name][rows] for name in ("at_ns", "weight_ns"))
        wait_at_ns, wait_ns = (
            columns[name][waits_of.get(track, waits[:0])] for name in ("at_ns", "weight_ns")
        )
        used = _Used(at_ns, weight_ns, wait_at_ns, wait_ns)
        number = int(process_of[track])
        used_ns[number] = used_ns.get(number, 0) + used.until(edges_ns)
    for number, until_ns in used_ns.items():
        mine = np.flatnonzero(process == number)
        first, last = (np.searchsorted(edges_ns, moment[mine]) for moment in (start_ns, end_ns))
        found[mine] = until_ns[last] - until_ns[first]
    return found


def _by_track(tracks: Array, rows: Array) -> dict[int, Array]:
    """Those of `rows` that belong to each track."""
    order = rows[np.argsort(tracks[rows], kind="stable")]
    found, first = np.unique(tracks[order], return_index=True)
    return dict(
        zip(found.tolist(), np.split(order, first[1:]), strict=False)
    )  # of no rows one part that is empty


def _of_kind(columns: Arrays, name: str) -> Array:
    """The rows of this kind."""
    code = np.flatnonzero(columns["kind.names"] == name)
    if not len(code):
        return np.zeros(0, np.intp)
    return np.flatnonzero(columns["kind"] == code[0])


class _Used:
    """The CPU time of a thread so far, at any time."""

    def __init__(
        self, at_ns: Int64s, weight_ns: Int64s, wait_at_ns: Int64s, wait_ns: Int64s
    ) -> None:
        order = np.argsort(wait_at_ns, kind="stable")
        wait_end_ns = wait_at_ns + wait_ns
        starts_and_ends = np.stack([wait_at_ns, wait_end_ns], axis=1)
        self._edges = starts_and_ends[order].ravel()
        waited_after = np.cumsum(wait_ns[order])
        waited_before_and_after = np.repeat(np.append(0, waited_after), 2)
        self._waited = waited_before_and_after[1:-1]
        sampled_at, row = np.unique(at_ns, return_inverse=True)
        weights = np.zeros(len(sampled_at), np.int64)
        np.add.at(weights, row, weight_ns)
        # A thread had used nothing before its first sample by more than that stands for.
        first_ns = sampled_at[0] - weights[0]
        self._at = np.append(first_ns, sampled_at)
        self._used = np.append(0, np.cumsum(weights))

    def _awake(self, at_ns: Int64s) -> Array:
        waited = (
            np.interp(at_ns, self._edges, self._waited)
            if len(self._edges)
            else np.zeros(len(at_ns))
        )
        awake: Array = at_ns - self._at[0] - waited
        return awake

    def until(self, at_ns: Int64s) -> Int64s:
        """What it had used at each of these times, in ns."""
        awake_ns = self._awake(at_ns)
        used_ns = np.interp(awake_ns, self._awake(self._at), self._used)
        rounded: Int64s = np.rint(used_ns).astype(np.int64)
        return rounded


def grown_within(
    readings: tuple[Int64s, Int64s] | None, start_ns: Int64s, end_ns: Int64s
) -> Int64s:
    """By how much a counter grew between two times, UNKNOWN where the readings do not tell.

    Between two readings it is a straight line; where these are further apart than the two times
    are, they tell nothing.
    """
    found = np.full(len(start_ns), UNKNOWN, np.int64)
    if readings is None or len(readings[0]) < 2:
        return found
    at_ns, values = readings
    apart = np.diff(at_ns)
    is_known = (start_ns >= at_ns[0]) & (end_ns <= at_ns[-1])
    for moment, side in ((start_ns, "right"), (end_ns, "left")):
        after = np.searchsorted(at_ns, moment, side=side)  # type: ignore[call-overload]
        is_known &= apart[np.clip(after - 1, 0, len(apart) - 1)] <= end_ns - start_ns
    grown = np.interp(end_ns, at_ns, values) - np.interp(start_ns, at_ns, values)
    found[is_known] = np.rint(grown[is_known]).astype(np.int64)
    return found
