"""Inside the program, run by path beside hook.py: has the agent record the calls of blocks, the
steps of optimizers, and the waits for batches. Standard library only.
"""

import sys

MARK_PROBLEM = 4  # native/layout.h
TOO_MANY = (
    b"custom_operators\nthe program has registered more than 256 operators in Python; the code of "
    b"the others is not recorded"
)
told = []
# What an object of ctypes keeps alive lies in these, some levels deep.
KEEPERS, MOST_LEVELS = (dict, list, tuple), 12
MET, MADE, MADE_AGAIN = range(3)  # how an operator in Python is learned (mxnet.h)
STEP, NEXT, ITER, FORWARD, BACKWARD, CREATE, STORE, REGISTER = range(8)  # ls_mxnet_method
# Module, class and method, and what the agent takes it for.
METHODS = (
    ("mxnet.gluon.trainer", "Trainer", "step", STEP),
    ("mxnet.module.module", "Module", "update", STEP),
    ("mxnet.io.io", "DataIter", "__next__", NEXT),
    ("mxnet.gluon.data.dataloader", "_MultiWorkerIter", "__next__", NEXT),
    ("mxnet.gluon.data.dataloader", "_MultiWorkerIterV1", "__next__", NEXT),
    ("mxnet.gluon.data.dataloader", "DataLoader", "__iter__", ITER),
    ("mxnet.gluon.data.dataloader", "DataLoaderV1", "__iter__", ITER),
    ("mxnet.kvstore.kvstore", "KVStore", "__init__", STORE),
)


def children(block):
    """(name, block) of what a block holds; a later version of MXNet keeps weak references."""
    held = object.__getattribute__(block, "__dict__").get("_children") or {}
    found = []
    for name, child in list(held.items()):
        child = child() if type(child).__name__ == "ReferenceType" else child
        if child is not None:
            found.append((str(name), child))
    return found


def watch_blocks(paths_of, library, mxnet):
    """Have the agent record the calls of blocks; `paths_of`: what the file of all frameworks
    defines. None: it cannot, and the recording says why.
    """
    agent = paths_of["recording"](library)
    block = mxnet.gluon.block
    functions = [kind.__dict__.get("__call__") for kind in (block.HybridBlock, block.Block)]
    functions = [function for function in functions if function is not None]
    reason = "".join(map(paths_of["why_not"], functions[:1]))
    if not reason:
        paths = paths_of["Paths"](
            agent.ls_module_learn,
            agent.ls_module_forget,
            agent.ls_module_raised,
            mxnet.__file__.rpartition("/")[0] + "/",
            children,
        )
        watched = agent, functions, paths.resolve
        if start_blocks(watched):
            agent.ls_modules_tell_errors(paths.tell_error)
            return watched
        reason = "this build of Python does not keep functions as CPython does"
    agent.ls_mark(f"modules_refused\n{reason}".encode(), MARK_PROBLEM, 0)
    return None


def start_blocks(watched):
    """Whether calls of blocks are recorded from now on. Where HybridBlock has a function of its
    own, that of Block is called by it, or by blocks that are none.
    """
    agent, functions, resolve = watched
    if agent.ls_modules_start(functions[0], resolve):
        return False
    return len(functions) == 1 or agent.ls_base_modules_start(functions[1], resolve) == 0


def stop_blocks(watched):
    """They are not recorded any more."""
    watched[0].ls_modules_stop()


def watch_methods(library):
    """Put callables of the agent in the place of the methods. Returns what was replaced."""
    import ctypes

    agent = ctypes.PyDLL(library)
    watched = []
    for module, name, method, kind in METHODS:
        owner = getattr(sys.modules.get(module), name, None)
        function = getattr(owner, "__dict__", {}).get(method)
        if kind == STORE and not workers():
            continue
        if type(function) is not type(watch_methods):
            continue
        ours = method_in_c(agent, function, kind)
        if ours is None:
            agent.ls_mark(b"methods_refused\nthis Python makes no methods in C", MARK_PROBLEM, 0)
            break
        setattr(owner, method, ours)
        watched.append((owner, method, function, ours))
    return watched


def method_in_c(agent, function, kind):
    """A callable of the agent that stands for `function`; None: this Python is not understood."""
    import ctypes

    agent.ls_mxnet_method.argtypes = [ctypes.py_object, ctypes.c_int]
    agent.ls_mxnet_method.restype = ctypes.c_void_p
    address = agent.ls_mxnet_method(function, kind)
    if address is None:
        return None
    ours = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ours))  # the new reference is ours by now
    return ours


def unwatch_methods(watched):
    """As it was before, where nobody else has put something there."""
    for owner, method, function, ours in watched:
        if owner.__dict__.get(method) is ours:
            setattr(owner, method, function)


