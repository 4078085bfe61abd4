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
MOST_OPEN = 64  # profilers of a process, each of which keeps a file open
MOST_PROFILES = 1_000  # of a process
MOST_WRITTEN_BYTES = 256 << 20  # by all profilers of a process together
FAULTS, is_of_handler = faults  # noqa: F821 - the hook puts it here
FORMAT = "onnxruntime"
OWN = (
    b"session_profiled\nthe program profiles a session of ONNX Runtime itself: its nodes are in "
    b"the file that the program writes, and only its runs are here"
)
MANY = (
    b"sessions_unprofiled\nthe program has so many sessions of ONNX Runtime, or so long profiles "
    b"of them, that only the runs of some are recorded, and not their nodes"
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


def asked_of(frame):
    """The providers that the program asks for, as the method has them that creates a session."""
    asked = frame.f_locals.get("providers") if frame.f_code.co_name == "__init__" else None
    names = [one if isinstance(one, str) else one[0] for one in asked or ()]
    return [name for name in names if isinstance(name, str)]


class Profiled:
    """A session whose profiler runs, and the file that says so."""

    def __init__(self, session, number, options):
        self.session = weakref.ref(session)
        self.number = number
        self.options = options
        self.descriptor = None  # of the file that it will write, and which file that is
        self.path = ""  # of that file
        self.is_of_parent = False
        self.about = {"format": FORMAT, "pid": os.getpid(), "number": number}
        self.looks = 0
        self.began_s = time.monotonic()
        self.limit_bytes = 0


class Lent:
    """Options of the program, by which sessions are being created."""

    def __init__(self, options):
        self.options = options
        self.prefix = options.profile_file_prefix
        self.users = 0


class Sessions:
    """The sessions of this process; `settings`: of the recording."""

    def __init__(self, settings, onnxruntime, paths_of, files):
        self.agent = paths_of["recording"](settings["library"])
        self.paths_of = paths_of
        self.onnxruntime = onnxruntime
        self.raw = settings.get("raw", "")
        self.real = os.path.realpath(self.raw)  # which catches what a signal handler raises
        self.pid = os.getpid()
        self.count = 0
        self.files = files
        self.created = {}  # by id of a session that is being created
        self.open = {}  # by id of a session
        self.lent = {}  # by id of options
        self.numbers = {}  # by name of a model
        self.known = {}  # by id of a session what the agent has to forget it by
        self.told = set()
        self.written_bytes = 0  # by profilers that have ended
        self.is_recorded = True  # what begins now
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
        except FAULTS as error:
            if is_of_handler(error):
                raise

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
            if not os.access(self.raw + "/session.json", os.F_OK):  # `exists` catches too much
                self.begin_profile(session)
        except BaseException as error:
            self.begun(session)
            if not isinstance(error, FAULTS) or is_of_handler(error):
                raise

    def begin_profile(self, session):
        """Ask for a profile of `session` by its options. One without a model says that there is no
        profile.
        """
        if not self.files["has_whole_model"](session) or self.has_enough():
            return
        options = session._sess_options
        if options is not None and options.enable_profiling and id(options) not in self.lent:
            self.tell("own", OWN)
            return
        one = Profiled(session, self.count + 1, options or self.onnxruntime.SessionOptions())
        one.about["providers"] = asked_of(self.paths_of["sys"]._getframe(2))
        self.note(one)
        self.count += 1
        self.created[id(session)] = one
        self.lend(one.options)
        session._sess_options = one.options
        one.options.profile_file_prefix = self.stem(one)
        one.options.enable_profiling = True

    def has_enough(self):
        """Whether there are as many profiles as may be: each keeps a descriptor, then a file."""
        for key, one in list(self.open.items()):
            if one.session() is None:  # it has written its profile
                self.open.pop(key, None)
                self.count_written(one)
        is_full = len(self.open) >= MOST_OPEN or self.count >= MOST_PROFILES
        is_full |= self.written_bytes >= MOST_WRITTEN_BYTES
        if is_full:
            self.tell("many", MANY)
        return is_full

    def count_written(self, one):
        """The profile of a session was written."""
        if os.access(one.path, os.F_OK):  # the program may have removed it
            self.written_bytes += os.path.getsize(one.path)

    def tell(self, code, text):
        """Tell the reader of the recording, once."""
        if code not in self.told:
            self.told.add(code)
            self.agent.ls_mark(text, MARK_PROBLEM, 0)

    def lend(self, options):
        """Keep what the program has set: it may create two sessions by the same options at once."""
        lent = self.lent.setdefault(id(options), Lent(options))
        lent.users += 1

    def give_back(self, options):
        """The program finds its options as it left them; its prefix of files."""
        lent = self.lent[id(options)]
        lent.users -= 1
        if not lent.users:
            del self.lent[id(options)]
            options.enable_profiling = False
            options.profile_file_prefix = lent.prefix
        return lent.prefix

    def begun(self, session, outer=None):
        """It has been created, or has not: an exception says why."""
        one = self.created.pop(id(session), None)
        if one is None:
            return
        try:
            prefix = self.give_back(one.options)
            if session._sess is None:
                os.unlink(self.stem(one) + ".profile")
            else:
                self.keep(session, one, prefix)
        except FAULTS as error:
            if is_of_handler(error):
                raise

    def keep(self, session, one, prefix):
        """The profiler of a session runs."""
        known = session._sess_options  # a copy of its own, which the program can ask for
        is_its_own = known.profile_file_prefix == self.stem(one)
        known.enable_profiling = False
        known.profile_file_prefix = prefix
        if not is_its_own:  # two threads changed the same options at the same time
            os.unlink(session._sess.end_profiling())
            os.unlink(self.stem(one) + ".profile")
            return
        one.about["begun_realtime_ns"] = session.get_profiling_start_time_ns()
        one.about["reading"] = reading()
        one.limit_bytes = resident_bytes() + MOST_BYTES
        one.descriptor = self.files["descriptor_of"](self.name_of_files(one))
        if one.descriptor is not None:
            one.path = os.readlink(f"/proc/self/fd/{one.descriptor[0]}")
        self.open[id(session)] = one
        self.note(one)

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
        except FAULTS as error:
            if is_of_handler(error):
                raise

    def stop(self, session, outer=None):
        """The program asks for the profile of a session for which it has asked for none."""
        try:
            one = self.open.get(id(session))
            if one is not None:
                self.end(id(session), one, "full")
        except FAULTS as error:
            if is_of_handler(error):
                raise

    def end(self, key, one, why):
        """Have the profile of one session written; `why`: it is full, or is closed."""
        self.open.pop(key, None)
        session = one.session()
        handle = getattr(session, "_sess", None)
        if handle is None:
            return  # it is gone, and has written it
        if not self.files["is_open"](one.descriptor):  # the program has closed it
            self.files["keep_for_good"](handle)
            return
        begin = time.process_time_ns()
        one.about[why] = reading()
        handle.end_profiling()
        self.count_written(one)
        if not one.is_of_parent:
            self.note(one)
        self.agent.ls_note_cost(time.process_time_ns() - begin)

    def end_all(self):
        """The program ends, or a window closes."""
        for key, one in list(self.open.items()):
            try:
                if not one.is_of_parent:
                    self.end(key, one, "closed")
            except FAULTS as error:
                if is_of_handler(error):
                    raise

    def forget_all(self):
        """In a child: the profiles so far are those of its parent, and so are their files."""
        self.pid = os.getpid()
        self.created.clear()
        for lent in list(self.lent.values()):
            lent.users = 1
            self.give_back(lent.options)
        for one in list(self.open.values()):
            one.is_of_parent = True
            try:
                self.files["write_nowhere"](one.descriptor)
            except FAULTS as error:
                if is_of_handler(error):
                    raise

    def stem(self, one):
        """How the names of the files of a profile begin."""
        return f"{self.raw}/{FORMAT}-{self.pid}-{one.number}"

    def name_of_files(self, one):
        """How the names of those begin that a profiler writes, without links."""
        return self.real + self.stem(one)[len(self.raw) :] + "_"

    def note(self, one):
        """Write what is known of a profile; nothing stays open."""
        with open(self.stem(one) + ".profile", "w", encoding="utf-8") as file:
            json.dump(one.about, file)
