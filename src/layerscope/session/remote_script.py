"""Has a program that runs already execute a script of ours, in the way that CPython 3.14 offers to
debuggers (PEP 768): its runtime says where each thread keeps the path of a script and a flag, and
the thread executes the script at the next place where it is safe to.

What `sys.remote_exec` writes is written here through /proc/PID/mem, so that our own Python may be
of any version. Of what lets a thread look at its flag only one byte is written, and only where the
thread does not look by itself. Nothing is written before the runtime has said what it is.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from layerscope.model.errors import RunError
from layerscope.session.signal_table import static_memory

PACKAGE = Path(__file__).resolve().parents[1]
# _Py_DebugOffsets (pycore_debug_offsets.h of 3.14): where it has what is used of it.
_COOKIE = b"xdebugpy"
_OFFSETS_BYTES = 760
_WORDS = {
    "version": 8, "free_threaded": 16, "interpreters": 40,
    "interpreter_id": 56, "interpreter_next": 64, "threads": 72, "main_thread": 80,
    "thread_next": 192, "native_id": 224,
    "breaker": 712, "support": 720, "enabled": 728, "pending": 736, "path": 744, "path_bytes": 752,
}  # fmt: skip
_WORD = struct.Struct("<Q")
_INT = struct.Struct("<i")
_UNDERSTOOD = (3, 14)
_PLEASE_STOP = 1 << 5  # in the lowest byte of a thread's eval_breaker
_MOST_INTERPRETERS = 100
_MOST_THREADS = 10_000
# A thread that looks by itself does so soon; one that does not come at all is given up.
_BY_ITSELF_S = 0.05
_TURN_S = 1.0
_BEGUN_S = 0.05
_NAMESPACES = {"mnt": "files", "net": "sockets", "pid": "processes"}

# Python's frames go on between two instructions of the program, which may be importing what is
# needed here, or hold locks: a thread of its own waits for those.
_SCRIPT = """\
def begin(package, path):
    def load():
        from importlib import util
        spec = util.spec_from_file_location(
            "layerscope", package + "/__init__.py", submodule_search_locations=[package])
        sys.modules["layerscope"] = module = util.module_from_spec(spec)
        spec.loader.exec_module(module)

    def open_door():
        before = set(sys.modules)
        try:
            if "layerscope" not in before:
                load()
            from layerscope.profiler import standby
            standby.open_recording()
        except BaseException:
            for name in set(sys.modules) - before:
                if name.partition(".")[0] == "layerscope":
                    sys.modules.pop(name, None)
            try:
                os.unlink(path)
            except OSError:
                pass

    try:
        import _thread, os, sys
        _thread.start_new_thread(open_door, ())
    except BaseException:
        pass

begin({package!r}, {path!r})
"""


class SpokenRuntime(Struct, frozen=True):
    """What the runtime of a process says of itself, and where it lies in its memory."""

    address: int
    offsets: dict[str, int]

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor."""
        number = self.offsets["version"]
        return number >> 24, number >> 16 & 0xFF


def refusal(pid: int) -> str | None:
    """Why the process executes no script of ours, and what to do, in one sentence; None: it would
    now.
    """
    try:
        with _memory(pid) as memory:
            runtime = _runtime(pid, memory)
            if runtime is None:
                return "it is no CPython 3.14"
            return _refusal_of(pid, runtime, memory)
    except OSError:
        return (
            "the kernel does not let us write into its memory (it belongs to another user, or "
            "kernel.yama.ptrace_scope is 1 or more): run this as root"
        )


def _refusal_of(pid: int, runtime: SpokenRuntime, memory: int) -> str | None:
    if runtime.version != _UNDERSTOOD:
        return f"it is CPython {'.'.join(map(str, runtime.version))}, and not 3.14"
    if runtime.offsets["free_threaded"]:
        return "it is a free-threaded build of CPython"
    interpreter = _interpreter(runtime, memory)
    if not interpreter:
        return "its Python is beginning or ending right now: try again"
    (enabled,) = _INT.unpack(_read(memory, interpreter + runtime.offsets["enabled"], _INT.size))
    if enabled != 1:
        return (
            "it was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug: start it "
            "without them"
        )
    for name, what in _NAMESPACES.items():
        if _namespace(pid, name) != _namespace(os.getpid(), name):
            return f"it is in a container with {what} of its own: run this in there"
    if os.readlink(f"/proc/{pid}/root") != os.readlink("/proc/self/root"):
        return "it sees another root folder: run this in there"
    return None


