"""What the threads of a running process do now: the words in which `dump` says it."""

from __future__ import annotations

import msgspec

PYTHON, NATIVE, CUT = "python", "native", "cut"
# The kind of a wait for other ranks of a distributed job.
COLLECTIVE = "collective"


class FrameNow(msgspec.Struct, frozen=True):
    """A function on a stack. `layer`: PYTHON, NATIVE, or CUT where frames are missing. `file`: its
    source file, "" where that is not known; `line`: 0 where it is not known. `object`: the file
    that a native function is in.
    """

    layer: str
    name: str
    file: str = ""
    line: int = 0
    object: str = ""


class Waited(msgspec.Struct, frozen=True):
    """A thread or process that is waited for. `tid`: 0 where it is the whole process. `how`: what
    makes it the one, such as "holds it at train.py:12"; `name`: what it is called.
    """

    pid: int
    tid: int = 0
    name: str = ""
    how: str = ""


class Wait(msgspec.Struct, frozen=True):
    """What a thread waits for. `kind`: one word for programs; `what`: for people, as it continues
    "waits for ". `on`: who has to do something; empty where nobody is known, and then `note` may
    say why. `is_sure`: false where it may be another one that is waited for.
    """

    kind: str
    what: str
    on: tuple[Waited, ...] = ()
    note: str = ""
    is_sure: bool = True


class OpenSpan(msgspec.Struct, frozen=True):
    """A span that is open on a thread of a process that is being recorded, as the tables have it:
    its layer, kind and name.
    """

    layer: str
    kind: str
    name: str


class ThreadNow(msgspec.Struct):
    """A thread. `stack`: the innermost frame first. `state`: running, waiting, stopped, blocked (in
    the kernel, where no signal ends it) or ended. `is_torn`: it ran on while its stack was read,
    which may mix two moments. `is_native`: its native frames could be read; `has_gil`: it holds the
    GIL. `spans`: what is open on it, the outermost first. `rests_ns`: for how long at least it has
    not run, None: it runs, or that is not told.
    """

    pid: int
    tid: int
    name: str
    state: str
    stack: tuple[FrameNow, ...]
    wait: Wait | None = None
    is_torn: bool = False
    is_native: bool = True
    has_gil: bool = False
    spans: tuple[OpenSpan, ...] = ()
    rests_ns: int | None = None


class ProcessNow(msgspec.Struct):
    """A process. `python`: its version, "" where it has none or none that is read; `note`: what
    could not be read and why. `rank`: in a distributed job, None where it is none of its ranks.
    `is_read`: whether anything of its threads could be read but their names.
    """

    pid: int
    command: tuple[str, ...]
    threads: list[ThreadNow]
    python: str = ""
    note: str = ""
    rank: int | None = None
    is_read: bool = True


class Deadlock(msgspec.Struct, frozen=True):
    """Threads that wait for each other in a circle: each for the next, the last for the first."""

    threads: tuple[tuple[int, int], ...]  # (pid, tid)


class Snapshot(msgspec.Struct):
    """All that was looked at."""

    processes: list[ProcessNow]
    deadlocks: list[Deadlock]
