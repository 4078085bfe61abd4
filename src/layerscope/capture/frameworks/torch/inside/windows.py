"""Inside the program, run by path beside pytorch.py where the agent cannot record: windows of
PyTorch's own profiler.

A window is short because the profiler keeps every operator in memory, and its end stops the program
while the profiler makes a trace of them. The trace stays as the profiler writes it, beside a line
of windows.jsonl that says when it was recorded. A profiler of the program's own comes first: at its
first use the windows are over, and it finds what it would find without us. Children that the
program forks are left alone. Standard library only.
"""

import _thread
import atexit
import contextlib
import json
import os
import sys
import time

WINDOW_S = 5.0
# Operators that are held take about 200 bytes each. Whatever else the program allocates ends a
# window too.
GROWTH_BYTES = 40 << 20
# A window begins when this many times the seconds have passed that had passed at the end of the
# last one, and this many times the seconds that its end took: many at the start of a run, few later
# on.
SPACING, PRICE = 1.5, 20.0
MOST_BYTES = 512 << 20  # of all traces of the recording
TRACE = "kineto-"
POLL_S, LONGEST_WAIT_S = 0.05, 60.0
# libkineto's messages: above all levels, where PyTorch leaves the level, and what chooses it at the
# first use.
SILENT, AS_USUAL = 100, 4
OLD = "old_profiler"
LEVEL = "KINETO_LOG_LEVEL"
LEVEL_SYMBOL = "_ZN9libkineto6Logger14severityLevel_E"
# What starts a profiler, and where it is called from.
NAMESPACES = (
    "torch._C._autograd",
    "torch.autograd",
    "torch.autograd.profiler",
    "torch.autograd.profiler_legacy",
)
STARTS = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")
FAULTS, is_of_handler = faults  # noqa: F821 - the hook puts it here
# What a build of torch is for, the device that shows such a GPU, the module of torch that uses it.
GPUS = (
    ("cuda", "/dev/nvidiactl", "cuda"),
    ("cuda", "/dev/dxg", "cuda"),
    ("hip", "/dev/kfd", "cuda"),
    ("xpu", "/dev/dri/renderD128", "xpu"),
)


def reading():
    """One moment on the run's clock and on the profiler's, in ns."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return (before + after) // 2, realtime


def resident_bytes():
    """Memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def trace_bytes(raw):
    """What the traces of all processes take."""
    found = (
        (folder, name)
        for folder, _, names in os.walk(raw)
        for name in names
        if name.startswith(TRACE)
    )
    return sum(os.path.getsize(os.path.join(*file)) for file in found)


class Messages:
    """Those of libkineto on the program's stderr: none while we use it, as many as without us
    before and after.
    """

    def __init__(self, library):
        import ctypes

        self.libc = ctypes.CDLL(None)
        self.is_first = True
        try:
            self.level = ctypes.c_int.in_dll(ctypes.CDLL(library), LEVEL_SYMBOL)
        except (OSError, ValueError):
            self.level = ctypes.c_int()  # hidden in this build: the variable has to do

    def without(self, use, *arguments):
        """The result of `use`, which prints nothing."""
        is_first, self.is_first = self.is_first, False
        chosen = LEVEL in os.environ  # by the user
        before, self.level.value = self.level.value, SILENT
        if is_first and not chosen:
            self.libc.setenv(LEVEL.encode(), b"6", 1)
        try:
            return use(*arguments)
        finally:
            if is_first:  # the level comes from the variable, whatever it was before
                before = self.level.value if chosen else AS_USUAL
                if not chosen:
                    self.libc.unsetenv(LEVEL.encode())
            self.level.value = before


