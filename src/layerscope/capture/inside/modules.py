"""Inside the program, run by path by the hook of a framework: which module of the network a call
belongs to.

The agent sees every call of a module (native/agent/modules.c) and asks `resolve` about a module
that it does not know. The path of a module is that of the first call: the module that the program
calls is called by its class, with a number if several of them live; what it holds follows as
`named_modules` has it. Standard library only.
"""

import functools
import heapq
import sys
import weakref

MOST_BYTES = 700  # of a path; a name takes 1 KiB, and class and line follow
MOST_FRAMES = 50
# native/agent/modules.c: a module's method `generate` is known by the module's address and this.
GENERATE = 8
MOST_MESSAGE = 300  # bytes of what an exception says
MOST_SEARCHES = 8  # of a module's whole tree for one that was put there after its first call
# What Python itself knows of an object: no code of the program's runs, whatever its classes say.
dict_of_class, name_of_class, bases_of = (
    type.__dict__[name].__get__ for name in ("__dict__", "__name__", "__mro__")
)
arguments_of_exception = BaseException.__dict__["args"].__get__
SWEEP_AT = 1000  # modules known before those that are gone are looked for the first time


class Root(weakref.ref):
    """A module that is called by its class, and its number among those of that class."""

    __slots__ = ("number",)


class Numbers:
    """From 1, the lowest that is free. The number of a module that is gone is free again."""

    def __init__(self):
        self.most = 0
        self.free = []  # a heap
        self.holders = {}  # number -> weak reference to the module that has it
        self.gone = []  # references whose module has gone, put here by their callback

    def take(self, module):
        """A number for `module`."""
        while self.gone:
            self.give_back(self.gone.pop().number)
        if not self.free:
            self.most += 1
        number = heapq.heappop(self.free) if self.free else self.most
        root = Root(module, self.gone.append)
        root.number = number
        self.holders[number] = root
        return number

    def give_back(self, number):
        """It is free."""
        if self.holders.pop(number, None) is not None:
            heapq.heappush(self.free, number)


