"""Which executions of primitives are the part that another thread has of one: its share.

Definition. oneDNN tells of an execution on the thread that asks for it, and once more on every
other thread that works for it. Those lie within the first in time, because it waits for them, and
have its name. So an execution that nothing else is open around, on another thread than the main
one, is the share of an execution of the same name on another thread that began no later and ended
no earlier. Of several it is that of the thread for which its own thread works most often: a pool of
OpenMP belongs to one thread for good.

Two threads without operators or ranges that run the same primitive at the same time cannot be told
from this.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from layerscope.model.distinct import distinct

NONE = -1


class Executions(Struct):
    """Columns of executions of one process; times in ns. `is_bare`: nothing was open around it on
    its thread.
    """

    track: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    is_bare: np.ndarray
    main_track: int = NONE


def find_primaries(of: Executions) -> np.ndarray:
    """The place of the execution that each one is a share of; -1: it is none."""
    primary = np.full(len(of.track), NONE, np.int64)
    left = np.flatnonzero(of.is_bare & (of.track != of.main_track))
    if not len(left):
        return primary
    within = _Within(of)
    asked = np.flatnonzero(~of.is_bare)
    if len(asked):
        _of_askers(of, within, distinct(of.track[asked]), asked, left, primary)
        left = left[primary[left] == NONE]
    for host in _by_first_start(of):
        others = left[of.track[left] != host]
        if not len(others):
            continue
        hosts = np.flatnonzero(of.is_bare & (of.track == host) & (primary == NONE))
        primary[others] = within.find(hosts, others)
        left = left[primary[left] == NONE]
    return primary


def _of_askers(
    of: Executions,
    within: _Within,
    hosts: np.ndarray,
    asked: np.ndarray,
    left: np.ndarray,
    primary: np.ndarray,
) -> None:
    """Shares of executions that operators or ranges asked for; in place."""
    tracks, worker = np.unique(of.track[left], return_inverse=True)
    best = np.zeros(len(left), np.int64)
    for host in hosts.tolist():
        found = within.find(asked[of.track[asked] == host], left)
        found[of.track[left] == host] = NONE
        often = np.bincount(worker[found >= 0], minlength=len(tracks))[worker]
        better = (found >= 0) & (often > best)
        primary[left[better]] = found[better]
        best[better] = often[better]


def _by_first_start(of: Executions) -> Iterator[int]:
    """Threads with executions around which nothing is open: the main one first, then by their first
    execution.
    """
    bare = np.flatnonzero(of.is_bare)
    order = np.argsort(of.start_ns[bare], kind="stable")
    track = of.track[bare[order]]
    tracks, first = np.unique(track, return_index=True)
    is_other = tracks != of.main_track
    by_start = np.lexsort((first, is_other))
    yield from tracks[by_start].tolist()


class _Within:
    """Finds the execution of the same name around others."""

    def __init__(self, of: Executions) -> None:
        self._of = of
        _, name = np.unique(of.name, return_inverse=True)
        first_ns = int(of.start_ns.min())
        # One number to search by: the name, then the start.
        self._stride = int(of.start_ns.max()) - first_ns + 1
        self._key = name.astype(np.int64) * self._stride + (of.start_ns - first_ns)
        self._name = name

    def find(self, hosts: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """For each of `inner` the one of `hosts`, all of one thread, that lies around it; -1: there
        is none.
        """
        if not len(hosts):
            return np.full(len(inner), NONE, np.int64)
        hosts = hosts[np.argsort(self._key[hosts], kind="stable")]
        at = np.searchsorted(self._key[hosts], self._key[inner], side="right") - 1
        host = hosts[np.maximum(at, 0)]
        is_around = (
            (at >= 0)
            & (self._name[host] == self._name[inner])
            & (self._of.end_ns[host] >= self._of.end_ns[inner])
        )
        return np.where(is_around, host, NONE)
