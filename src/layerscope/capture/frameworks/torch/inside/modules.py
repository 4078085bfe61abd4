"""Inside the program, run by path beside pytorch.py: has the agent record the calls of nn.Module
(`capture/inside/modules.py`). Standard library only.
"""

import sys

MARK_PROBLEM = 4  # native/layout.h


def children(module):
    """(name, module) of what a module holds."""
    held = object.__getattribute__(module, "__dict__").get("_modules")
    if held is None:
        return []
    known = list(held.items())
    return [(name, child) for name, child in known if child is not None]


def watch(paths_of, library, torch):
    """Have the agent record the calls of modules; `paths_of`: what the file of all frameworks
    defines. None: it cannot, and the recording says why.
    """
    agent = paths_of["recording"](library)
    function = torch.nn.Module.__dict__.get("__call__")
    reason = paths_of["why_not"](function)
    if not reason:
        own_folder = torch.__file__.rpartition("/")[0] + "/"
        paths = paths_of["Paths"](
            agent.ls_module_learn,
            agent.ls_module_forget,
            agent.ls_module_raised,
            own_folder,
            children,
        )
        resolve = paths.resolve
        if agent.ls_modules_start(function, resolve) == 0:
            agent.ls_modules_tell_errors(paths.tell_error)
            dynamo = getattr(torch._C, "_dynamo", None)
            set_compiler = getattr(getattr(dynamo, "eval_frame", None), "set_eval_frame", None)
            if set_compiler is not None:
                agent.ls_python_set_compiler(set_compiler, None)
            return agent, function, resolve
        reason = "this build of Python does not keep functions as CPython does"
    agent.ls_mark(f"modules_refused\n{reason}".encode(), MARK_PROBLEM, 0)
    return None


def watch_generate(modules):
    """Have the agent record `generate` of transformers, if the program has it and modules are
    recorded.

    None: there is none yet. What decorates it calls it in a way that reaches the agent, as the
    program itself does not under Python 3.11.
    """
    agent, _, resolve = modules
    mixin = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    function = getattr(mixin, "__dict__", {}).get("generate")
    function = getattr(function, "__wrapped__", function)
    if type(function) is not type(watch):
        return None
    resolve_generate = resolve.__self__.resolve_generate
    agent.ls_generations_start(function, resolve_generate)
    return function, resolve_generate
