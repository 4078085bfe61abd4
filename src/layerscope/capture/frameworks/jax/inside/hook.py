"""Inside the program, run by path when it imports jax: has XLA's profiler record segments. Standard
library only.
"""

import sys
import time

state = {"agent": None, "segments": None}


def part_of(path):
    """What the file at `path` defines, seen from the folder of this one."""
    part = {"__name__": "layerscope_inside_" + path.rpartition("/")[2]}
    part["faults"] = faults  # noqa: F821 - the door puts it here
    path = folder + "/" + path + ".py"  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


def prepare(module):
    """Before it is executed: load the agent."""
    begin = time.process_time_ns()
    if not getattr(module.__spec__, "submodule_search_locations", None):
        return  # somebody else's module of this name
    beginning = part_of("../../../inside/beginning")
    agent = beginning["prepared"](settings)  # noqa: F821 - the door puts `settings` here
    if agent is not None:
        state["agent"] = agent
        agent.ls_note_cost(time.process_time_ns() - begin)


def start():
    """After it is executed. False: there is no need to ask again."""
    agent = state["agent"]
    if agent is None or "jax" not in sys.modules or not settings.get("raw"):  # noqa: F821
        return False
    begin = time.process_time_ns()
    if state["segments"] is None:
        segments = part_of("segments")
        hidden = part_of("../../../inside/beginning")["hidden_by"](settings)  # noqa: F821
        arguments = part_of("arguments")["of_lowering"]
        numbers = part_of("pool_threads")["numbers_of_threads"]
        raw = settings["raw"]  # noqa: F821
        state["segments"] = segments["watch"](raw, agent, hidden, arguments, numbers)
    agent.ls_note_cost(time.process_time_ns() - begin)
    return False


def is_refused():
    """Whether it cannot be recorded."""
    return False


def pause():
    """The program has stopped the profiler."""
    if state["segments"] is not None:
        state["segments"].rest()


def resume():
    """It goes on; called after `start`."""
    if state["segments"] is not None:
        state["segments"].go_on()
