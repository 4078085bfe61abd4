"""Inside the program, run by path beside hook.py: segments of XLA's own profiler, and what JAX
compiles.

The profiler keeps its events in memory until it is stopped, so a segment ends when it is long or
when the process has grown; its file is written and the next one begins. Where that takes little of
the time, the main thread is held up meanwhile, between two calls: then no call is lost. Else the
program goes on, and the files say from when to when nothing was recorded. Where segments cost more
than the recording may, there are pauses between them. The first one begins with
the first compilation behind the start of a backend: before, the program may still choose one. A
profiler of the program's own comes first: at its start the segment ends, and behind a trace that
`jax.profiler` has ended the next one begins. Children that the program forks are left alone.
Standard library only.
"""

import _thread
import atexit
import ctypes
import json
import os
import sys
import time

MARK_PROBLEM = 4  # native/layout.h
SEGMENT_S = 60.0
# CPU time of the program behind its last compilation: then it is known what segments cost.
FIRST_S = 1.0
MOST_FIRST_S = 20.0  # of a program that compiles all the time
MOST_LOAD = 5  # in so many times as much time at most
LEAST_S = 0.5
GROWS = 2  # so many times as long as the last one a segment may be
# That the memory of the process grows in the first segment, in which much may be the program's
# own, and in those behind it.
FIRST_BYTES, MOST_BYTES = 512 << 20, 16 << 20
FILE_BYTES = 4 << 20  # the next segment is as long as one of this size would have been
MOST_HELD_SHARE = 0.02  # so much of the time of the main thread may be taken
MOST_WAITED_NS = 2_000_000_000  # for the main thread to come between two calls
MOST_SHARE = 4  # all segments of a process take this part of what the recording may
USUAL_MOST_BYTES = 2_000_000_000
USUAL_SHARE = 0.05  # of the CPU time of the program, that recording may take
OF_SEGMENTS = 0.3  # the part of it for segments: stacks and the agent take the rest
# To record an event takes about as long as to hand it over when its segment ends.
COST_OF_ENDS = 2
GRACE_S = 8.0  # what may be taken from so much more time is taken at the beginning
MOST_PAUSE_S = 60.0
POLL_S = 0.1
LEAST_POLL_S = 0.05
MOST_TASKS = 2_000  # compilations that are told
MOST_AWAY = 500  # traces of the program's own, behind which ours goes on
FAULTS, is_of_handler = faults  # noqa: F821 - the hook puts it here
FORMAT = "xplane_recorded"
STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
PROFILERS = ("ProfilerSession", "start_server")  # what begins one
OURS = ("__getattr__", "__dir__")  # in the module that has them, in their place
TRACING = "start_trace"  # of JAX, which begins one that it also ends
FULL = (
    b"segments_full\nwhat the profiler of JAX wrote is as large as it may become, from when on "
    b"nothing of XLA is recorded"
)


def options_of(raw):
    """What the user asked for."""
    try:
        with open(raw + "/options.json", encoding="utf-8") as file:
            return dict(json.load(file))
    except FAULTS:
        return {}


