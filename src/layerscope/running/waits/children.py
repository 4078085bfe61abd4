"""The end of another process: wait4, waitid."""

from __future__ import annotations

from pathlib import Path

from layerscope.host import files, process_tree
from layerscope.model.running import Wait, Waited
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_WAIT4, _WAITID = 61, 247
_P_PID, _P_PIDFD = 1, 3
_SIGN = 1 << 31
_PROC = Path("/proc")
_ENDED, _STOPPED = "has ended meanwhile", "is stopped"
_STATES = {"": _ENDED, "Z": _ENDED, "X": _ENDED, "T": _STOPPED, "t": _STOPPED}


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """The child that it asks for, or all that it has."""
    if thread.call == _WAIT4:
        asked = thread.arguments[0] & 0xFFFFFFFF
        number = asked if 0 < asked < _SIGN else 0
    elif thread.call == _WAITID:
        number = _asked_by_waitid(thread, seen)
    else:
        return None
    children = process_tree.children(thread.pid, seen.parents)
    on = [one for one in children if not number or number in (one, _own_number(one))]
    waited = tuple(_process(one) for one in on)
    what = "a child process to end" if number else "any of its child processes to end"
    ended = f"process {number} has ended meanwhile" if number else "they have ended meanwhile"
    return Wait("child", what, waited, "" if waited else ended)


def _asked_by_waitid(thread: ToldThread, seen: Observed) -> int:
    """The number of the child that it names, by number or by a
    descriptor; 0: any.

    A number is that of the container of the thread.
    """
    kind, number = thread.arguments[:2]
    if kind == _P_PIDFD:
        words = seen.descriptors.info(thread.pid, number).get("Pid", ["0"])
        return files.whole(words[0]) or 0
    return number if kind == _P_PID else 0


def _own_number(pid: int) -> int:
    """Its number in its own container, which its parent may know it by."""
    words = files.fields(_PROC / str(pid) / "status").get("NSpid", "").split()
    return files.whole(words[-1]) or 0 if words else 0


def _process(pid: int) -> Waited:
    """A child as the one that is waited for, with its state: one
    that is stopped does not end.
    """
    folder = _PROC / str(pid)
    name = files.text(folder / "comm")
    status = files.fields(folder / "status")
    how = _STATES.get(status.get("State", "")[:1], "has not ended")
    return Waited(pid, 0, name, how)
