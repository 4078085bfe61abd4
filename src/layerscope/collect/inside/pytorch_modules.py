"""Inside the program, run by path beside pytorch.py: which module of the network a call belongs to.

The agent sees every call of a module (native/agent/modules.c) and asks `resolve` about a module that it does not
know. The path of a module is that of the first call: the module that the program calls is called by its class, with
a number if several of them live; what it holds follows as `named_modules` has it. Standard library only.
"""

import sys
import weakref

MOST_BYTES = 700  # of a path; a name takes 1 KiB, and class and line follow
MOST_FRAMES = 50
MOST_SEARCHES = 8  # of a module's whole tree for one that was put there after its first call


class Paths:
    """Learns the modules of this process; `learn(address, text)` and `forget(address)` are the agent's."""

    def __init__(self, learn, forget, own_folder):
        self.learn = learn
        self.forget = forget
        self.own_folder = own_folder
        self.paths = {}  # address of a module -> its path
        self.alive = {}  # address of a module -> weak reference, which takes it out of all this again
        self.roots = {}  # class name -> addresses of the roots called by it, None where one is gone
        self.searches = {}  # address of a module -> how often its tree was searched

    def resolve(self, module, outer=None):
        """Learn `module`, which is called for the first time; `outer` is the module whose call it runs in."""
        try:
            path = self.paths.get(id(module)) or self.find(module, outer)
            text = "\n".join((cut(path), class_name(module), self.line(sys._getframe(1))))
            self.learn(id(module), text.encode("utf-8", "backslashreplace"))
        except Exception:  # it is the program's call that would fail
            pass

    def find(self, module, outer):
        """The path of a module that has none yet; its whole tree gets paths."""
        if outer is None or id(outer) not in self.paths:
            path = self.root_name(module)
        else:
            path = self.below(outer, module) or f"{self.paths[id(outer)]}.({class_name(module)})"
        self.add_tree(module, path)
        return path

    def below(self, outer, module):
        """The path of `module` if it is somewhere in the tree of `outer` by now."""
        prefix = self.paths[id(outer)]
        for name, child in children(outer):
            if child is module:
                return f"{prefix}.{name}"
        done = self.searches.get(id(outer), 0)
        if done < MOST_SEARCHES:
            self.searches[id(outer)] = done + 1
            self.add_tree(outer, prefix)
        return self.paths.get(id(module))

    def add_tree(self, module, path):
        """Give `module` and all it holds their paths; a module that was a root of its own gets a place here."""
        waiting = [(path, module)]
        while waiting:
            path, module = waiting.pop()
            known = self.paths.get(id(module))
            was_root = known is not None and "." not in known and "." in path
            if known is None or was_root:
                self.add(module, path)
                if was_root:
                    self.forget(id(module))  # learned anew at its next call
            elif known != path:
                continue  # shared: it keeps its first path, and so does what it holds
            waiting.extend((f"{path}.{name}", child) for name, child in children(module))

    def add(self, module, path):
        """Keep the path of a module for as long as it lives."""
        address = id(module)
        self.paths[address] = path
        if address not in self.alive:

            def gone(_, address=address):
                self.drop(address)

            self.alive[address] = weakref.ref(module, gone)

    def drop(self, address):
        """The module at this address is gone."""
        self.forget(address)
        self.alive.pop(address, None)
        self.searches.pop(address, None)
        path = self.paths.pop(address, "")
        slots = self.roots.get(path.partition("#")[0])
        if slots and address in slots:
            slots[slots.index(address)] = None

    def root_name(self, module):
        """The class, and a number if other modules of that class are roots too. Those that are gone leave theirs."""
        name = class_name(module)
        slots = self.roots.setdefault(name, [])
        if None in slots:
            number = slots.index(None)
            slots[number] = id(module)
        else:
            number = len(slots)
            slots.append(id(module))
        return name if number == 0 else f"{name}#{number + 1}"

    def line(self, frame):
        """file:line of the innermost frame that is not PyTorch's."""
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            file = frame.f_code.co_filename
            if not file.startswith(self.own_folder):
                return f"{cut(file, 200)}:{frame.f_lineno or 0}"
            frame = frame.f_back
        return ""


def children(module):
    """(name, module) of what a module holds, without running code of the program's where that is possible."""
    held = module.__dict__.get("_modules")
    if held is None:
        return []
    return [(name, child) for name, child in list(held.items()) if child is not None]


def class_name(module):
    """The class of a module; of a scripted one, the class it was made from."""
    name = getattr(module, "original_name", None) if "original_name" in dir(type(module)) else None
    return cut(name if isinstance(name, str) else type(module).__name__, 100)


def cut(text, most=MOST_BYTES):
    """`text` in one line and not too long."""
    text = text.replace("\n", " ")
    return text if len(text) <= most else text[: most - 3] + "..."


def watch(library, torch):
    """Have the agent record the calls of modules. False: not with this Python or this torch."""
    import ctypes

    function = torch.nn.Module.__dict__.get("__call__")
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    agent = ctypes.PyDLL(library)  # keeps the GIL: the agent's table of modules is guarded by it
    agent.ls_module_learn.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    agent.ls_module_forget.argtypes = [ctypes.c_void_p]
    agent.ls_modules_start.argtypes = [ctypes.py_object, ctypes.py_object]
    own_folder = torch.__file__.rpartition("/")[0] + "/"
    paths = Paths(agent.ls_module_learn, agent.ls_module_forget, own_folder)
    resolve = paths.resolve
    if type(function) is not type(cut) or agent.ls_modules_start(function, resolve) != 0:
        return None
    return agent, function, resolve
