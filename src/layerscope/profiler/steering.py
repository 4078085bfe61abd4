"""What this process knows of its recording: the recorder beside it, the agent inside it, running or
stopped.

One door and one agent in a process, whoever came first: under `layerscope run` they are there
already, and the same calls steer them. No call of the program fails because of us: what cannot be
done is said once as a warning.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import RLock

from layerscope.profiler import starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AUTOSTART = "LAYERSCOPE_AUTOSTART"
PACKAGE = os.path.join(starting.SOURCE, "layerscope")
DEFAULT_FILE = "profile.json"
# An unknown build of a framework is tried out first, once on a machine: 0.12 s.
PROBE_PATIENCE_S = 10.0
PAUSED, RESUMED = 2, 3
MARKER, STEP = 0, 1


def now_ns() -> int:
    """The run's clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


_said: set[str] = set()


def warn(text: str, about: str = "") -> None:
    """Say `text` at the line of the program that called us; once in this process, or once `about`
    something.
    """
    if (about or text) in _said:
        return
    _said.add(about or text)
    import warnings

    depth, frame = 1, sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "layerscope"
    ):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=depth)


class RecordingControl:
    """The one recording of this process. Everything may be called from any thread."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.agent: Any = None
        self.path = ""
        self.running = False
        self.has_run = False
        self.blocks = 0  # `record()` blocks that are open, on any thread
        self.ran_before_blocks = False
        self.operators = True  # False: only what the program records by itself
        self.memory = False  # allocations of tensors are recorded
        self.separate = False  # each operator is executed alone, in a framework that has bulks
        self.since_ns = 0  # statistics count what ended later than this
        self.file = (
            os.path.abspath(DEFAULT_FILE)
            if os.path.isdir(os.curdir)
            else os.path.join("/", DEFAULT_FILE)
        )
        self.file_is_named = False
        self.continuous = False
        self.period_s = 1.0
        self.stem = ""
        self._files: dict[str, int] = {}
        self.unable = False  # it was said why no recorder could be started
        self._door = find_door()
        if self._door is not None:
            self.running = bool(self._door.wanted)
        os.register_at_fork(after_in_child=self._after_fork)

    def adopt(self, door: Any) -> None:
        """A door was opened into this process: what comes through it is recorded from now on."""
        self._door, self.running = door, True

    def _after_fork(self) -> None:
        self.lock = RLock()  # another thread of the parent may have held the old one

    # -- the recorder ------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """How to reach the recorder; empty while there is none."""
        found: dict[str, Any] = self._door.settings if self._door is not None else {}
        return found

    @property
    def excluded(self) -> bool:
        """Whether this is a rank that `layerscope run --ranks` leaves alone."""
        door = self._door
        return door is not None and not door.is_chosen()

    def connect(self, folder: str = "", stem: str = "") -> bool:
        """Have a recorder, started now if there is none. False: it was said why not."""
        with self.lock:
            if self.agent is not None:
                return True
            if self.unable or self.excluded:
                return False
            try:
                if not self.settings and not self.connect_to_door():
                    self._start(folder, stem)
                self._load()
            except (starting.NoRecorder, OSError, AttributeError) as error:
                self.unable = True
                warn(str(error))
                return False
            return True

    def connect_to_door(self) -> bool:
        """Take the door of `layerscope run`, if there is one by now: $LAYERSCOPE_AUTOSTART is
        looked at before it.
        """
        door = find_door()
        if door is None or door is self._door or not door.settings:
            return False
        if self._door in sys.meta_path:
            sys.meta_path.remove(self._door)
        self._door = door
        return True

    def _start(self, folder: str, stem: str) -> None:
        started = starting.start_recorder(folder or os.getcwd(), stem or self.stem)
        settings = started["settings"]
        self.path = started["path"]
        if self._door is None:
            self._door = open_door(settings["hooks"])
        self._door.settings.update(settings)

    def _load(self) -> None:
        import ctypes

        self.use_memory(self.memory)
        agent = ctypes.CDLL(self.settings["library"])
        agent.ls_counter.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        agent.ls_counter.restype = agent.ls_mark.restype = agent.ls_operators_stop.restype = None
        agent.ls_primitives_start.restype = None
        agent.ls_range_begin.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
        agent.ls_range_end.argtypes = [ctypes.c_void_p]
        # Without a framework there is no library to name yet; its import hook names it later.
        self._meet_frameworks()
        code = 0
        if not self._door.hooks:
            code = agent.ls_prepare(self.settings["socket"].encode(), b"", self.settings["tsc"])
        if not code and "window" in self.settings and not self._door.hooks:
            first, last, every, by_time, mark = self.settings["window"][:5]
            agent.ls_window_set.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_int, ctypes.c_char_p]
            agent.ls_window_set(
                first, last, every, by_time, mark.encode("utf-8", "surrogateescape")
            )
        if code:
            raise OSError(
                f"layerscope records nothing: its recorder does not answer ({os.strerror(-code)})"
            )
        self.agent = agent

    def _meet_frameworks(self) -> None:
        """Those that are imported already: the agent knows of them then."""
        for name in self._door.hook_files:
            if name in sys.modules and name not in self._door.hooks:
                self._door.prepare(name, sys.modules[name])

    def ask(self, what: str, **more: Any) -> dict[str, Any] | None:
        """The recorder's answer; None when there is no recorder or it does not answer."""
        if not self.settings or self.excluded:
            return None
        self.tell_refusals()
        try:
            return starting.ask(self.settings["socket"], {"what": what, **more})
        except (OSError, ValueError) as error:
            warn(
                f"layerscope: the recorder does not answer ({error}). What it had taken by then is "
                f"kept in {self.path or 'the recording'}; nothing more is recorded",
                about="the recorder",
            )
            return None

    def where(self) -> str:
        """The folder of the recording; empty while there is none."""
        if not self.path and self.settings:
            self.path = (self.ask("where") or {}).get("path", "")
        return self.path

    # -- running and stopped -----------------------------------------------------------------------

    def run(self, folder: str = "", stem: str = "") -> None:
        """Record from now on."""
        with self.lock:
            if not self.connect(folder, stem):
                return
            if not self.has_run:
                self.since_ns = now_ns()
            elif not self.running:
                self.agent.ls_mark(b"profiler", RESUMED, 0)
            self._files.setdefault(self.file, now_ns())
            self.running = self.has_run = True
            self._door.wanted = self.operators
            if self.operators:
                self._start_operators()
            else:
                self._stop_operators()
            self.name_file()
        self.tell_refusals()

    def tell_refusals(self) -> None:
        """Say which frameworks of this process are not recorded."""
        if self.agent is None or not self._door.wanted:
            return
        for name in self._door.hook_files:
            hook = self._door.hooks.get(name)
            is_refused = "is_refused" in hook and hook["is_refused"]() if hook else False
            if is_refused:
                warn(
                    f"layerscope: this build of {name} cannot be recorded: its operators, modules "
                    "and steps are missing, what the program marks itself is there. For more: "
                    f"layerscope doctor -- {sys.executable or 'python'}",
                    about=name,
                )

    def _start_operators(self) -> None:
        self.agent.ls_primitives_start()
        self.use_separate(self.separate)
        self._meet_frameworks()
        if not self._door.hooks:
            return  # the door starts them when a framework comes
        give_up = time.monotonic() + PROBE_PATIENCE_S
        for name in self._door.hooks:
            self._door.start(name)
        while self._door.pending and time.monotonic() < give_up:
            time.sleep(0.005)
            self._door.try_start()
        for hook in self._door.hooks.values():
            hook["resume"]()

    def use_separate(self, is_wanted: bool) -> None:
        """From now on each operator is executed alone while it is recorded, or not."""
        self.separate = is_wanted
        if not self.settings:
            return
        self._door.settings["separate"] = is_wanted
        for hook in self._door.hooks.values():
            if "separate" in hook:
                hook["separate"](is_wanted)

    def use_memory(self, is_wanted: bool) -> None:
        """When recording starts, allocations of tensors are recorded too, or as `layerscope run`
        was asked.
        """
        self.memory = is_wanted
        if self.settings:
            settings = self._door.settings
            asked = settings.setdefault("memory_asked", settings.get("memory", False))
            settings["memory"] = is_wanted or asked

    def stop(self) -> None:
        """Record nothing from now on; a later `run` goes on in the same recording."""
        with self.lock:
            if not self.running or not self.connect():
                return
            self.tell_refusals()
            self.running = False
            self._stop_operators()
            self.agent.ls_mark(b"profiler", PAUSED, 0)

    def _stop_operators(self) -> None:
        self._door.wanted = False
        self._door.pending.clear()
        self.agent.ls_operators_stop()
        for hook in self._door.hooks.values():
            hook["pause"]()

    def begin_block(self, folder: str, stem: str) -> None:
        """Record from now on, until the last block that began meanwhile has ended."""
        with self.lock:
            ran_before = self.running
            self.run(folder, stem)
            if not self.blocks:
                self.ran_before_blocks = ran_before
            self.blocks += 1

    def end_block(self) -> None:
        """A block has ended."""
        with self.lock:
            self.blocks -= 1
            if not self.blocks and not self.ran_before_blocks:
                self.stop()

    # -- the trace file ----------------------------------------------------------------------------

    def name_file(self) -> None:
        """Tell the recorder which file the trace goes into, if the program named one."""
        if self.running and self.file_is_named and self.settings:
            since_ns = self._files.setdefault(self.file, now_ns())
            self.ask(
                "trace",
                file=self.file,
                since_ns=since_ns,
                now_ns=now_ns(),
                continuous=self.continuous,
                period_s=self.period_s,
            )

    def file_since_ns(self) -> int:
        """From when on what was recorded belongs to the present file."""
        since_ns = now_ns() if self.has_run else 0
        return self._files.setdefault(self.file, since_ns)


