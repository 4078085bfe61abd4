"""Inside the program, run by path when it imports hypercorn: records the requests that it serves.
Standard library only.
"""

import sys
import time

WRAPPERS = "hypercorn.app_wrappers"
LATER = {WRAPPERS: "look"}


def part_of(path):
    """What the file at `path` defines, seen from the folder of this one."""
    part = {"__name__": "layerscope_inside_" + path.rpartition("/")[2]}
    path = folder + "/../../../inside/" + path  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


requests = part_of("requests.py")


def prepare(module):
    """Before it is executed: load the agent."""
    begin = time.process_time_ns()
    if requests["begin_recording"](settings, part_of("beginning.py")):  # noqa: F821
        requests["state"]["agent"].ls_note_cost(time.process_time_ns() - begin)


def start():
    """After it is executed. False: there is no need to ask again."""
    look()
    return False


def look():
    """The module may have been imported in which an application is called."""
    wrapper = getattr(sys.modules.get(WRAPPERS), "ASGIWrapper", None)
    if wrapper is not None and requests["state"]["agent"] is not None:
        requests["put_in_place"](wrapper, "__call__", around)


def around(original):
    """What stands for the call of an application, inside the task of a request."""

    def __call__(self, scope, receive, send, *more):
        if not requests["is_request"](scope):
            return original(self, scope, receive, send, *more)
        arrived = requests["Arrived"](scope)
        if arrived.handle is None:
            return original(self, scope, receive, send, *more)
        arrived.enter()
        return original(self, scope, receive, arrived.watching(send), *more)

    return __call__


def is_refused():
    """Whether it cannot be recorded."""
    return False


def pause():
    """The program has stopped the profiler."""
    requests["state"]["wanted"] = False


def resume():
    """It goes on; called after `start`."""
    requests["state"]["wanted"] = True
