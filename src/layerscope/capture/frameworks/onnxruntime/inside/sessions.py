"""Inside the program, run by path beside hook.py: the sessions of this process, and the profiler of
each.

The agent calls `begin` before a session is created, `begun` behind it, `resolve` at the first run
of one, and `look` behind some runs; no frame of ours is in a traceback of the program. A profiler
keeps its events in memory and cannot begin a second time: it ends when there are many of them.
Standard library only.
"""

import atexit
import json
import os
import time
import weakref

MARK_PROBLEM = 4  # native/layout.h
MOST_RUNS = 4_000  # of a session that are profiled: 0.1 % of a sum is known by then
MOST_BYTES = 48 << 20  # that the memory of the process grows meanwhile: of some 100,000 events
MOST_S = 60.0
FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
FORMAT = "onnxruntime"
OWN = (
    b"session_profiled\nthe program profiles a session of ONNX Runtime itself: its nodes are in "
    b"the file that the program writes, and only its runs are here"
)


def reading():
    """One moment on the run's clock and on that of the profiler, in ns."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return (before + after) // 2, realtime


def resident_bytes():
    """Memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def has_model(session):
    """Whether there is a model to be read."""
    path = getattr(session, "_model_path", None)
    if path:
        return os.path.isfile(path) and os.path.getsize(path) > 0
    return bool(getattr(session, "_model_bytes", None))


class Profiled:
    """A session whose profiler runs, and the file that says so."""

    def __init__(self, session, number, options, own_prefix):
        self.session = weakref.ref(session)
        self.number = number
        self.options = options
        self.own_prefix = own_prefix
        self.about = {"format": FORMAT, "pid": os.getpid(), "number": number}
        self.looks = 0
        self.began_s = time.monotonic()
        self.limit_bytes = 0


class Sessions:
    """The sessions of this process; `settings`: of the recording."""

    def __init__(self, settings, onnxruntime, paths_of):
        self.agent = paths_of["recording"](settings["library"])
        self.paths_of = paths_of
        self.onnxruntime = onnxruntime
        self.raw = settings.get("raw", "")
        self.pid = os.getpid()
        self.count = 0
        self.open = {}  # by id of a session
        self.numbers = {}  # by name of a model
        self.known = {}  # by id of a session what the agent has to forget it by
        self.is_told = False
        own = onnxruntime.__file__.rpartition("/")[0] + "/"
        self.paths = paths_of["Paths"](
            self.agent.ls_module_learn,
            self.agent.ls_module_forget,
            self.agent.ls_module_raised,
            own,
            lambda module: [],
        )
        atexit.register(self.end_all)
        os.register_at_fork(after_in_child=self.forget_all)

    # -- runs --------------------------------------------------------------------------------------

    def resolve(self, session, outer=None):
        """Learn a session that runs for the first time: it is called by its model."""
        try:
            name = self.name_of(session)
            number = self.numbers.setdefault(name, self.paths_of["Numbers"]()).take(session)
            path = name if number == 1 else f"{name}#{number}"
            line = self.paths.line(self.paths_of["sys"]._getframe(1))
            text = "\n".join((path, "InferenceSession", line))
            self.agent.ls_module_learn(id(session), text.encode("utf-8", "backslashreplace"))
            self.known[id(session)] = weakref.ref(session, self.forgetting(id(session)))
        except FAULTS:
            pass

    def forgetting(self, address):
        """What is called when the session at `address` is gone."""
        forget, known = self.agent.ls_module_forget, self.known

        def gone(reference):
            known.pop(address, None)
            forget(address, None)

        return gone

    def name_of(self, session):
        """The name of the file of a model; a dot would part a module from its parts."""
        path = getattr(session, "_model_path", None)
        stem = os.path.basename(os.fspath(path)) if path else "model"
        if isinstance(stem, bytes):
            stem = stem.decode("utf-8", "replace")
        stem = stem.rpartition(".")[0] or stem
        return self.paths_of["cut"](stem.replace(".", "_").replace("#", "_"), 200) or "model"

    # -- profilers ---------------------------------------------------------------------------------

    def begin(self, session, outer=None):
        """A session is about to be created: have it profile itself, unless the program does."""
        try:
            if not os.path.exists(self.raw + "/session.json"):
                self.begin_profile(session)
        except FAULTS:
            pass

    def begin_profile(self, session):
        """Ask for a profile of `session` by its options. One without a model says that there is no
        profile.
        """
        if not has_model(session):
            return
        options = session._sess_options
        if options is None:
            options = session._sess_options = self.onnxruntime.SessionOptions()
        if options.enable_profiling:
            if not self.is_told:
                self.agent.ls_mark(OWN, MARK_PROBLEM, 0)
                self.is_told = True
            return
        self.count += 1
        one = Profiled(session, self.count, options, options.profile_file_prefix)
        self.note(one)
        self.open[id(session)] = one
        options.profile_file_prefix = self.stem(one)
        options.enable_profiling = True

    def begun(self, session, outer=None):
        """It has been created: the program finds its options as it left them."""
        one = self.open.get(id(session))
        if one is None:
            return
        try:
            one.options.enable_profiling = False
            one.options.profile_file_prefix = one.own_prefix
            session._sess_options = one.options
            one.about["begun_realtime_ns"] = session.get_profiling_start_time_ns()
            one.about["reading"] = reading()
            one.limit_bytes = resident_bytes() + MOST_BYTES
            self.note(one)
        except FAULTS:
            pass

    def look(self, session, outer=None):
        """Some runs are over: end the profile of this session if it has become long."""
        one = self.open.get(id(session))
        if one is None:
            return
        try:
            one.looks += 1
            is_long = one.looks * 16 >= MOST_RUNS or time.monotonic() > one.began_s + MOST_S
            if is_long or resident_bytes() > one.limit_bytes:
                self.end(id(session), one, "full")
        except FAULTS:
            pass

    def end(self, key, one, why):
        """Have the profile of one session written; `why`: it is full, or is closed."""
        self.open.pop(key, None)
        session = one.session()
        handle = getattr(session, "_sess", None)
        if handle is None:
            return  # it is gone, and has written it
        begin = time.process_time_ns()
        one.about[why] = reading()
        handle.end_profiling()
        self.note(one)
        self.agent.ls_note_cost(time.process_time_ns() - begin)

    def end_all(self):
        """The program ends, or a window closes."""
        for key, one in list(self.open.items()):
            try:
                self.end(key, one, "closed")
            except FAULTS:
                continue

    def forget_all(self):
        """In a child: the profiles so far are those of its parent."""
        self.open.clear()
        self.pid = os.getpid()

    def stem(self, one):
        """How the names of the files of a profile begin."""
        return f"{self.raw}/{FORMAT}-{self.pid}-{one.number}"

    def note(self, one):
        """Write what is known of a profile; nothing stays open."""
        with open(self.stem(one) + ".profile", "w", encoding="utf-8") as file:
            json.dump(one.about, file)