class Profiler:
    """PyTorch's, by the functions that its own classes call: those would say to the program that
    one is active.
    """

    def __init__(self, torch):
        self.torch = torch
        self.messages = Messages(
            os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
        )
        self.functions = {
            name: getattr(torch.autograd, name) for name in (*STARTS, "_disable_profiler")
        }
        known = torch._C._profiler
        self.activities = {known.ProfilerActivity.CPU}
        try:
            experimental = known._ExperimentalConfig(profile_all_threads=True, trace_only=True)
        except TypeError:
            # Before 2.13 the end of a window makes objects of its operators too. TypeError again:
            # an older one.
            experimental = known._ExperimentalConfig(profile_all_threads=True)
        arguments = [known.ProfilerState.KINETO, False, False, False, False, False, experimental]
        try:
            self.config = known.ProfilerConfig(*arguments, "")
        except TypeError:
            self.config = known.ProfilerConfig(*arguments)

    def start(self):
        """Record from now on."""
        self.messages.without(self.functions["_prepare_profiler"], self.config, self.activities)
        self.messages.without(self.functions["_enable_profiler"], self.config, self.activities)

    def stop(self):
        """Record no more; what `save` takes."""
        return self.messages.without(self.functions["_disable_profiler"])

    def save(self, result, path):
        """Write the trace of one window."""
        self.messages.without(result.save, path)

    def is_usable(self):
        """False while a GPU is here that the program does not use yet: a profiler would begin it,
        and then children that the program forks could not use it.
        """
        return all(
            not getattr(self.torch.version, build, None)
            or not os.path.exists(device)
            or getattr(self.torch, module).is_initialized()
            for build, device, module in GPUS
        )


