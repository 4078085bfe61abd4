"""Inside the program, run by path beside pytorch.py where only a window is recorded
(native/agent/windows.c): tells the agent which, and shows it what it cannot see by itself. Standard
library only.
"""

import os
import sys

MARK_PROBLEM = 4  # native/layout.h
LATE = (
    b"window_late\nPyTorch was recorded only some time after its import: steps before that are "
    b"not counted"
)


def ask(agent, window):
    """Record only `window`, as `RequestedWindow.for_agent` (rawfile/windows.py) gives it. Before
    recording starts.
    """
    import ctypes

    first, last, every, by_time, mark = window
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


def watch(agent, library, is_late):
    """Recording has started; `is_late`: not right after the import of torch."""
    import ctypes

    profiler = sys.modules.get("torch.autograd.profiler")
    function = getattr(profiler, "record_function", object).__dict__.get("__exit__")
    if type(function) is type(watch):
        own = ctypes.PyDLL(library)  # the GIL is kept
        own.ls_window_watch_exits.argtypes = [ctypes.py_object, ctypes.py_object]
        own.ls_window_watch_exits(function, watch)
    if is_late:
        agent.ls_mark(LATE, MARK_PROBLEM, 0)


def look_for_marks(agent):
    """Whether the program may mark its steps itself: it has our library. Asked at the steps of its
    optimizers.
    """
    if "layerscope" not in sys.modules:
        return False
    agent.ls_window_expect_marks()
    return True
