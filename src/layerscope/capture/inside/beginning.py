"""Inside the program, run by path by the hook of a framework: what all of them do where recording
begins. Standard library only.
"""

import os

MARK_SETTING = 11  # native/layout.h


def load(settings):
    """The agent; None: nobody listens, or it was made for another system than this process sees."""
    import ctypes

    if not settings["socket"]:
        return None
    try:
        agent = ctypes.CDLL(settings["library"])
    except OSError as error:
        if faults[1](error):  # noqa: F821 - the hook puts it here
            raise
        return None
    agent.ls_note_cost.argtypes = [ctypes.c_uint64]  # else what takes seconds is cut to 32 bits
    return agent


def hidden_by(settings):
    """Makes of a function of ours one that profilers and tracers of the program do not see."""
    import ctypes

    make = ctypes.PyDLL(settings["library"]).ls_python_hidden
    make.argtypes = [ctypes.py_object]
    make.restype = ctypes.py_object

    def hidden(function):
        try:
            return make(function)
        except ValueError:  # this Python is not understood
            return function

    return hidden


def ask_for_window(agent, window):
    """Record only `window`, as `RequestedWindow.for_agent` (rawfile/windows.py) gives it. Before
    recording starts, and once: another framework may have asked for it.
    """
    import ctypes

    first, last, every, by_time, mark, *asked = window
    if asked:
        return
    window.append("asked")
    agent.ls_window_set.argtypes = [
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    agent.ls_window_set.restype = agent.ls_window_forks.restype = agent.ls_window_forked.restype = (
        None
    )
    agent.ls_window_expect_marks.restype = None
    agent.ls_window_set(first, last, every, by_time, mark.encode("utf-8", "surrogateescape"))
    if hasattr(os, "register_at_fork") and agent.ls_window_watch_forks():
        os.register_at_fork(
            before=agent.ls_window_forks,
            after_in_parent=lambda: agent.ls_window_forked(0),
            after_in_child=lambda: agent.ls_window_forked(1),
        )


def tell_variables(agent, settings, before):
    """Which variables that libraries read the program set, or took away, itself. Called where the
    framework has been imported, which read them then. `before`: the environment of its start.
    """
    beginnings, names = settings["variables"]
    now = dict(os.environ)
    for name in sorted(set(now) | set(before)):
        is_kept = name in names or name.startswith(tuple(beginnings))
        if is_kept and now.get(name) != before.get(name):
            told = f"{name}={now[name]}" if name in now else f"{name} taken away"
            agent.ls_mark(f"{told}\nvariable".encode("utf-8", "replace"), MARK_SETTING, 0)


def tell_refusal(agent, settings):
    """Nobody else hears of a process that can hand nothing over. By a link: it takes no descriptor
    and no space.
    """
    if "refusals" not in settings:
        return
    import ctypes

    agent.ls_refusal.restype = ctypes.c_char_p
    error = ctypes.c_int()
    call = agent.ls_refusal(ctypes.byref(error)).decode()
    try:
        os.symlink(f"{call} {error.value}", f"{settings['refusals']}/refused-{os.getpid()}")
    except OSError as fault:  # another user, or another root
        if faults[1](fault):  # noqa: F821
            raise


def prepared(settings, library=b""):
    """The agent, ready to record this process; `library`: the one that the hook's framework has.
    None: it cannot, and that has been told.
    """
    agent = load(settings)
    if agent is None:
        return None
    if agent.ls_prepare(settings["socket"].encode(), library, settings["tsc"]):
        tell_refusal(agent, settings)
        return None
    if "window" in settings:
        ask_for_window(agent, settings["window"])
    if "stacks" in settings:
        agent.ls_sampling_start(settings["stacks"]["hz"], settings["stacks"]["timers"])
    return agent