def workers():
    """How many workers a distributed store has of which this process is one; 0: it is the only
    one, or none.
    """
    import os

    count = os.environ.get("DMLC_NUM_WORKER", "")
    is_worker = os.environ.get("DMLC_ROLE") == "worker" and count.isdecimal()
    return int(count) if is_worker and int(count) > 1 else 0


def note_rank(agent, store):
    """The rank that a worker has by its distributed store."""
    kinds, is_of_handler = faults  # noqa: F821 - the hook puts it here
    try:
        agent.ls_note_rank(store.rank, workers())
    except kinds as error:  # it is the program's store that would fail
        if is_of_handler(error):
            raise


def watch_custom(library, mxnet):
    """Record the code of the operators that the program has registered or registers from now on.
    The classes of their properties make them by `create_operator`, and the first one that is made
    tells its class.
    """
    import ctypes
    import weakref

    agent = ctypes.PyDLL(library)
    agent.ls_mxnet_learn_custom.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_int]
    agent.ls_mxnet_watch_custom.argtypes = [ctypes.py_object]
    original = mxnet.operator.register
    names = {}  # of classes of properties
    alive = {}  # by address, the operators that were made

    def watch(owner, method, kind):
        function = owner.__dict__.get(method)
        if type(function) is type(watch):
            setattr(owner, method, method_in_c(agent, function, kind) or function)

    def how_it_is_made(operator):
        """Whether a program gives the same object out again."""
        address = id(operator)
        known = alive.get(address)
        if known is not None and known() is operator:
            return MADE_AGAIN
        alive[address] = weakref.ref(operator, lambda gone: alive.pop(address, None))
        return MADE

    def learn(made, properties, how=None):
        """`properties`, an object of a registered class, has made an operator; or it is a store, or
        a class that the function `made` is about to register.
        """
        if isinstance(properties, type):
            name = variables_of(made).get("reg_name")
            return expect(properties, name) if name is not None else None
        if isinstance(properties, mxnet.kvstore.KVStore) and workers():
            note_rank(agent, properties)
        name = names.get(type(properties))
        if name is not None and isinstance(made, mxnet.operator.CustomOp):
            text = name.encode("utf-8", "backslashreplace")
            how = how_it_is_made(made) if how is None else how
            if agent.ls_mxnet_learn_custom(made, text, how):
                tell_too_many(agent)
            for owner in type(made).__mro__:
                if owner not in (object, mxnet.operator.CustomOp):
                    watch(owner, "forward", FORWARD)
                    watch(owner, "backward", BACKWARD)

    def expect(prop_cls, name):
        """Operators called `name` are made by objects of this class."""
        names[prop_cls] = str(name)
        for owner in prop_cls.__mro__:
            if owner not in (object, mxnet.operator.CustomOpProp):
                watch(owner, "create_operator", CREATE)

    agent.ls_mxnet_watch_custom(learn)
    if type(original) is type(watch):
        mxnet.operator.register = method_in_c(agent, original, REGISTER) or original
    meet_custom(mxnet.operator, expect, learn)


def tell_too_many(agent):
    """Say once that there are more names of operators in Python than are kept."""
    if not told:
        told.append(True)
        agent.ls_mark(TOO_MANY, MARK_PROBLEM, 0)


def meet_custom(operator, expect, learn):
    """Tell of the classes that the program has registered already, and of the operators that they
    have made: MXNet keeps both, with the functions that its library calls for them.
    """
    held = getattr(getattr(operator, "_registry", None), "ref_holder", {})
    made = []
    for kept in list(held.values()):
        if isinstance(kept, operator.CustomOp):
            made.append(kept)
        for variables in variables_behind(kept):
            if isinstance(variables.get("prop_cls"), type) and "reg_name" in variables:
                expect(variables["prop_cls"], variables["reg_name"])
    for kept in made:
        for variables in variables_behind(getattr(kept, "_ref_holder", ())):
            if "op_prop" in variables:
                learn(kept, variables["op_prop"], MET)


def variables_behind(kept):
    """Of each Python function that is called through these objects of ctypes, the variables that it
    has of the functions around it.
    """
    import gc

    found, seen, level = [], set(), [kept]
    for _ in range(MOST_LEVELS):
        below = []
        for one in level:
            kind = type(one)
            if kind is type(variables_behind):
                found.append(variables_of(one))
            elif id(one) not in seen and (kind in KEEPERS or kind.__module__.endswith("ctypes")):
                seen.add(id(one))
                below += gc.get_referents(one)
        level = below
    return found


def variables_of(function):
    """By name what a function has of the functions around it; what is not set yet is left out."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):  # noqa: B905
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found
