"""Inside the program, run by path when it imports tensorflow: loads the agent, which records what
libraries tell, and says what is not recorded. Standard library only.
"""

import time

MARK_PROBLEM = 4  # native/layout.h
NOT_RECORDED = (
    b"tensorflow_partly\nof TensorFlow layerscope records what its libraries tell: primitives of "
    b"oneDNN (TF_ENABLE_ONEDNN_OPTS=1), and beside them stacks, waits and counters of the program"
)
state = {"agent": None}


def prepare(module):
    """Before it is executed."""
    begin = time.process_time_ns()
    beginning = {"__name__": "layerscope_inside_beginning"}
    beginning["faults"] = faults  # noqa: F821 - the door puts it here
    path = folder + "/../../../inside/beginning.py"  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), beginning)
    agent = beginning["prepared"](settings)  # noqa: F821 - the door puts `settings` here
    if agent is not None:
        state["agent"] = agent
        agent.ls_note_cost(time.process_time_ns() - begin)


def start():
    """After it is executed. False: there is no need to ask again."""
    if state["agent"] is not None:
        state["agent"].ls_mark(NOT_RECORDED, MARK_PROBLEM, 0)
    return False


def is_refused():
    """Whether it cannot be recorded."""
    return False


def pause():
    """The program has stopped the profiler."""


def resume():
    """It goes on; called after `start`."""
