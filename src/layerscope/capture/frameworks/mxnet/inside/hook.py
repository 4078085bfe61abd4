"""Inside the program, run by path when it imports MXNet: loads the agent and starts recording.

Standard library only; MXNet imports ctypes itself.
"""

import sys
import time

# What is looked at once it has been imported too, and by which function.
LATER = {"mxnet.kvstore.base": "start_server"}
MARK_PROBLEM = 4  # native/layout.h
LATE = (
    b"primitives_late\nrecording began when MXNet was there already, and oneDNN has told nothing "
    b"of its primitives since"
)
state = {"agent": None, "calls": None, "blocks": None, "methods": None}
state["refused"] = False  # this build is not understood
state["variables"] = False  # those that the program sets have been told
state["is_late"] = False  # MXNet was there before us: oneDNN may have been used


def part_of(path):
    """What the file at `path` defines, seen from the folder of this one."""
    part = {"__name__": "layerscope_inside_" + path.rpartition("/")[2]}
    part["faults"] = faults  # noqa: F821 - the door puts it here
    path = folder + "/" + path + ".py"  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


def prepare(module):
    """Before MXNet is executed: load the agent, so that it is there when oneDNN is first used."""
    import os

    begin = time.process_time_ns()
    state["is_late"] = hasattr(module, "__version__")
    library = os.path.join(os.path.dirname(module.__spec__.origin or ""), "libmxnet.so")
    if not os.path.exists(library):
        return  # somebody else's module of this name
    beginning = state["beginning"] = part_of("../../../inside/beginning")
    path = os.path.realpath(library).encode("utf-8", "surrogateescape")
    agent = beginning["prepared"](settings, path)  # noqa: F821 - the door puts `settings` here
    if agent is not None:
        state["agent"] = agent
        agent.ls_note_cost(time.process_time_ns() - begin)


def start():
    """After MXNet is executed. False: there is no need to ask again."""
    agent, mxnet = state["agent"], sys.modules.get("mxnet")
    if agent is None or mxnet is None:
        return False
    begin = time.process_time_ns()
    separate(settings.get("separate", False))  # noqa: F821
    code = agent.ls_mxnet_start(library_of(mxnet), int(settings.get("api", True)))  # noqa: F821
    state["refused"] = code == -1
    if code == 0:
        watch_calls(mxnet)
        tell_variables(agent)
    agent.ls_note_cost(time.process_time_ns() - begin)
    return False


def tell_variables(agent):
    """Once, what the program set itself before MXNet read it."""
    if not state["variables"]:
        state["variables"] = True
        state["beginning"]["tell_variables"](agent, settings, environment)  # noqa: F821


def start_server():
    """The import does not return in a server or the scheduler of a distributed store: it works in
    there, and begins behind this module.
    """
    import os

    agent = state["agent"]
    if agent is not None and os.environ.get("DMLC_ROLE") in ("server", "scheduler"):
        agent.ls_mxnet_start(library_of(sys.modules["mxnet"]), int(settings.get("api", True)))  # noqa: F821


def library_of(mxnet):
    """The path of the library that this MXNet has loaded."""
    import os

    return os.fsencode(mxnet.base._LIB._name)


def watch_calls(mxnet):
    """Record the calls of blocks, steps of optimizers and waits for batches."""
    if state["calls"] is None:
        state["calls"] = part_of("calls")
        if settings.get("modules", True):  # noqa: F821
            paths_of = part_of("../../../inside/modules")
            watch = state["calls"]["watch_blocks"]
            state["blocks"] = watch(paths_of, settings["library"], mxnet)  # noqa: F821
        state["calls"]["watch_custom"](settings["library"], mxnet)  # noqa: F821
    if not state["methods"]:
        state["methods"] = state["calls"]["watch_methods"](settings["library"])  # noqa: F821


def is_refused():
    """Whether this MXNet cannot be recorded."""
    return state["refused"]


def separate(is_wanted):
    """Have MXNet execute each operator alone while it is recorded, or as it likes."""
    if state["agent"] is not None:
        state["agent"].ls_mxnet_separate(int(is_wanted))


def pause():
    """The program has stopped the profiler."""
    if state["calls"] is None:
        return
    if state["is_late"] and state["agent"].ls_itt_is_offered():
        state["is_late"] = False  # it is said once
        state["agent"].ls_mark(LATE, MARK_PROBLEM, 0)
    if state["blocks"] is not None:
        state["calls"]["stop_blocks"](state["blocks"])
    state["calls"]["unwatch_methods"](state["methods"])
    state["methods"] = None


def resume():
    """It goes on; called after `start`."""
    if state["blocks"] is not None:
        state["calls"]["start_blocks"](state["blocks"])
