"""All that one look has found, with what the kinds of waits ask of it."""

from __future__ import annotations

from functools import cached_property

from layerscope.host import process_tree
from layerscope.host.connections import Connections
from layerscope.host.descriptors import Descriptors
from layerscope.model.running import PYTHON, Frame, Waited
from layerscope.running.names import Names
from layerscope.running.raw_threads import Raw, RawProcess, RawThread


class Look:
    """One look at some processes."""

    def __init__(self, raw: Raw, names: Names) -> None:
        self.raw = raw
        self.names = names
        self.descriptors = Descriptors()
        self._connections: dict[int, Connections] = {}

    def process(self, thread: RawThread) -> RawProcess:
        """The process of a thread."""
        return self._processes[thread.pid]

    def thread(self, pid: int, own_tid: int) -> RawThread | None:
        """The thread of process `pid` that has this number there."""
        return self._by_own_tid.get((pid, own_tid))

    def identified(self, pid: int, identification: int) -> RawThread | None:
        """The thread that Python knows by this number."""
        return self._by_identification.get((pid, identification)) if identification else None

    def with_state(self, pid: int, state_at: int) -> RawThread | None:
        """The thread with this PyThreadState."""
        return self._by_state.get((pid, state_at)) if state_at else None

    def holders(self, pid: int, address: int) -> list[RawThread]:
        """The threads that are in a `with` block of the lock at `address`."""
        return self._holders.get((pid, address), [])

    def python_stack(self, thread: RawThread) -> list[Frame]:
        """Its frames of Python, the innermost first."""
        found: list[Frame] = []
        for frame in reversed(thread.frames):
            found += [one for one in self.names.named(thread.pid, frame) if one.layer == PYTHON]
        return found

    def connections(self, pid: int) -> Connections:
        """The sockets in the network of a process."""
        if pid not in self._connections:
            self._connections[pid] = Connections(pid)
        return self._connections[pid]

    def waited(self, thread: RawThread, how: str) -> Waited:
        """A thread as the one that is waited for."""
        return Waited(thread.pid, thread.thread, thread.python_name or thread.name, how)

    def place(self, thread: RawThread) -> str:
        """Where the thread is, as "train.py:12": its innermost line of Python."""
        for frame in self.python_stack(thread):
            return f"{frame.file.rpartition('/')[2]}:{frame.line}"
        return ""

    @cached_property
    def parents(self) -> dict[int, int]:
        """The parent of each process."""
        return process_tree.parents()

    @cached_property
    def _processes(self) -> dict[int, RawProcess]:
        return {one.process: one for one in self.raw.processes}

    @cached_property
    def _by_own_tid(self) -> dict[tuple[int, int], RawThread]:
        return {(one.pid, one.own_tid): one for one in self.raw.threads}

    @cached_property
    def _by_identification(self) -> dict[tuple[int, int], RawThread]:
        return {(one.pid, one.identification): one for one in self.raw.threads}

    @cached_property
    def _by_state(self) -> dict[tuple[int, int], RawThread]:
        return {(one.pid, one.state_at): one for one in self.raw.threads}

    @cached_property
    def _holders(self) -> dict[tuple[int, int], list[RawThread]]:
        found: dict[tuple[int, int], list[RawThread]] = {}
        for thread in self.raw.threads:
            for address in dict.fromkeys(one[0] for one in thread.holds):
                found.setdefault((thread.pid, address), []).append(thread)
        return found
