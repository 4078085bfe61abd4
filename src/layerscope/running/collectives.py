"""The ranks of a distributed job: which of them are in a collective, and which one is missing."""

from __future__ import annotations

from layerscope.capture import launchers
from layerscope.model.frameworks import collective_functions
from layerscope.model.running import COLLECTIVE, PYTHON, FrameNow, Wait, Waited
from layerscope.running import processes
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

Thread = tuple[int, int]


class Ranks:
    """The ranks among the processes that were looked at, each with its outermost process: workers
    that it has started have its number too.
    """

    def __init__(self, seen: Observed) -> None:
        self._seen = seen
        self._collectives: dict[Thread, str] = {}
        self.numbers: dict[int, int] = {}  # by process
        found: dict[int, int] = {}
        for one in seen.told.processes:
            launch = launchers.find(processes.environment(one.process))
            if launch is not None:
                self.numbers[one.process] = launch.rank
                found.setdefault(launch.rank, one.process)
        self.processes = dict(sorted(found.items()))

    def add(self, waits: dict[Thread, Wait]) -> None:
        """Say of each thread in a collective which ranks are not in it, in place of what its system
        call waits for.
        """
        if not self.processes:
            return
        for thread in self._seen.told.threads:
            name = self._collective_of(thread)
            if name:
                self._collectives[thread.pid, thread.thread] = name
        for key, name in self._collectives.items():
            missing = self._missing(key[0], name)
            note = "" if missing else "all ranks that were looked at are in it"
            what = f"the other ranks in {name}"
            waits[key] = Wait(COLLECTIVE, what, tuple(missing), note)

    def _missing(self, own: int, name: str) -> list[Waited]:
        """The ranks that are not in the collective `name`, of which
        `own` is a process.
        """
        found = []
        for rank, pid in self.processes.items():
            elsewhere = self._in_collectives(pid)
            if pid != own and name not in elsewhere:
                found.append(self._at(rank, pid, elsewhere))
        return found

    def _in_collectives(self, pid: int) -> list[str]:
        found = []
        for (of, _), name in self._collectives.items():
            if of == pid:
                found.append(name)
        return found

    def _collective_of(self, thread: ToldThread) -> str:
        """The function of the framework that the program has called for it; "": it is in none."""
        for frame in thread.frames:
            for one in self._seen.names.named(thread.pid, frame):
                name = _name(one)
                if name:
                    return name
        return ""

    def _at(self, rank: int, pid: int, elsewhere: list[str]) -> Waited:
        """Where a rank is that is missing."""
        threads = self._seen.threads(pid)
        name = f"rank {rank}"
        if not threads:
            return Waited(pid, 0, name, "could not be looked at")
        how = f"is in {elsewhere[0]}" if elsewhere else "is not in it"
        where = _own_line(self._seen.python_stack(threads[0]))
        return Waited(pid, threads[0].thread, name, f"{how} but {where}" if where else how)


def _name(frame: FrameNow) -> str:
    """What the collective is called that a function is; "": it
    is none.
    """
    for layer, function, file, name in collective_functions():
        is_there = frame.layer == layer and frame.file.endswith(file)
        if is_there and function.search(frame.name):
            return name or frame.name
    return ""


def _own_line(stack: list[FrameNow]) -> str:
    """Where the program itself is: its innermost line in none of
    the libraries.
    """
    for frame in stack:
        is_own = "/site-packages/" not in frame.file and "/lib/python3" not in frame.file
        if frame.layer == PYTHON and is_own and frame.line:
            file = frame.file.rpartition("/")[2]
            return f"at {file}:{frame.line} ({frame.name})"
    return ""
