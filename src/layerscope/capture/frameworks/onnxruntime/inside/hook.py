"""Inside the program, run by path when it imports onnxruntime: records the runs of sessions, and
has each session profile its first ones. Standard library only.
"""

import sys
import time

LATER = {}
MARK_PROBLEM = 4  # native/layout.h
COLLECTION = "onnxruntime.capi.onnxruntime_inference_collection"
# The methods that are a run, by the number that the agent has for them.
RUNS = ("run", "run_with_iobinding", "run_with_ort_values")
CREATION = "_create_inference_session"
END = "end_profiling"
ASYNC, CALLBACK = "run_async", 3  # and where its callback is among the arguments
EVERY = 16  # runs, behind which is looked at what the profilers hold
state = {"agent": None, "watched": None, "problem": False, "methods": {}}


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
    session = getattr(sys.modules.get(COLLECTION), "InferenceSession", None)
    if agent is None or session is None:
        return False
    begin = time.process_time_ns()
    if state["watched"] is None:
        sessions = part_of("sessions")
        parts = part_of("../../../inside/modules"), part_of("files")
        state["watched"] = sessions["Sessions"](settings, sys.modules["onnxruntime"], *parts)  # noqa: F821
    watch(session)
    agent.ls_note_cost(time.process_time_ns() - begin)
    return False


def watch(session):
    """Have the agent record the runs of objects of this class."""
    watched = state["watched"]
    reason = watched.paths_of["why_not"](watch)
    for number, name in enumerate((*RUNS, CREATION, END)):
        if not reason and not stand_for(session, number, name):
            reason = "this Python makes no methods in C"
    if not reason:
        watched.agent.ls_modules_tell_errors(watched.paths.tell_error)
        stand_for_async(session)
    elif not state["problem"]:
        watched.agent.ls_mark(f"modules_refused\n{reason}".encode(), MARK_PROBLEM, 0)
        state["problem"] = True


def stand_for_async(session):
    """The same for the method that returns where a run begins."""
    import ctypes

    watched = state["watched"]
    owners = [kind for kind in session.__mro__ if ASYNC in kind.__dict__]
    if not owners or ASYNC in state["methods"]:
        return
    function = owners[0].__dict__[ASYNC]
    make = watched.agent.ls_async_run_stand_in
    make.restype = ctypes.c_void_p
    make.argtypes = [ctypes.py_object, ctypes.c_int, ctypes.c_char_p, *[ctypes.py_object] * 2]
    runs = part_of("async_runs")["AsyncRuns"](watched, settings)  # noqa: F821
    address = make(function, CALLBACK, b"callback", runs.begin, runs.fail)
    if address is None:
        return
    ours = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ours))
    setattr(owners[0], ASYNC, ours)
    state["methods"][ASYNC] = owners[0], function, ours


def stand_for(session, number, name):
    """Put an object of the agent in the place of a method. False: this Python is not understood."""
    import ctypes

    watched = state["watched"]
    owners = [kind for kind in session.__mro__ if name in kind.__dict__]
    if not owners or name in state["methods"]:
        return True
    function = owners[0].__dict__[name]
    told = (watched.resolve, watched.look, EVERY)
    if name in (CREATION, END):
        if not watched.raw:
            return True
        told = (
            (watched.begin, watched.begun, 0)
            if name == CREATION
            else (watched.stop, watched.look, 0)
        )
    make = watched.agent.ls_run_stand_in
    make.restype = ctypes.c_void_p
    make.argtypes = [ctypes.c_int, *[ctypes.py_object] * 3, ctypes.c_int]
    address = make(number, function, *told)
    if address is None:
        return False
    ours = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ours))  # the new reference is ours by now
    setattr(owners[0], name, ours)
    state["methods"][name] = owners[0], function, ours
    return True


def is_refused():
    """Whether it cannot be recorded."""
    return False


def pause():
    """The program has stopped the profiler, or a window closes."""
    if state["watched"] is not None:
        state["watched"].agent.ls_runs_record(0)
        state["watched"].is_recorded = False
        state["watched"].end_all()


def resume():
    """It goes on; called after `start`."""
    if state["watched"] is not None:
        state["watched"].agent.ls_runs_record(1)
        state["watched"].is_recorded = True
