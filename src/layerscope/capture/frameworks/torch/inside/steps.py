"""Inside the program, run by path beside pytorch.py where only a window is recorded
(native/agent/windows.c): shows the agent what it cannot see by itself. Standard library only.
"""

import sys

MARK_PROBLEM = 4  # native/layout.h
LATE = (
    b"window_late\nPyTorch was recorded only some time after its import: steps before that are "
    b"not counted"
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
