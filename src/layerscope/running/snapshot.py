"""One look at processes: what each of their threads does now, and on whom it waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerscope.host.last_ran import LastRan
from layerscope.model.running import CUT, PYTHON, Deadlock, ProcessNow, Snapshot, ThreadNow, Wait
from layerscope.running import deadlocks, processes
from layerscope.running.collectives import Ranks
from layerscope.running.names import Names, has_python
from layerscope.running.observed import Observed
from layerscope.running.open_spans import open_spans
from layerscope.running.told import Readings, ToldProcess, ToldThread, look
from layerscope.running.waits import gil, wait_of

_STATES = {"R": "running", "S": "waiting", "D": "blocked", "T": "stopped", "t": "stopped"}
_RESTING = ("waiting", "blocked", "stopped")
_ENDED = "ended"
_OLDEST = 11  # minor version of Python


def take(sampler: Path, pids: Sequence[int], with_native: bool = False) -> Snapshot:
    """Look at these processes. ReadError: there is none of the first; RunError: the program
    `sampler` does not run.
    """
    processes.check(pids[0])
    told = look(sampler, pids, with_native)
    names = Names(told)
    _load(names, told, with_native)
    seen = Observed(told, names)
    waits = _waits(seen)
    ranks = Ranks(seen)
    ranks.add(waits)
    circles = deadlocks.circles(waits, told.threads)
    lasting = [one for one in circles if _lasts(one, waits, told, sampler)]
    with LastRan() as last_ran:
        snapshot = _Snapshot(seen, waits, ranks, with_native, last_ran)
        found = [snapshot.process(one) for one in told.processes]
    return Snapshot(found, lasting)


def _load(names: Names, told: Readings, with_native: bool) -> None:
    """Look up what is shown, and what tells for what a thread waits."""
    if with_native:
        names.load(told.threads)
        return
    names.load(one for one in told.threads if not has_python(one))
    unclear = [one for one in told.threads if one.futex and not (one.lock or one.joins)]
    gils = {one.process: one.gil for one in told.processes if one.gil}
    names.load((one for one in unclear if not gil.is_in(one, gils.get(one.pid, []))), True)


def _waits(seen: Observed) -> dict[tuple[int, int], Wait]:
    """What each thread waits for; those that wait for
    nothing are left out.
    """
    found = {}
    for thread in seen.told.threads:
        wait = wait_of(thread, seen)
        if wait is not None:
            found[thread.pid, thread.thread] = wait
    return found


def _lasts(
    circle: Deadlock, waits: dict[tuple[int, int], Wait], told: Readings, sampler: Path
) -> bool:
    """Whether a second look finds the same circle: then it was
    none of two moments.

    `waits`: of the first look, by thread.
    """
    pids = {pid for pid, _ in circle.threads}
    again = look(sampler, sorted(pids))
    return deadlocks.is_lasting(circle, waits, told.threads, again.threads)


class _Snapshot:
    """What was seen, in words."""

    def __init__(
        self,
        seen: Observed,
        waits: dict[tuple[int, int], Wait],
        ranks: Ranks,
        with_native: bool,
        last_ran: LastRan,
    ) -> None:
        self._seen = seen
        self._waits = waits
        self._ranks = ranks
        self._with_native = with_native
        self._last_ran = last_ran

    def process(self, told: ToldProcess) -> ProcessNow:
        """A process with its threads."""
        pid = told.process
        is_refused = told.errno or not told.threads
        note = processes.refused(pid, told.errno) if is_refused else ""
        holder = self._seen.holder_of_gil(pid)
        spans = open_spans(pid)
        threads = []
        for one in self._seen.threads(pid):
            thread = self._thread(one, one is holder)
            thread.spans = spans.get(one.own_tid, ())
            threads.append(thread)
        is_read = not note or any(one.stack for one in threads)
        return ProcessNow(
            pid=pid,
            command=processes.command(pid),
            threads=threads,
            is_read=is_read,
            python=f"3.{told.python}" if told.python >= _OLDEST else "",
            note=note or processes.unread(told.refused),
            rank=self._ranks.numbers.get(pid),
        )

    def _thread(self, told: ToldThread, has_gil: bool) -> ThreadNow:
        """A thread: without --native only its functions of Python,
        if it has any.
        """
        stack = self._seen.names.stack(told)
        if has_python(told) and not self._with_native:
            stack = tuple(frame for frame in stack if frame.layer in (PYTHON, CUT))
        state = _STATES.get(told.state, _ENDED)
        rests = state in _RESTING
        return ThreadNow(
            pid=told.pid,
            tid=told.thread,
            name=self._seen.name(told),
            state=state,
            stack=stack,
            wait=self._waits.get((told.pid, told.thread)),
            is_torn=told.is_torn,
            is_native=told.is_native,
            has_gil=has_gil,
            rests_ns=self._last_ran.since_ns(told.pid, told.thread) if rests else None,
        )
