"""Inside the program: has the agent record allocations of tensors and of NumPy's arrays.

Standard library only.
"""

import ctypes
import os
import sys

MARK_PROBLEM = 4  # native/layout.h


def watch(agent, torch):
    """Record tensors from now on, and the arrays of a NumPy that has been imported."""
    agent.ls_python_memory_start()
    tell(agent, b"tensors", agent.ls_torch_memory_start, folder_of(torch))
    watch_numpy(agent)


def watch_numpy(agent):
    """Record the arrays of NumPy, if it has been imported."""
    numpy = sys.modules.get("numpy")
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        extension = getattr(sys.modules.get(name), "__file__", None)
        if extension and numpy is not None:
            file, folder = os.fsencode(extension), folder_of(numpy)
            tell(agent, b"NumPy arrays", agent.ls_numpy_memory_start, file, folder)
            return


def stop(agent):
    """Record neither."""
    agent.ls_torch_memory_stop()
    agent.ls_numpy_memory_stop()
    agent.ls_python_memory_stop()


def folder_of(package):
    """The folder of its Python files."""
    return os.fsencode(os.path.dirname(package.__file__) + "/")


def tell(agent, what, start, *arguments):
    """Say why it does not start, if it does not."""
    why = (ctypes.c_char_p * 2)()
    if start(*arguments, why):
        reason = b"memory_refused\nallocations of " + what + b" are not recorded: "
        agent.ls_mark(reason + b" ".join(why), MARK_PROBLEM, 0)