class Windows:
    """The windows of this process."""

    def __init__(self, torch, raw, mask):
        self.profiler = None
        self.lock = _thread.allocate_lock()
        self.holder = 0  # the thread that has the lock
        self.over = ""  # why there are no more
        self.opened = None  # the reading at the start of the open window
        # Held until it is time, and while the thread lives.
        self.wakes, self.watches = _thread.allocate_lock(), _thread.allocate_lock()
        self.wakes.acquire()
        self.minded = []  # (module, name, what of ours is there)
        self.count = 0
        begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self.folder = os.path.join(raw, f"{os.uname().nodename}-{os.getpid()}-{begun}")
        self.begun_s = self.next_s = time.monotonic()
        self.limit_bytes = 0
        self.about = {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "tid": _thread.get_native_id(),
            "start_ns": begun,
            "argv": mask(getattr(sys, "orig_argv", sys.argv)),
            "torch": str(torch.__version__),
        }

    # -- one window --------------------------------------------------------------------------------

    def is_too_late(self):
        """Whether the recording has ended, and this process has outlived the program."""
        return os.path.exists(os.path.join(os.path.dirname(self.folder), "session.json"))

    def begin(self):
        """Open a window, if it may be opened here and now."""
        if self.over or self.opened or not self.profiler.is_usable():
            return
        if self.is_too_late():
            self.over = "ended"
            return
        if trace_bytes(os.path.dirname(self.folder)) > MOST_BYTES:
            self.over = "full"
            return
        self.limit_bytes = resident_bytes() + GROWTH_BYTES
        opened = reading()
        self.profiler.start()
        self.opened = opened

    def end(self, why):
        """Close the window that is open, and write it; `why`: exit, fork, memory, profiler or
        time.
        """
        if not self.opened:
            return
        opened, self.opened = self.opened, None
        closed = reading()
        result = self.profiler.stop()
        name = f"{TRACE}{self.count}.json"
        self.count += 1
        path = os.path.join(self.folder, name)
        self.profiler.save(result, path)
        done_s = time.monotonic()
        took_s = done_s - closed[0] / 1e9
        self.next_s = max(self.begun_s + SPACING * (done_s - self.begun_s), done_s + PRICE * took_s)
        self.note(
            {
                "file": name,
                "opened": opened,
                "closed": closed,
                "why": why,
                "cost_ns": round(took_s * 1e9),
            }
        )

    def note(self, line):
        """One more line about this process; nothing stays open."""
        with open(
            os.path.join(self.folder, "windows.jsonl"),
            "a",
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(json.dumps(line) + "\n")

    # -- when --------------------------------------------------------------------------------------

    def guarded(self, work, *arguments):
        """Run `work` alone."""
        if not self.take():
            return
        try:
            self.attempt(work, *arguments)
        finally:
            self.give_back()

    def attempt(self, work, *arguments):
        """Run `work`. A fault of ours ends the windows and nothing else."""
        try:
            work(*arguments)
        except FAULTS as error:
            self.over, self.opened = self.over or "failed", None
            with contextlib.suppress(*FAULTS):
                text = f"{type(error).__name__}: {error}"
                self.note({"over": "failed", "error": text})
            if is_of_handler(error):
                raise

    def take(self):
        """The lock. False in a signal handler of the program that came while this thread has it."""
        if self.holder == _thread.get_ident() or not self.lock.acquire(True, LONGEST_WAIT_S):
            return False
        self.holder = _thread.get_ident()
        return True

    def give_back(self):
        """The lock."""
        self.holder = 0
        self.lock.release()

    def turn(self):
        """Open or close a window if it is time to."""
        now_s = time.monotonic()
        if not self.opened:
            if now_s >= self.next_s:
                self.begin()
        elif now_s >= self.opened[0] / 1e9 + WINDOW_S:
            self.end("time")
        elif resident_bytes() > self.limit_bytes:
            self.end("memory")

    def watch(self):
        """The thread that looks at the time."""
        while not self.over:
            self.wakes.acquire(True, POLL_S)
            self.guarded(self.turn)
        self.watches.release()

    def stop_watching(self):
        """The thread that watches is gone: a profiler that records stacks looks into every
        thread.
        """
        if not self.over or not self.watches.locked():
            return
        with contextlib.suppress(RuntimeError):  # another thread has woken it
            self.wakes.release()
        if self.watches.acquire(True, LONGEST_WAIT_S):
            self.watches.release()

    def leave(self):
        """The program ends."""
        self.over = self.over or "exit"  # first: the thread that watches may be about to begin one
        self.guarded(self.end, "exit")

    def give_way(self):
        """The program uses a profiler of its own."""
        for module, name, ours in self.minded:
            if getattr(module, name, None) is ours:
                setattr(module, name, self.profiler.functions[name])
        if not self.over:
            self.over = "profiler"
            self.end("profiler")
            self.note({"over": "profiler"})

    # -- what tells us -----------------------------------------------------------------------------

    def mind_profilers(self):
        """Have the first start of a profiler go through us. It is prepared through us and enabled
        without, so that a profiler that records stacks never sees one of ours.
        """

        def through_us(original):
            def start(*arguments, **more):
                self.guarded(self.give_way)
                self.stop_watching()
                return original(*arguments, **more)

            return start

        for name in STARTS:
            original = self.profiler.functions[name]
            ours = through_us(original)
            for module in map(sys.modules.get, NAMESPACES):
                if getattr(module, name, None) is original:
                    setattr(module, name, ours)
                    self.minded.append((module, name, ours))

    def mind_forks(self):
        """No window is open when a child is forked, and none opens in it."""

        forking = []

        def before():
            if self.take():
                forking.append(True)
                self.attempt(self.end, "fork")

        def in_parent():
            if forking:
                forking.pop()
                self.give_back()

        def in_child():
            self.over = "fork"
            self.opened = None
            self.holder = 0
            self.lock = _thread.allocate_lock()
            self.watches = _thread.allocate_lock()

        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def watch(raw, torch, mask):
    """Record windows of this process into a folder below `raw`, from now on; what has to be kept.

    `mask` takes what must not be kept out of a command line.
    """
    if os.environ.get("KINETO_USE_DAEMON") or not torch.autograd.kineto_available():
        return None  # somebody outside may start a profiler at any time, or there is none
    windows = Windows(torch, raw, mask)
    if windows.is_too_late():
        return None
    os.makedirs(windows.folder, exist_ok=True)
    windows.note(windows.about)
    try:
        windows.profiler = Profiler(torch)
    except TypeError:
        # It sees one thread, and only that one can stop it: never, while it waits for a thread of
        # the program that starts a profiler of its own. With both active PyTorch 2.5 crashes.
        windows.note({"over": OLD})
        return None
    windows.mind_profilers()
    windows.mind_forks()
    windows.guarded(windows.begin)
    atexit.register(windows.leave)
    windows.watches.acquire()
    _thread.start_new_thread(windows.watch, ())
    return windows
