"""Inside the program, run by path in the namespace of the hook of a server, which defines `look`:
what all of them do. Standard library only.
"""

import time


def part_of(path):
    """What the file at `path` defines, seen from the folder of this one."""
    part = {"__name__": "layerscope_inside_" + path.rpartition("/")[2]}
    part["faults"] = faults  # noqa: F821 - the door puts `faults`, `folder` and `settings` there
    path = folder + "/../../../inside/" + path  # noqa: F821
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


requests = part_of("requests.py")
requests["routes"] = part_of("routes.py")


def prepare(module):
    """Before it is executed: load the agent."""
    begin = time.process_time_ns()
    if requests["begin_recording"](settings, part_of("beginning.py")):  # noqa: F821
        requests["state"]["agent"].ls_note_cost(time.process_time_ns() - begin)


def start():
    """After it is executed. False: there is no need to ask again."""
    look_again()
    return False


def look_again():
    """Modules may have been imported that answer requests."""
    if requests["state"]["agent"] is not None:
        look(requests)  # noqa: F821 - the hook defines it


def is_refused():
    """Whether it cannot be recorded."""
    return False


def pause():
    """The program has stopped the profiler."""
    requests["state"]["wanted"] = False


def resume():
    """It goes on; called after `start`."""
    requests["state"]["wanted"] = True
