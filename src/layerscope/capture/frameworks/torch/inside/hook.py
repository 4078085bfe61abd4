"""Inside the program, run by path when it imports torch: loads the agent and starts recording.

Standard library only; torch has imported ctypes by itself, or is about to.
"""

import sys
import time

MARK_PROBLEM = 4  # native/layout.h
MARK_SETTING = 11
# What is looked at once it has been imported too, and by which function.
LATER = {
    "transformers.generation.utils": "watch_generate",
    "torch._dynamo": "watch_compilations",
    "numpy": "watch_numpy",
}
state = {
    "agent": None,
    "optimizers": 0,
    "hook": None,
    "modules": None,
    "lines": None,
    "rank_is_known": False,
}
state["generate"] = None
state["compilations"] = None
state["refused"] = False  # the agent cannot record this torch
state["shapes"] = None  # True: they are read; False: they cannot be
state["mkl"] = False
state["memory"] = None  # what watches it
state["variables"] = False  # those that the program sets have been told
state["steps"] = None  # what watches them where only some are recorded
state["is_late"] = state["may_mark_steps"] = False
state["windows"] = None  # those of torch's own profiler, and whether they may be the last resort
state["may_have_windows"] = False


def prepare(module):
    """Before torch is executed: tell the session which library is about to come, so that it can
    probe it.
    """
    import os

    begin = time.process_time_ns()
    library = os.path.join(os.path.dirname(module.__spec__.origin), "lib", "libtorch_cpu.so")
    if not os.path.exists(library):
        return  # somebody else's module of this name
    state["may_have_windows"] = "raw" in settings  # noqa: F821 - the door puts `settings` here
    beginning = state["beginning"] = part_of("../../../inside/beginning")
    agent = beginning["load"](settings)  # noqa: F821
    if agent is None:
        return
    state["may_have_windows"] = False
    code = agent.ls_prepare(
        settings["socket"].encode(),  # noqa: F821
        os.path.realpath(library).encode("utf-8", "surrogateescape"),
        settings["tsc"],  # noqa: F821
    )
    if code == 0:
        state["agent"] = agent
        if "window" in settings and state["steps"] is None:  # noqa: F821
            state["steps"] = part_of("steps")
            beginning["ask_for_window"](agent, settings["window"])  # noqa: F821
        state["may_have_windows"] = "raw" in settings  # noqa: F821
        if "stacks" in settings:  # noqa: F821
            agent.ls_sampling_start(settings["stacks"]["hz"], settings["stacks"]["timers"])  # noqa: F821
        agent.ls_note_cost(time.process_time_ns() - begin)
    else:
        beginning["tell_refusal"](agent, settings)  # noqa: F821


def start():
    """After torch is executed. True: the probe has not answered yet, call again."""
    agent = state["agent"]
    if agent is None:
        watch_windows()
        return False
    begin = time.process_time_ns()
    use_shapes(agent)
    code = agent.ls_torch_start()
    if code == 0:
        tell_variables(agent)
        watch_optimizers(agent)
        watch_modules()
        watch_ranges()
        watch_compilations()
        watch_steps(agent)
        watch_mkl(agent)
        watch_memory(agent)
    elif code < 0:
        watch_windows()
    state["refused"] = code < 0
    agent.ls_note_cost(time.process_time_ns() - begin)
    state["is_late"] |= code == 1
    return code == 1


def tell_variables(agent):
    """Once, what the program set itself before torch read it."""
    if not state["variables"]:
        state["variables"] = True
        state["beginning"]["tell_variables"](agent, settings, environment)  # noqa: F821


def is_refused():
    """Whether this torch cannot be recorded but by windows of its own profiler."""
    return state["refused"] and not state["windows"]


def use_shapes(agent):
    """Have the agent read the shapes of inputs by what was compiled for this build of torch, if
    they are wanted.
    """
    wanted = settings.get("shapes")  # noqa: F821
    if not wanted or state["shapes"] is not None:
        return
    import os

    library = os.path.join(os.path.dirname(sys.modules["torch"].__file__), "lib", "libtorch_cpu.so")
    fits = os.path.realpath(library) == wanted["library"]
    state["shapes"] = fits and agent.ls_shapes_use(os.fsencode(wanted["path"])) == 0
    if not state["shapes"]:
        why = (
            b"does not load in this process"
            if fits
            else b"is for another PyTorch than this process has"
        )
        agent.ls_mark(
            b"shapes_refused\nwhat was compiled to read the shapes of inputs " + why,
            MARK_PROBLEM,
            0,
        )


def part_of(name):
    """What the file `name` beside this one defines."""
    part = {"__name__": "layerscope_inside_" + name}
    part["faults"] = faults  # noqa: F821 - the door puts it here
    path = folder + "/" + name + ".py"  # noqa: F821 - the door puts `folder` here
    with open(path) as source:
        exec(compile(source.read(), path, "exec"), part)
    return part


def watch_modules():
    """Record the calls of nn.Module. Once started it stays, so that compiled code never sees a
    change.
    """
    if state["modules"] is None and settings.get("modules", True):  # noqa: F821
        part = part_of("modules")
        paths_of = part_of("../../../inside/modules")
        state["modules"] = part["watch"](paths_of, settings["library"], sys.modules["torch"])  # noqa: F821
        state["watch_generate"] = part["watch_generate"]
    watch_generate()