class Paths:
    """Learns the modules of this process; `learn(address, text)`, `forget(address, reference)` and
    `raised(text)` are the agent's. `children(module)`: (name, module) of what a module holds.

    When a module goes, C forgets it at once: no Python code of ours runs in the program's garbage
    collection.
    """

    def __init__(self, learn, forget, raised, own_folder, children):
        self.learn = learn
        self.forget = forget
        self.raised = raised
        self.own_folder = own_folder
        self.children = children
        self.own_files = (own_folder, Paths.resolve.__code__.co_filename)
        self.known = {}  # address of a module -> weak reference to it, its path
        self.roots = {}  # class name -> the numbers of the roots called by it
        self.searches = {}  # address of a module -> how often its tree was searched
        self.sweep_at = SWEEP_AT

    def resolve(self, module, outer=None):
        """Learn `module`, which is called for the first time; `outer` is the module whose call it
        runs in.

        What a signal handler of the program raises meanwhile comes through.
        """
        try:
            path = self.path(module) or self.find(module, outer)
            text = "\n".join(
                (cut(path, MOST_BYTES), class_name(module), self.line(sys._getframe(1)))
            )
            self.learn(id(module), text.encode("utf-8", "backslashreplace"))
        except RecursionError:
            pass
        except Exception as error:  # it is the program's call that would fail
            if self.is_of_program(error):
                raise

    def resolve_generate(self, module, outer=None):
        """Learn the method `generate` of `module`, as `resolve` learns its calls: they are parts of
        it.
        """
        try:
            path = self.path(module) or self.find(module, outer)
            text = "\n".join(
                (
                    cut(path, MOST_BYTES) + ".generate",
                    class_name(module),
                    self.line(sys._getframe(1)),
                )
            )
            self.learn(id(module) + GENERATE, text.encode("utf-8", "backslashreplace"))
        except RecursionError:
            pass
        except Exception as error:  # as above
            if self.is_of_program(error):
                raise

    def tell_error(self, kind, value=None):
        """Give the agent what an exception says that ends a call of the program's; `value` may be a
        text still.
        """
        try:
            said = (value,) if isinstance(value, str) else value
            if isinstance(value, BaseException):
                said = arguments_of_exception(value)
            first = said[0] if isinstance(said, tuple) and said else None
            words = str(first).strip().split("\n", 1)[0] if type(first) in (str, int, float) else ""
            text = name_of_class(kind) + (": " + words if words else "")
            self.raised(cut(text, MOST_MESSAGE).encode("utf-8", "backslashreplace"))
        except RecursionError:
            pass
        except Exception as error:  # as above
            if self.is_of_program(error):
                raise

    def is_of_program(self, error):
        """Whether `error` was raised by code that is neither the framework's nor ours, though we
        call no other.
        """
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(self.own_files):
            trace = trace.tb_next
        return trace is not None

    def path(self, module):
        """The path of a module; None: it has none yet."""
        reference, path = self.known.get(id(module), (None, None))
        return path if reference is not None and reference() is module else None

    def find(self, module, outer):
        """The path of a module that has none yet; its whole tree gets paths."""
        around = None if outer is None else self.path(outer)
        if around is None:
            path = self.root_name(module)
        else:
            path = self.below(outer, around, module) or f"{around}.({class_name(module)})"
        self.add_tree(module, path)
        return path

    def below(self, outer, around, module):
        """The path of `module` if it is somewhere in the tree of `outer`, which is at `around`, by
        now.
        """
        for name, child in self.children(outer):
            if child is module:
                return f"{around}.{name}"
        done = self.searches.get(id(outer), 0)
        if done < MOST_SEARCHES:
            self.searches[id(outer)] = done + 1
            self.add_tree(outer, around)
        return self.path(module)

    def add_tree(self, module, path):
        """Give `module` and all it holds their paths; a module that was a root of its own gets a
        place here.
        """
        waiting = [(path, module, None)]  # the last: the path it had while its parent had another
        while waiting:
            path, module, before = waiting.pop()
            known = self.path(module)
            was_root = known is not None and "." not in known and "." in path
            moves = was_root or (known is not None and known == before)
            if was_root:
                self.free_root(known)
            if moves:
                self.forget(id(module), None)  # learned anew at its next call
            if known is None or moves:
                self.add(module, path)
            elif known != path:
                continue  # shared: it keeps its first path, and so does what it holds
            # The last one goes in first: a module that is held twice gets its first path, as
            # named_modules has it.
            for name, child in reversed(self.children(module)):
                waiting.append((f"{path}.{name}", child, f"{known}.{name}" if moves else None))

    def add(self, module, path):
        """Keep the path of a module for as long as it lives."""
        if len(self.known) >= self.sweep_at:
            self.sweep()
        reference = weakref.ref(module, functools.partial(self.forget, id(module)))
        self.known[id(module)] = reference, path
        self.searches.pop(id(module), None)

    def sweep(self):
        """Leave out the modules that are gone."""
        self.known = {
            address: known for address, known in list(self.known.items()) if known[0]() is not None
        }
        self.searches = {
            address: n for address, n in list(self.searches.items()) if address in self.known
        }
        self.sweep_at = max(SWEEP_AT, 2 * len(self.known))

    def root_name(self, module):
        """The class, and a number if other modules of that class are roots too. Those that are gone
        leave theirs.
        """
        name = class_name(module)
        number = self.roots.setdefault(name, Numbers()).take(module)
        return name if number == 1 else f"{name}#{number}"

    def free_root(self, path):
        """The number of a root that has a place in another module now."""
        name, _, number = path.partition("#")
        if name in self.roots:
            self.roots[name].give_back(int(number or 1))

    def line(self, frame):
        """file:line of the innermost frame that is not the framework's."""
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            file = frame.f_code.co_filename
            if not file.startswith(self.own_folder):
                return f"{cut(file, 180)}:{frame.f_lineno or 0}"
            frame = frame.f_back
        return ""


def class_name(module):
    """The class of a module; of a scripted one, the class it was made from."""
    kind = type(module)
    is_scripted = any("original_name" in dict_of_class(base) for base in bases_of(kind))
    name = module.original_name if is_scripted else None
    return cut(name if isinstance(name, str) else name_of_class(kind), 100)


def cut(text, most):
    """`text` in one line of at most `most` bytes."""
    text = text.replace("\n", " ")
    if len(text) * 4 <= most:
        return text
    coded = text.encode("utf-8", "backslashreplace")
    return text if len(coded) <= most else coded[: most - 3].decode("utf-8", "ignore") + "..."


def recording(library):
    """The agent, for calls with the GIL held: its table of modules is guarded by it."""
    import ctypes

    agent = ctypes.PyDLL(library)
    agent.ls_module_learn.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    agent.ls_module_forget.argtypes = [ctypes.c_void_p, ctypes.py_object]
    agent.ls_module_raised.argtypes = [ctypes.c_char_p]
    agent.ls_modules_tell_errors.argtypes = [ctypes.py_object]
    agent.ls_module_raised.restype = agent.ls_modules_tell_errors.restype = None
    for taking_two in (
        agent.ls_modules_start,
        agent.ls_base_modules_start,
        agent.ls_generations_start,
        agent.ls_python_set_compiler,
    ):
        taking_two.argtypes = [ctypes.py_object, ctypes.py_object]
    agent.ls_python_set_compiler.restype = None
    return agent


def why_not(function):
    """Why calls of modules cannot be recorded with this Python; empty: they may be."""
    if sys.implementation.name != "cpython":
        return f"this Python is {sys.implementation.name}, and only CPython is understood"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python runs without the GIL, which guards what is known of modules"
    if type(function) is not type(why_not):
        return "the function that calls a module is not a Python function here"
    return ""