def find_door() -> Any:
    """The door into this process, if one was opened; of two the one that leads somewhere."""
    doors: list[Any] = [
        finder for finder in sys.meta_path if getattr(finder, "is_layerscope_door", False)
    ]
    doors = [
        door for door in doors if door.settings.get("socket") != ""
    ]  # behind such a one nobody listens
    return max(doors, key=lambda door: bool(door.settings), default=None)


def known_hooks() -> dict[str, str]:
    """By name of a framework or a server the file that records it (`capture/frameworks`,
    `capture/servers`).
    """
    found = {}
    for kind in ("frameworks", "servers"):
        folder = os.path.join(PACKAGE, "capture", kind)
        for name in os.listdir(folder):
            inside = os.path.join(folder, name, "inside")
            if os.path.isdir(inside):
                found[name] = os.path.join(inside, "hook.py")
    return found


def open_door(hook_files: dict[str, str], before: Any = None) -> Any:
    """Open a door into this process: it watches for imports of these frameworks from now on."""
    file = os.path.join(PACKAGE, "capture", "inside", "inject", "sitecustomize.py")
    namespace: dict[str, Any] = {"__name__": "layerscope_door"}
    with open(file, encoding="utf-8") as source:
        code = compile(source.read(), file, "exec")
    exec(code, namespace)
    return namespace["open_door"](hook_files, before)


steering = RecordingControl()
