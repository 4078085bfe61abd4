"""Inside the program, run by path when it imports MXNet: loads the agent and starts recording.

Standard library only; MXNet imports ctypes itself.
"""

import sys
import time

state = {"agent": None}


def part_of(path):
    """What the file at `path` defines, seen from the folder of this one."""
    part = {"__name__": "layerscope_inside_" + path.rpartition("/")[2]}
    path = folder + "/" + path + ".py"  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


def prepare(module):
    """Before MXNet is executed: load the agent, so that it is there when oneDNN is first used."""
    import os

    begin = time.process_time_ns()
    library = os.path.join(os.path.dirname(module.__spec__.origin or ""), "libmxnet.so")
    if not os.path.exists(library):
        return  # somebody else's module of this name
    beginning = part_of("../../../inside/beginning")
    agent = beginning["load"](settings)  # noqa: F821 - the door puts `settings` here
    if agent is None:
        return
    path = os.path.realpath(library).encode("utf-8", "surrogateescape")
    if agent.ls_prepare(settings["socket"].encode(), path, settings["tsc"]):  # noqa: F821
        beginning["tell_refusal"](agent, settings)  # noqa: F821
        return
    state["agent"] = agent
    if "window" in settings:  # noqa: F821
        beginning["ask_for_window"](agent, settings["window"])  # noqa: F821
    if "stacks" in settings:  # noqa: F821
        agent.ls_sampling_start(settings["stacks"]["hz"], settings["stacks"]["timers"])  # noqa: F821
    agent.ls_note_cost(time.process_time_ns() - begin)


def start():
    """After MXNet is executed. False: there is no need to ask again."""
    agent, mxnet = state["agent"], sys.modules.get("mxnet")
    if agent is None or mxnet is None:
        return False
    begin = time.process_time_ns()
    agent.ls_mxnet_start(library_of(mxnet))
    agent.ls_note_cost(time.process_time_ns() - begin)
    return False


def library_of(mxnet):
    """The path of the library that this MXNet has loaded."""
    import os

    return os.fsencode(mxnet.base._LIB._name)


def pause():
    """The program has stopped the profiler."""


def resume():
    """It goes on; called after `start`."""
