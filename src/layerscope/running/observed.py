"""All that one look has found, with what the kinds of waits ask of it."""

from __future__ import annotations

from functools import cached_property

from layerscope.host import process_tree, unix_sockets
from layerscope.host.connections import Connections
from layerscope.host.descriptors import Descriptors
from layerscope.model.running import PYTHON, FrameNow, Waited
from layerscope.running.names import Names
from layerscope.running.told import Readings, ToldProcess, ToldThread

# The process, and a number of the thread in it.
Key = tuple[int, int]
_MAIN = "MainThread"  # as Python calls it


class Observed:
    """One look at some processes."""

    def __init__(self, told: Readings, names: Names) -> None:
        self.told = told
        self.names = names
        self.descriptors = Descriptors()
        self._connections: dict[int, Connections] = {}

    def process(self, thread: ToldThread) -> ToldProcess:
        """The process of a thread."""
        return self._processes[thread.pid]

    def thread(self, pid: int, own_tid: int) -> ToldThread | None:
        """The thread of process `pid` that has this number there."""
        key = (pid, own_tid)
        return self._by_own_tid.get(key)

    def identified(self, pid: int, identification: int) -> ToldThread | None:
        """The thread that Python knows by this number."""
        if not identification:
            return None
        return self._by_identification.get((pid, identification))

    def with_state(self, pid: int, state_at: int) -> ToldThread | None:
        """The thread with this PyThreadState."""
        if not state_at:
            return None
        return self._by_state.get((pid, state_at))

    def holders(self, pid: int, address: int) -> list[ToldThread]:
        """The threads that are in a `with` block of the lock at `address`, in the order in which
        they were told.
        """
        key = (pid, address)
        return self._holders.get(key, [])

    def python_stack(self, thread: ToldThread) -> list[FrameNow]:
        """Its frames of Python, the innermost first."""
        found: list[FrameNow] = []
        for frame in reversed(thread.frames):
            found += [one for one in self.names.named(thread.pid, frame) if one.layer == PYTHON]
        return found

    def connections(self, pid: int) -> Connections:
        """The sockets in the network of a process."""
        if pid not in self._connections:
            self._connections[pid] = Connections(pid)
        return self._connections[pid]

    def waited(self, thread: ToldThread, how: str) -> Waited:
        """A thread as the one that is waited for."""
        return Waited(thread.pid, thread.thread, self.name(thread), how)

    def name(self, thread: ToldThread) -> str:
        """As Python calls it, or the kernel."""
        is_main = thread.thread == thread.pid and thread.identification
        return _MAIN if is_main else thread.python_name or thread.name

    def holder_of_gil(self, pid: int) -> ToldThread | None:
        """The thread that runs code of Python."""
        gil = self._processes[pid].gil
        if not gil:
            return None
        return self.with_state(pid, gil[-1])

    def threads(self, pid: int) -> list[ToldThread]:
        """Those of a process, in the order in which they began."""
        return self._of_process.get(pid, [])

    def place(self, thread: ToldThread) -> str:
        """Where the thread is, as "/opt/train.py:12": its innermost line of Python, but for those
        of Python's own library where it has others.
        """
        stack = self.python_stack(thread)
        own = [frame for frame in stack if not _is_of_python(frame.file)]
        for frame in own or stack:
            return f"{frame.file}:{frame.line}"
        return ""

    @cached_property
    def unix_peers(self) -> dict[int, int]:
        """By inode of a Unix socket that of its other end."""
        return unix_sockets.peers()

    @cached_property
    def parents(self) -> dict[int, int]:
        """The parent of each process."""
        return process_tree.parents()

    @cached_property
    def _processes(self) -> dict[int, ToldProcess]:
        """By their number."""
        found: dict[int, ToldProcess] = {}
        for one in self.told.processes:
            found[one.process] = one
        return found

    @cached_property
    def _by_own_tid(self) -> dict[Key, ToldThread]:
        """By their number in their own pid namespace."""
        return self._keyed("own_tid")

    @cached_property
    def _by_identification(self) -> dict[Key, ToldThread]:
        """By the number that Python knows them by."""
        return self._keyed("identification")

    @cached_property
    def _by_state(self) -> dict[Key, ToldThread]:
        """By their PyThreadState."""
        return self._keyed("state_at")

    @cached_property
    def _of_process(self) -> dict[int, list[ToldThread]]:
        """The threads by process, in the order in which they were
        told.
        """
        found: dict[int, list[ToldThread]] = {}
        for thread in self.told.threads:
            found.setdefault(thread.pid, []).append(thread)
        return found

    def _keyed(self, field: str) -> dict[Key, ToldThread]:
        """The threads by process and by what this field of them
        says.
        """
        found: dict[Key, ToldThread] = {}
        for one in self.told.threads:
            found[one.pid, getattr(one, field)] = one
        return found

    @cached_property
    def _holders(self) -> dict[Key, list[ToldThread]]:
        """The threads by process and by the address of each lock
        whose `with` block they are in, those that a Condition has
        released left out.
        """
        found: dict[Key, list[ToldThread]] = {}
        for thread in self.told.threads:
            addresses = {address for address, _ in thread.holds}
            for address in addresses:
                found.setdefault((thread.pid, address), []).append(thread)
        return found


def _is_of_python(file: str) -> bool:
    """Whether it is of Python's own library."""
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return file.startswith("<frozen ") or ("/lib/python3" in file and not is_installed)