def give_memory_back():
    """Memory that is free goes to the system: what the next segment takes is seen then."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes():
    """Memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Segments:
    """The segments of this process, below `raw`; `profiler`: XLA's module of that name."""

    def __init__(self, raw, agent, profiler, bridge, hidden, arguments, numbers, traces=None):
        self.raw, self.agent, self.profiler, self.bridge = raw, agent, profiler, bridge
        self.traces = traces  # of the program's own: what JAX knows of them
        self.has_their_lock = self.is_away = False
        self.away = []  # from when to when the program used a profiler of its own
        self.begin_session = profiler.ProfilerSession
        self.hidden = hidden
        self.arguments_of_lowering, self.numbers_of_threads = arguments, numbers
        self.lowered = {}  # by thread, the arguments of what was lowered last
        self.pid = os.getpid()
        self.holder = 0  # the thread that has the lock
        self.lock = _thread.allocate_lock()
        self.wakes = _thread.allocate_lock()
        self.wakes.acquire()
        self.session = None
        self.count = 0
        self.over = self.resting = self.is_watched = False
        self.begun_s = self.limit_bytes = self.written = 0
        self.since_s = self.since_cpu_s = 0.0  # the beginning of the first segment
        self.compiled_s = self.compiled_cpu_s = 0.0  # the end of the last compilation
        self.compiling = set()  # threads that have lowered something, and compile it
        self.spent_s = 0.0  # CPU time that all segments took
        self.held_s = self.last_end_s = 0.0  # that ends held the main thread up; that one takes
        self.is_worker = False  # of a pool of multiprocessing
        self.has_rank = False  # it has been told
        self.told = {}  # what the file about the segment says
        options = options_of(raw)
        window = options.get("window")  # of steps, of which nobody knows here: all is recorded
        self.has_window = isinstance(window, dict) and window.get("first") is None
        # How many bytes all segments may take, by what the recording may.
        self.most_written = options.get("max_size", USUAL_MOST_BYTES) // MOST_SHARE
        self.share = options.get("profiler_share", USUAL_SHARE)  # None: whatever they do
        self.length_s = min(FIRST_S, SEGMENT_S)
        self.pause_until_s = 0.0
        self.most_bytes = MOST_BYTES
        self.threads = set()  # that XLA's profiler knows by their numbers, in this segment
        self.tasks = []
        self.compilations = 0
        self.of_parent = None  # the session of the parent, which a child must not end

    # -- one segment -------------------------------------------------------------------------------

    def begin(self):
        """Begin a segment, if there may be one."""
        if self.session is not None or self.over or self.resting or os.getpid() != self.pid:
            return
        if self.is_away and not self.comes_back():
            return
        if os.path.exists(self.raw + "/session.json") or not self.bridge.backends_are_initialized():
            return
        self.start_watching()
        if time.monotonic() < self.pause_until_s or not self.is_in_window():
            return
        options = self.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        self.count += 1
        self.told = {"is_whole": True, "begun_realtime_ns": time.time_ns()}
        self.note(self.count, self.told)
        self.session = self.begin_session(options)
        self.begun_s = time.monotonic()
        if not self.since_s:
            self.since_s, self.since_cpu_s = self.begun_s, time.process_time()
        self.note_memory()
        self.threads = set()

    def start_watching(self):
        """Not before there are threads: a fork of a program with one thread warns of nothing."""
        if not self.is_watched:
            self.is_watched = True
            self.mind_pool()
            _thread.start_new_thread(self.hidden(self.watch), ())

    def is_in_window(self):
        """Whether what runs now is asked for."""
        return not self.has_window or bool(self.agent.ls_window_looks())

    def note_memory(self):
        """The segment ends when the process has grown from now on."""
        most_bytes = FIRST_BYTES if self.count == 1 else self.most_bytes
        self.limit_bytes = resident_bytes() + most_bytes

    def mind_pool(self):
        """A worker of multiprocessing ends without `atexit`, and may be ended at any moment: its
        segments are as long as it has lived.
        """
        process = sys.modules.get("multiprocessing.process")
        util = sys.modules.get("multiprocessing.util")
        if process is None or util is None or process.parent_process() is None:
            return
        self.is_worker = True
        self.length_s = 2 * LEAST_S
        util.Finalize(None, self.hidden(self.leave), exitpriority=100)

    def end(self):
        """End the segment that is open, and write it."""
        session, self.session = self.session, None
        if session is None or os.getpid() != self.pid:
            return
        begin, begin_s = time.thread_time_ns(), time.monotonic()
        lasted_s = begin_s - self.begun_s
        self.told["ended_realtime_ns"] = time.time_ns()
        self.note(self.count, self.told)
        content = session.stop()
        self.note_threads(content)
        path = f"{self.stem(self.count)}_segment.pb"
        with open(path + ".part", "wb") as file:
            file.write(content)
        os.rename(path + ".part", path)
        self.plan(len(content), lasted_s)
        self.last_end_s = time.monotonic() - begin_s
        cost_ns = time.thread_time_ns() - begin
        self.agent.ls_note_cost(cost_ns)
        self.keep_budget(lasted_s, COST_OF_ENDS * cost_ns / 1e9)

    def note_threads(self, content):
        """Tell which threads a segment is about, as far as they live."""
        try:
            self.told["threads"] = self.numbers_of_threads(content)
            self.note(self.count, self.told)
        except FAULTS as error:
            if is_of_handler(error):
                raise

    def end_as_asked(self):
        """End the last segment, or the last one before a pause: nothing is missing behind it."""
        self.told["is_asked"] = True
        self.end()

    def plan(self, size, lasted_s):
        """How long the next segment is, behind one of `size` bytes."""
        has_grown = lasted_s < self.length_s and self.count > 1  # before it was time
        of_size_s = lasted_s * FILE_BYTES / max(size, 1)
        longer_s = GROWS * max(lasted_s, LEAST_S)
        self.length_s = min(SEGMENT_S, longer_s, max(LEAST_S, of_size_s))
        if has_grown and size < FILE_BYTES // 2:  # by what is its own
            self.most_bytes *= 2
        self.written += size
        if self.written > self.most_written:
            self.over = True
            self.agent.ls_mark(FULL, MARK_PROBLEM, 0)

    def keep_budget(self, lasted_s, cost_s):
        """Have a shorter segment, or none for a while, where one that lasted so long took so much
        CPU time that all of them would take more than they may.
        """
        if self.count == 1:  # what is told of compilations does not go on
            compiled_s = min(max(self.compiled_s - self.begun_s, 0), lasted_s)
            cost_s *= 1 - compiled_s / max(lasted_s, 1e-3)
            lasted_s -= compiled_s
        self.spent_s += cost_s
        if not self.share:
            return
        passed_s = time.monotonic() - self.since_s
        cpu_s = time.process_time() - self.since_cpu_s
        # Of a program that waits, what we take is not missing.
        earned = OF_SEGMENTS * self.share * max(cpu_s / max(passed_s, 1e-3), 0.5)
        left_s = earned * (passed_s + GRACE_S) - self.spent_s
        rate = cost_s / max(lasted_s, 1e-3)
        length_s = left_s / max(rate, 1e-6)
        if length_s < LEAST_S:
            pause_s = (rate * LEAST_S - left_s) / earned
            self.pause_until_s = time.monotonic() + min(pause_s, MOST_PAUSE_S)
        self.length_s = min(self.length_s, max(length_s, LEAST_S))

    def stem(self, number):
        """How the names of the files of a segment begin."""
        return f"{self.raw}/{FORMAT}-{self.pid}-{number}"

    def note(self, number, about):
        """Write what is known of a segment, of number 0 of the process."""
        told = json.dumps({"format": FORMAT, "pid": self.pid, **about})
        path = self.stem(number) + ".profile"
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(told)
        os.rename(path + ".part", path)

    # -- when --------------------------------------------------------------------------------------

    def guarded(self, *works):
        """Run `works` alone. A fault of ours ends the segments and nothing else. A signal handler
        of the program that runs in the middle of them does not wait for itself.
        """
        if self.holder == _thread.get_ident():
            return
        with self.lock:
            self.holder = _thread.get_ident()
            try:
                for work in works:
                    work()
            except FAULTS as error:
                self.over, self.session = True, None
                if is_of_handler(error):
                    raise
            finally:
                self.holder = 0

    def watch(self):
        """The thread that looks at the time."""
        self.agent.ls_python_hold.argtypes = [ctypes.c_int64]
        while not self.over:
            self.wakes.acquire(True, self.look_in_s())
            if self.session is None:
                self.guarded(self.begin)
            elif not self.is_in_window():
                self.guarded(self.end_as_asked)
            elif self.is_long():
                self.guarded(self.turn, give_memory_back, self.note_memory)

    def turn(self):
        """End the segment and begin the next one, where the main thread is between two calls."""
        is_held = self.may_hold() and self.agent.ls_python_hold(MOST_WAITED_NS)
        begin_s = time.monotonic()
        try:
            self.end()
            self.begin()
        finally:
            if is_held:
                self.agent.ls_python_let_go()
                self.held_s += time.monotonic() - begin_s

    def may_hold(self):
        """Whether the main thread may be held up for as long as an end takes."""
        passed_s = time.monotonic() - self.since_s + GRACE_S
        is_little = self.held_s + self.last_end_s < MOST_HELD_SHARE * passed_s
        return is_little or not self.share

    def look_in_s(self):
        """After how many seconds there may be something to do."""
        until_s = self.pause_until_s
        if self.session is not None:
            until_s = self.begun_s + self.length_s
        return min(POLL_S, max(LEAST_POLL_S, until_s - time.monotonic()))

    def is_long(self):
        """Whether the segment should end."""
        try:
            lasted_s = time.monotonic() - self.begun_s
            if self.count == 1 and lasted_s < MOST_FIRST_S:
                lasted_s = self.since_compiled_s()
            return lasted_s > self.length_s or resident_bytes() > self.limit_bytes
        except FAULTS:
            return True

    def since_compiled_s(self):
        """How long the first segment is without the time in which the program compiles."""
        if self.compiling:
            return 0.0
        passed_s = time.monotonic() - max(self.begun_s, self.compiled_s)
        used_s = time.process_time() - max(self.since_cpu_s, self.compiled_cpu_s)
        return min(passed_s, max(used_s, passed_s / MOST_LOAD))

    def leave(self):
        """The program ends."""
        if os.getpid() == self.pid:
            self.guarded(self.end_as_asked)
            self.over = True

    def rest(self):
        """The program has stopped the profiler of layerscope."""
        self.resting = True
        self.guarded(self.end_as_asked)

    def go_on(self):
        """It goes on."""
        self.resting = False
        self.guarded(self.begin)

    def give_way(self, is_trace):
        """The program starts a profiler of its own; `is_trace`: by what says when it is over."""
        if not self.over and os.getpid() == self.pid:
            self.away.append([time.time_ns(), None])
            self.guarded(self.end, self.note_process)
        self.is_away = True
        self.over |= not is_trace or len(self.away) >= MOST_AWAY

    def comes_back(self):
        """Whether the program's own trace is over, and no other one is about to begin."""
        if not self.traces.lock.acquire(False):
            return False
        self.has_their_lock = True
        try:
            if self.traces.profile_session is None:
                self.is_away = False
                self.away[-1][1] = time.time_ns()
                self.note_process()
                self.mind_profilers()
        finally:
            self.has_their_lock = False
            self.traces.lock.release()
        return not self.is_away

    def forget(self):
        """In a child: the segments are those of its parent."""
        self.lock = _thread.allocate_lock()
        if self.has_their_lock:
            self.traces.lock.release()
        self.of_parent = self.session
        self.over, self.session = True, None

    # -- what tells us -----------------------------------------------------------------------------

    def compiled(self, event, start_s, end_s, **about):
        """JAX tells that a stage of a compilation is over, in the thread that did it."""
        stage = STAGES.get(event)
        if stage is None or self.over or os.getpid() != self.pid:
            return
        try:
            tid = _thread.get_native_id()
            self.note_rank()
            if stage == "lower":
                self.compiling.add(tid)
                self.lowered[tid] = self.arguments_of_lowering()
            if stage == "compile":
                self.compilations += 1
                self.compiling.discard(tid)
                self.compiled_s, self.compiled_cpu_s = time.monotonic(), time.process_time()
                self.agent.ls_counter(b"compilations\nJAX", self.compilations)
                self.guarded(lambda: self.note_task(about, start_s, end_s, tid))
            if self.session is None:
                self.guarded(self.begin)
            if self.session is not None and tid not in self.threads:
                self.threads.add(tid)
                with self.profiler.TraceMe("layerscope thread", tid=tid):
                    pass
        except FAULTS as error:
            if is_of_handler(error):
                raise

    def note_rank(self):
        """The place of this process in a job of jax.distributed, which it gave itself before it
        compiled anything.
        """
        state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        count = getattr(state, "num_processes", None)
        if not self.has_rank and isinstance(count, int) and count > 1:
            self.agent.ls_note_rank(state.process_id, count)
            self.has_rank = True

    def note_task(self, about, start_s, end_s, tid):
        """Keep a compilation."""
        if len(self.tasks) < MOST_TASKS:
            name = "compile " + str(about.get("fun_name", ""))[:200]
            moments = round(start_s * 1e9), round(end_s * 1e9)
            self.tasks.append([name, tid, *moments, self.lowered.pop(tid, None)])
            self.note_process()

    def note_process(self):
        """Write what is known of the process."""
        self.note(0, {"tasks": self.tasks, "away": self.away})

    def mind_profilers(self):
        """Have a profiler of the program's own come first: who looks for what begins one finds it
        when ours has ended.
        """
        module = vars(self.profiler)
        taken = {name: module.pop(name) for name in PROFILERS if name in module}

        def look_up(name):
            if name not in taken:
                raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
            self.give_way(self.traces is not None and is_trace(sys._getframe(1), name))
            module.update(taken)
            for ours in OURS:
                module.pop(ours, None)
            return taken[name]

        module["__getattr__"] = self.hidden(look_up)
        module["__dir__"] = self.hidden(lambda: sorted({*module, *taken}.difference(OURS)))


