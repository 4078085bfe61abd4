"""Inside the program, run by path beside hook.py: runs of sessions that return where they begin,
and call back where they end. Standard library only.
"""

import ctypes

EVERY = 16  # runs, behind which is looked at what the profilers hold

FAULTS, is_of_handler = faults  # noqa: F821 - the hook puts it here


class AsyncRuns:
    """Those of this process; `watched`: its sessions. The agent calls `begin` before a run begins,
    and `fail` where it does not.
    """

    def __init__(self, watched, settings):
        self.watched = watched
        self.count = 0  # that are over
        python = ctypes.PyDLL(settings["library"])
        self.begins, self.ends = python.ls_async_run_begin, python.ls_async_run_end
        self.begins.restype = ctypes.c_uint64
        self.begins.argtypes = [ctypes.c_void_p]
        self.ends.restype = None
        self.ends.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def begin(self, session, callback):
        """The callback, or what is called before it. No frame of ours is on the stack of either."""
        try:
            handle = (ctypes.c_uint64 * 3)()
            if not callable(callback) or not self.watched.is_recorded or not self.begins(handle):
                return callback
            if id(session) not in self.watched.known:
                self.watched.resolve(session)
        except FAULTS as error:
            if is_of_handler(error):
                raise
            return callback
        return AsyncRun(self, session, handle, callback)

    def end(self, session, handle):
        """A run is over; the profile of its session may have become long."""
        self.ends(handle, id(session))
        self.count += 1
        if self.count % EVERY == 0:
            self.watched.look(session)

    def fail(self, run):
        """The method has raised an exception: nothing was run."""
        if isinstance(run, AsyncRun):
            self.ends(run.handle, None)


class AsyncRun:
    """One run: called where it is over, before the callback of the program."""

    __slots__ = ("callback", "handle", "runs", "session")

    def __init__(self, runs, session, handle, callback):
        self.runs = runs
        self.session = session  # it stays until it has run
        self.handle = handle
        self.callback = callback

    def __call__(self):
        """It is over: the program hears of it by what this gives."""
        try:
            self.runs.end(self.session, self.handle)
            self.session = None
        except FAULTS as error:
            if is_of_handler(error):
                raise
        return self.callback
