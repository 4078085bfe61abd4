"""Inside the program, run by path when it imports torch: loads the agent and starts recording.

Standard library only; torch has imported ctypes by itself, or is about to.
"""

import sys
import time

state = {"agent": None, "optimizers": 0, "hook": None, "modules": None, "lines": None, "rank_is_known": False}


def prepare(module):
    """Before torch is executed: tell the session which library is about to come, so that it can probe it."""
    import os

    begin = time.process_time_ns()
    library = os.path.join(os.path.dirname(module.__spec__.origin), "lib", "libtorch_cpu.so")
    if not os.path.exists(library):
        return  # somebody else's module of this name
    import ctypes

    agent = ctypes.CDLL(settings["library"])  # noqa: F821 - the door puts `settings` here
    code = agent.ls_prepare(
        settings["socket"].encode(),  # noqa: F821
        os.path.realpath(library).encode("utf-8", "surrogateescape"),
        settings["tsc"],  # noqa: F821
    )
    if code == 0:
        state["agent"] = agent
        agent.ls_note_cost(time.process_time_ns() - begin)


def start():
    """After torch is executed. True: the probe has not answered yet, call again."""
    agent = state["agent"]
    if agent is None:
        return False
    begin = time.process_time_ns()
    code = agent.ls_operators_start()
    if code == 0:
        watch_optimizers(agent)
        watch_modules()
        watch_ranges()
    agent.ls_note_cost(time.process_time_ns() - begin)
    return code == 1


def watch_modules():
    """Record the calls of nn.Module. Once started it stays, so that compiled code never sees a change."""
    if state["modules"] is None:
        part = {"__name__": "layerscope_inside_pytorch_modules"}
        path = settings["inside"] + "/pytorch_modules.py"  # noqa: F821
        with open(path) as source:
            exec(compile(source.read(), path, "exec"), part)
        state["modules"] = part["watch"](settings["library"], sys.modules["torch"])  # noqa: F821


def watch_ranges():
    """Note the lines of the program that open ranges, by record_function as a context manager."""
    profiler = sys.modules.get("torch.autograd.profiler")
    function = getattr(profiler, "record_function", object).__dict__.get("__enter__")
    if state["lines"] is not None or type(function) is not type(note_rank):
        return
    import ctypes

    agent = ctypes.PyDLL(settings["library"])  # noqa: F821
    agent.ls_lines_start.argtypes = [ctypes.py_object, ctypes.py_object]
    own_folder = sys.modules["torch"].__file__.rpartition("/")[0] + "/"

    def learn_line(_):
        try:
            code = sys._getframe(1).f_code
            # A line of torch's own, or of a decorator, opens the ranges of many others.
            if not code.co_filename.startswith(own_folder) and not code.co_filename.endswith("/contextlib.py"):
                line = f"{code.co_filename}:{sys._getframe(1).f_lineno}"
                coded = line.encode("utf-8", "backslashreplace")[-200:]
                agent.ls_line_learn(coded.decode("utf-8", "ignore").encode())
        except RecursionError:
            pass

    if agent.ls_lines_start(function, learn_line) == 0:
        state["lines"] = agent, function, learn_line


def note_rank(agent):
    """The rank that the program gave itself after the start, as a process started by torch.multiprocessing does."""
    if state["rank_is_known"]:
        return
    distributed = getattr(sys.modules["torch"], "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        agent.ls_note_rank(distributed.get_rank(), distributed.get_world_size())
        state["rank_is_known"] = True


def watch_optimizers(agent):
    """Number the optimizer instances: two Adams have the same name, a step belongs to one of them."""
    import weakref

    torch = sys.modules["torch"]
    register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if register is None or state["hook"] is not None:
        return
    known = {}  # by id: an optimizer may compare by value, and then it has no hash
    note = agent.ls_note_optimizer
    note.restype = None

    def note_optimizer(optimizer, args, kwargs):
        if is_compiling is not None and is_compiling():
            return
        try:
            reference, number = known.get(id(optimizer), (None, 0))
            if reference is None or reference() is not optimizer:
                state["optimizers"] = number = state["optimizers"] + 1
                known[id(optimizer)] = weakref.ref(optimizer), number
            note(number)
            note_rank(agent)
        # It is the program's step that would fail. What else comes is from a signal handler of its own.
        except (AttributeError, RuntimeError, TypeError, ValueError):
            pass

    state["hook"] = register(note_optimizer)
