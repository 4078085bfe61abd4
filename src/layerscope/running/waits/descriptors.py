"""Pipes, sockets and other files: who has the other end."""

from __future__ import annotations

from pathlib import Path

from layerscope.host import files
from layerscope.host.descriptors import Holder
from layerscope.model.running import FrameNow, Wait, Waited
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

# Numbers of system calls of x86-64 whose first argument is a descriptor.
_READS = {0: "read", 17: "pread64", 19: "readv", 45: "recvfrom", 47: "recvmsg", 295: "preadv"}
_WRITES = {1: "write", 18: "pwrite64", 20: "writev", 44: "sendto", 46: "sendmsg", 296: "pwritev"}
_ACCEPTS = (43, 288)
_CONNECT = 42
_EPOLL = (232, 281, 441)
_POLL = (7, 23, 270, 271)
_FILES = (74, 75, 16, 217)
_SHOWN_MOST = 8
_LOOP, _LOOP_FILE, _LOOP_DEPTH = "BaseEventLoop._run_once", "asyncio/base_events.py", 3


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """By the descriptors that its system call is about."""
    call = thread.call
    if call in _READS or call in _ACCEPTS:
        return _one(thread, thread.arguments[0], seen, for_reading=True)
    if call in _WRITES or call == _CONNECT:
        return _one(thread, thread.arguments[0], seen, for_reading=False)
    if call in _EPOLL:
        return _of_loop(thread, seen) or _any_of(thread, _watched(thread, seen), seen)
    if call in _POLL:
        return _of_loop(thread, seen) or _any_of(thread, thread.polled, seen)
    if call in _FILES:
        target = seen.descriptors.target(thread.pid, thread.arguments[0])
        return Wait("file", f"the file {target}" if target else "a file")
    return None


def _watched(thread: ToldThread, seen: Observed) -> list[int]:
    """The descriptors that an epoll watches, as the kernel lists them; none where it may not be
    asked.
    """
    epoll = thread.arguments[0]
    told = seen.descriptors.info(thread.pid, epoll)
    found = []
    for line in told.get("tfd", []):
        number = files.whole(line.partition(" ")[0])
        if number is not None:
            found.append(number)
    return found


def _of_loop(thread: ToldThread, seen: Observed) -> Wait | None:
    """The wait of an event loop of asyncio, which watches a socket pair of its own too."""
    innermost = seen.python_stack(thread)[:_LOOP_DEPTH]
    if not any(map(_is_loop, innermost)):
        return None
    numbers = _watched(thread, seen) if thread.call in _EPOLL else thread.polled
    found: dict[Waited, None] = {}
    for number in numbers[:_SHOWN_MOST]:
        wait = _one(thread, number, seen, for_reading=True)
        found.update(dict.fromkeys(wait.on))
    return Wait("event", "something to be ready in asyncio's event loop", tuple(found))


def _is_loop(frame: FrameNow) -> bool:
    """Whether it is the function of an event loop that waits until something is ready, and calls
    what was waited for.
    """
    return frame.name == _LOOP and frame.file.endswith(_LOOP_FILE)


def _any_of(thread: ToldThread, numbers: list[int], seen: Observed) -> Wait:
    """Of several the ones with somebody at their other end."""
    waits = [_one(thread, number, seen, for_reading=True) for number in numbers[:_SHOWN_MOST]]
    kinds = {one.kind for one in waits}
    on = tuple(dict.fromkeys(other for one in waits for other in one.on))
    if len(waits) == 1 and len(numbers) == 1:
        return waits[0]
    if not numbers:
        return Wait("event", "time to pass, or a signal")
    kind = kinds.pop() if len(kinds) == 1 else "event"
    return Wait(kind, f"one of {len(numbers)} descriptors to be ready", on)


def _one(thread: ToldThread, number: int, seen: Observed, for_reading: bool) -> Wait:
    number &= 0xFFFFFFFF
    target = seen.descriptors.target(thread.pid, number)
    if target.startswith("pipe:"):
        found = seen.descriptors.holders(target)
        return _pipe(thread, "a pipe", found, for_reading)
    if target.startswith("socket:"):
        return _socket(thread, target, seen, for_reading)
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return Wait("terminal", f"the terminal {target}")
    if target == "anon_inode:[pidfd]":
        words = seen.descriptors.info(thread.pid, number).get("Pid", ["0"])
        pid = files.whole(words[0]) or 0
        on = (Waited(pid, 0, _name(pid), ""),) if pid > 0 else ()
        return Wait("child", "a process to end", on)
    if target.startswith("anon_inode:"):
        return Wait("event", f"an event ({target.removeprefix('anon_inode:').strip('[]')})")
    if seen.descriptors.is_fifo(thread.pid, number):
        found = seen.descriptors.holders_of_fifo(thread.pid, number)
        return _pipe(thread, f"the FIFO {target}", found, for_reading)
    return Wait("file", f"the file {target}" if target else f"descriptor {number}")


def _pipe(thread: ToldThread, called: str, found: list[Holder], for_reading: bool) -> Wait:
    """Whoever can write into a pipe that is read, and read from
    one that is full.
    """
    what = f"data in {called}" if for_reading else f"room in {called}"
    ends = [one for one in found if (one.can_write if for_reading else one.can_read)]
    other = "write into it" if for_reading else "read from it"
    pids = list(dict.fromkeys(one.pid for one in ends if one.pid != thread.pid))
    on = tuple(Waited(pid, 0, _name(pid), f"can {other}") for pid in pids)
    if on:
        return Wait("pipe", what, on)
    if ends:
        return Wait("pipe", what, (), f"only this process itself can {other}")
    return Wait("pipe", what, (), f"no process that may be looked at can {other}")


def _socket(thread: ToldThread, target: str, seen: Observed, for_reading: bool) -> Wait:
    what = "data from" if for_reading else "room in a connection to"
    inode = int(target.removeprefix("socket:[").rstrip("]") or 0)
    connections = seen.connections(thread.pid)
    known = connections.of(inode)
    if known is None:
        return _unix_socket(thread, what, inode, seen)
    if known.listens:
        return Wait("socket", f"a connection to {known.local}")
    end = connections.other_end(known)
    if end is None:
        return Wait("socket", f"{what} {known.remote}", (), "which is on another machine")
    return _of_socket(thread, f"{what} {known.remote}", end.inode, seen)


def _unix_socket(thread: ToldThread, what: str, inode: int, seen: Observed) -> Wait:
    """The wait for a socket that is no TCP: of this machine, or of a kind that nothing is known
    of.
    """
    peer = seen.unix_peers.get(inode)
    if peer is None:
        return Wait("socket", f"{what} a socket", (), "where it leads is not known")
    return _of_socket(thread, f"{what} a Unix socket", peer, seen)


def _of_socket(thread: ToldThread, what: str, inode: int, seen: Observed) -> Wait:
    """The wait for the other processes that have the socket at the other end open."""
    holders = seen.descriptors.holders(f"socket:[{inode}]")
    pids = list(dict.fromkeys(one.pid for one in holders if one.pid != thread.pid))
    on = tuple(Waited(pid, 0, _name(pid), "has the other end") for pid in pids)
    is_own = holders and not pids
    note = "only this process itself has the other end" if is_own else ""
    return Wait("socket", what, on, note)


def _name(pid: int) -> str:
    """How a process is called; "" where
    it has ended.
    """
    return files.text(Path("/proc") / str(pid) / "comm")
