"""Inside the program, run by path when it imports toynet. A test puts this file into
`capture/frameworks/toynet/inside`. Standard library only.
"""

import sys

KINDS = {"function": 0, "backward": 1, "optimizer": 3, "loader": 4}  # native/layout.h
state = {"agent": None, "is_listening": False, "is_paused": False}


def prepare(module):
    import ctypes

    agent = ctypes.CDLL(settings["library"])  # noqa: F821 - the door puts `settings` here
    agent.ls_operator_begins.argtypes = [ctypes.c_char_p, ctypes.c_uint32]
    agent.ls_operator_begins.restype = ctypes.c_void_p
    agent.ls_operator_ends.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64]
    agent.ls_operator_ends.restype = None
    if agent.ls_prepare(settings["socket"].encode(), b"", settings["tsc"]) == 0:  # noqa: F821
        state["agent"] = agent


def start():
    if state["agent"] is not None and not state["is_listening"]:
        sys.modules["toynet"].listen(begins, ends)
        state["is_listening"] = True
    return False


def begins(kind, name, sequence):
    if state["is_paused"]:
        return None
    return state["agent"].ls_operator_begins(name.encode(), KINDS[kind])


def ends(context, sequence):
    state["agent"].ls_operator_ends(context, sequence, 0)


def pause():
    state["is_paused"] = True


def resume():
    state["is_paused"] = False