def _namespace(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


class RemoteScript:
    """A script of ours that opens the door of a process from inside. `again` has the next of its
    threads execute it; `close` takes back what no thread has begun. Use it as a context.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self._file = ""
        self._flag = 0  # where the thread that was asked has its flag; 0: none is asked
        self._turns = 0
        self._next = 0.0

    def __enter__(self) -> RemoteScript:
        runtime = _runtime(self._pid, self._memory)
        if runtime is None or _refusal_of(self._pid, runtime, self._memory):
            raise RunError(f"process {self._pid} executes no script any more")
        self._runtime = runtime
        self._file = self._written()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._take_back()
        time.sleep(_BEGUN_S)  # one that has seen the flag before opens the file now
        with contextlib.suppress(OSError):
            os.unlink(self._file)
        os.close(self._memory)

    @property
    def has_begun(self) -> bool:
        """Whether a thread has executed the script."""
        with contextlib.suppress(OSError):
            return bool(self._flag) and not self._is_waiting(self._flag)
        return False

    @property
    def unheard(self) -> str:
        """What to say where nobody has come."""
        if self.has_begun:
            return (
                f"has executed our script, but could not load {PACKAGE} or reach us: let its user "
                "read that folder, or start the program with LAYERSCOPE_AUTOSTART=standby"
            )
        return (
            "does not answer: all its threads are in long calls of native code, wait, or are "
            "stopped. Try again"
        )

    def again(self) -> None:
        """Call it until somebody comes: the next thread's turn, if it is time for it."""
        if time.monotonic() < self._next or self.has_begun:
            return
        self._take_back()
        threads = _threads(self._pid, self._runtime, self._memory)
        if not threads:
            raise OSError("it has no thread of Python any more")
        self._ask(threads[self._turns % len(threads)])
        self._turns += 1
        self._next = time.monotonic() + _TURN_S

    def _ask(self, thread: int) -> None:
        offsets = self._runtime.offsets
        support = thread + offsets["support"]
        flag = support + offsets["pending"]
        if self._is_waiting(flag):
            return  # a script of somebody else
        path = os.fsencode(self._file) + b"\0"
        os.pwrite(self._memory, path, support + offsets["path"])
        self._flag = flag
        os.pwrite(self._memory, _INT.pack(1), flag)
        time.sleep(_BY_ITSELF_S)
        if self._is_waiting(flag):
            breaker = thread + offsets["breaker"]
            (now,) = _read(self._memory, breaker, 1)
            os.pwrite(self._memory, bytes([now | _PLEASE_STOP]), breaker)

    def _is_waiting(self, flag: int) -> bool:
        data = _read(self._memory, flag, _INT.size)
        return any(data)

    def _take_back(self) -> None:
        flag, self._flag = self._flag, 0
        if flag and self._is_waiting(flag):
            os.pwrite(self._memory, _INT.pack(0), flag)

    def _written(self) -> str:
        """The script in a file that only the program's user can read."""
        descriptor, path = tempfile.mkstemp(prefix=f"layerscope-{self._pid}-", suffix=".py")
        try:
            if len(os.fsencode(path)) + 1 > self._runtime.offsets["path_bytes"]:
                raise RunError(f"the path of {path} is too long: set TMPDIR to a shorter one")
            owner = os.stat(f"/proc/{self._pid}")
            if owner.st_uid != os.geteuid():
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            os.write(descriptor, _SCRIPT.format(package=str(PACKAGE), path=path).encode())
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path


# --- What is in its memory ------------------------------------------------------------------------


@contextlib.contextmanager
def _memory(pid: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(memory: int, address: int, size: int) -> bytes:
    """All of it, or OSError."""
    try:
        data = os.pread(memory, size, address)
    except OverflowError as error:
        raise OSError("no address") from error
    if len(data) < size:
        raise OSError("the process has ended")
    return data


def _word(memory: int, address: int) -> int:
    data = _read(memory, address, _WORD.size)
    return int.from_bytes(data, "little")


def _runtime(pid: int, memory: int) -> SpokenRuntime | None:
    """The runtime of its Python; None: it has none that says what it is."""
    for start, size in static_memory(pid):
        data = _read(memory, start, size)
        at = data.find(_COOKIE)
        while at >= 0:
            offsets = data[at : at + _OFFSETS_BYTES]
            if at % _WORD.size == 0 and len(offsets) == _OFFSETS_BYTES:
                words = {
                    name: _WORD.unpack_from(offsets, place)[0] for name, place in _WORDS.items()
                }
                if words["version"] >> 24 == _UNDERSTOOD[0]:
                    return SpokenRuntime(start + at, words)
            at = data.find(_COOKIE, at + 1)
    return None


def _interpreter(runtime: SpokenRuntime, memory: int) -> int:
    """The address of the main interpreter; 0: there is none."""
    at = _word(memory, runtime.address + runtime.offsets["interpreters"])
    for _ in range(_MOST_INTERPRETERS):
        if not at or not _word(memory, at + runtime.offsets["interpreter_id"]):
            break
        at = _word(memory, at + runtime.offsets["interpreter_next"])
    return at


def _threads(pid: int, runtime: SpokenRuntime, memory: int) -> list[int]:
    """Its threads of Python: those that run at this moment, then the main thread, then others."""
    interpreter = _interpreter(runtime, memory)
    if not interpreter:
        return []
    main = _word(memory, interpreter + runtime.offsets["main_thread"])
    at = _word(memory, interpreter + runtime.offsets["threads"])
    ranked: list[tuple[bool, bool, int, int]] = []
    while at and len(ranked) < _MOST_THREADS:
        tid = _word(memory, at + runtime.offsets["native_id"])
        ranked.append((not _is_running(pid, tid), at != main, len(ranked), at))
        at = _word(memory, at + runtime.offsets["thread_next"])
    return [thread for *_, thread in sorted(ranked)]


def _is_running(pid: int, tid: int) -> bool:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{tid}/stat").read_text(errors="replace")
        return text.rpartition(")")[2].split()[0] == "R"
    return False