def is_trace(frame, name):
    """Whether JAX itself begins a trace: others may keep what they find, and use it later."""
    is_of_jax = frame.f_globals.get("__name__") == "jax._src.profiler"
    return is_of_jax and frame.f_code.co_name == TRACING and name == PROFILERS[0]


def watch(raw, agent, hidden, arguments, numbers):
    """Record segments of this process into files in `raw`; what has to be kept. `hidden`: makes
    what calls a function of ours unseen by the program's profilers. `arguments`: gives those of
    what is lowered. `numbers`: gives those of the threads in a segment.
    """
    profiler = getattr(sys.modules.get("jax._src.profiler"), "_profiler", None)
    bridge = sys.modules.get("jax._src.xla_bridge")
    monitoring = sys.modules.get("jax._src.monitoring")
    listen = getattr(monitoring, "register_event_time_span_listener", None)
    is_known = hasattr(profiler, "ProfilerSession") and hasattr(bridge, "backends_are_initialized")
    if listen is None or not is_known:
        agent.ls_mark(b"no_segments\nthis version of JAX is not understood", MARK_PROBLEM, 0)
        return None
    traces = getattr(sys.modules["jax._src.profiler"], "_profile_state", None)
    if not (hasattr(traces, "lock") and hasattr(traces, "profile_session")):
        traces = None
    segments = Segments(raw, agent, profiler, bridge, hidden, arguments, numbers, traces)
    segments.mind_profilers()
    listen(hidden(segments.compiled))
    atexit.register(segments.leave)
    os.register_at_fork(after_in_child=segments.forget)
    return segments