def watch_generate():
    """Record what generates text as one call; its passes are parts of it. Called whenever it may
    have come.
    """
    if state["modules"] is not None and state["generate"] is None:
        state["generate"] = state["watch_generate"](state["modules"])


def watch_compilations():
    """Record what torch.compile compiles. Called whenever what does that may have come, and only
    looked at where the program has asked for it.
    """
    dynamo = sys.modules.get("torch._dynamo")
    is_there = hasattr(dynamo, "reset")  # else it is still being imported
    if state["agent"] is None or state["compilations"] is not None or not is_there:
        return
    part = part_of("compilations")
    watched = part["watch"](settings["library"], sys.modules["torch"])  # noqa: F821
    state["compilations"] = part["stop"], watched
    if watched is None:
        why = b"PyTorch before 2.3 does not tell when it compiles"
        state["agent"].ls_mark(b"no_compilations\n" + why, MARK_PROBLEM, 0)


def watch_memory(agent):
    """Record allocations of tensors and of NumPy's arrays, where they are wanted."""
    if settings.get("memory"):  # noqa: F821
        state["memory"] = state["memory"] or part_of("memory")
        state["memory"]["watch"](agent, sys.modules["torch"])


def watch_numpy():
    """NumPy has been imported after torch."""
    if state["memory"] is not None:
        state["memory"]["watch_numpy"](state["agent"])


def pause():
    """The program has stopped the profiler: calls of modules, compilations and allocations are not
    recorded any more.
    """
    if state["memory"] is not None:
        state["memory"]["stop"](state["agent"])
    stop, watched = state["compilations"] or (None, None)
    if watched is not None:
        stop(*watched)
        state["compilations"] = None
    if state["modules"] is not None:
        state["modules"][0].ls_modules_stop()


def resume():
    """It goes on; called after `start`."""
    watch_compilations()
    if state["modules"] is None:
        return
    state["modules"][0].ls_modules_start(*state["modules"][1:])
    if state["generate"] is not None:
        state["modules"][0].ls_generations_start(*state["generate"])
    else:  # it may have been imported meanwhile
        watch_generate()


def watch_mkl(agent):
    """Have MKL write its calls into a file beside the raw ones, where they are wanted."""
    folder = settings.get("mkl")  # noqa: F821
    if folder and not state["mkl"]:
        state["mkl"] = True
        watch = part_of("mkl")["watch"]
        refused = watch(folder, sys.modules["torch"])
        if refused:
            agent.ls_mark("\n".join(refused).encode(), MARK_PROBLEM, 0)


def watch_windows():
    """Record windows of torch's own profiler: the agent cannot record this torch."""
    if state["may_have_windows"] and "torch" in sys.modules:
        state["may_have_windows"] = False
        mask = part_of("../../../../model/secrets")[
            "mask"
        ]  # needs nothing but the standard library
        state["windows"] = part_of("windows")["watch"](
            settings["raw"],  # noqa: F821
            sys.modules["torch"],
            mask,
        )


def watch_steps(agent):
    """Where only some steps are recorded, look at what tells one from the next."""
    if state["steps"] is not None:
        state["steps"]["watch"](agent, settings["library"], state["is_late"])  # noqa: F821
        state["is_late"] = False


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
            if not code.co_filename.startswith(own_folder) and not code.co_filename.endswith(
                "/contextlib.py"
            ):
                line = f"{code.co_filename}:{sys._getframe(1).f_lineno}"
                coded = line.encode("utf-8", "backslashreplace")[-200:]
                agent.ls_line_learn(coded.decode("utf-8", "ignore").encode())
        except RecursionError:
            pass

    if agent.ls_lines_start(function, learn_line) == 0:
        state["lines"] = agent, function, learn_line


def note_rank(agent):
    """The rank that the program gave itself after the start, as a process started by
    torch.multiprocessing does.
    """
    if state["rank_is_known"]:
        return
    distributed = getattr(sys.modules["torch"], "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        agent.ls_note_rank(distributed.get_rank(), distributed.get_world_size())
        state["rank_is_known"] = True


def tell_optimizer(agent, optimizer):
    """How many parameters it has, and how it goes through them."""
    groups = optimizer.param_groups
    count = 0
    for group in groups:
        count += len(group["params"])
    text = f"{type(optimizer).__name__}: {count} parameters"
    for name in ("foreach", "fused") if groups else ():
        value = groups[0].get(name)
        if value is not None:
            text += f", {name}={value}"
    text += "\noptimizer"
    agent.ls_mark(text.encode("utf-8", "replace"), MARK_SETTING, 0)


def watch_optimizers(agent):
    """Number the optimizer instances: two Adams have the same name, a step belongs to one of
    them.
    """
    import weakref

    torch = sys.modules["torch"]
    register = getattr(
        sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None
    )
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if register is None or state["hook"] is not None:
        return
    known = {}  # by id: an optimizer may compare by value, and then it has no hash
    kinds, is_of_handler = faults  # noqa: F821 - the door puts it here
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
                tell_optimizer(agent, optimizer)
            note(number)
            note_rank(agent)
            if state["steps"] is not None and not state["may_mark_steps"]:
                state["may_mark_steps"] = state["steps"]["look_for_marks"](agent)
        except kinds as error:  # it is the program's step that would fail
            if is_of_handler(error):
                raise

    state["hook"] = register(note_optimizer)
