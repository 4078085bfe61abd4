"""What `layerscope-sampler --dump` tells of processes (native/sampler/dump.c), as it tells it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from layerscope.model.errors import RunError

_PATIENCE_S = 60.0
# What a thread waits for with the lock that it names (native/sampler/python_locks.h).
LOCK, RLOCK, SIMPLE_QUEUE, SHARED_LOCK, SHARED_SEMAPHORE = range(5)


class ToldObject(msgspec.Struct):
    """An ELF file."""

    object: int
    path: str
    mtime_ns: int
    build_id: str


class ToldCode(msgspec.Struct):
    """A function of Python."""

    code: int
    name: str
    file: str


class ToldThread(msgspec.Struct):
    """A thread. `own_tid`: its number in its own pid namespace. `switches`: how often it has left a
    CPU. `identification`: as `threading.get_ident` gives it, `state_at` its PyThreadState; 0: it
    has none. `joins`: the native id of the thread whose `Thread.join` it is in.

    `call`: the number of its system call, -1 where it is in none; None: it runs. `futex`: the words
    that it waits for. `polled`: descriptors. `lock`: of Python, that it waits for: the address, the
    object, its kind (LOCK and so on), the identification of its owner. `python_rlock`: the owner of
    one that is written in Python. `holds`: of each lock whose `with`
    block it is in address and object. `frames`: the outermost first: [object, address, is a
    caller], [code, line], or [0] where some are missing.
    """

    thread: int
    pid: int
    own_tid: int
    name: str
    state: str
    switches: int
    identification: int
    state_at: int
    is_torn: bool
    is_native: bool
    frames: list[list[int]]
    python_name: str = ""
    joins: int = 0
    call: int | None = None
    arguments: list[int] = []
    futex: list[int] = []
    polled: list[int] = []
    lock: list[int] = []
    holds: list[list[int]] = []
    python_rlock: list[int] = []


class ToldProcess(msgspec.Struct):
    """A process, behind its threads. `python`: its minor version, 0: none, 1: none that is read.
    `errno`: why its memory may not be read; `refused`: why the frames of its Python are not.
    `gil`: from where to where it lies, and the PyThreadState that has it.
    """

    process: int
    python: int
    threads: int
    errno: int
    refused: str = ""
    gil: list[int] = []


class Readings:
    """All that one look at some processes tells."""

    def __init__(self) -> None:
        """Nothing yet: `take` adds line by line. Objects and functions have numbers that frames
        name them by.
        """
        self.objects: dict[int, ToldObject] = {}
        self.codes: dict[int, ToldCode] = {}
        self.threads: list[ToldThread] = []
        self.processes: list[ToldProcess] = []

    def take(self, line: bytes) -> None:
        """One line."""
        text = line.decode("utf-8", "replace")
        told: dict[str, Any] = msgspec.json.decode(text)
        if "thread" in told:
            self.threads.append(msgspec.convert(told, ToldThread))
        elif "code" in told:
            code = msgspec.convert(told, ToldCode)
            self.codes[code.code] = code
        elif "object" in told:
            known = msgspec.convert(told, ToldObject)
            self.objects[known.object] = known
        else:
            self.processes.append(msgspec.convert(told, ToldProcess))


def look(sampler: Path, pids: Sequence[int], with_native: bool = False) -> Readings:
    """Look at all threads of these processes; `with_native`: at native functions of threads that
    run code of Python too. RunError: the program `sampler` does not run.
    """
    command = [str(sampler), "--dump-native" if with_native else "--dump", *map(str, pids)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(f"threads cannot be looked at: {error}. Build layerscope again") from error
    raw = Readings()
    for line in done.stdout.splitlines():
        raw.take(line)
    return raw
