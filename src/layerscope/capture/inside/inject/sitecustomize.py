"""The door of layerscope into a Python program: found on PYTHONPATH, run by `site` before the
program.

Parses under Python 2.7 and 3.x. It prints nothing, raises nothing of its own, leaves sys.path as it
was without it, and runs the program's own sitecustomize if there is one.
"""

import sys

SETTINGS = {}
# What lines of ours may raise. An exception of one of these types may be the program's all the
# same: TimeoutError is an OSError.
FAULTS = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def is_of_handler(error):
    """Whether a signal handler of the program has raised it while lines of ours ran: Python hands
    it the frame that it has interrupted.
    """
    trace = getattr(error, "__traceback__", None)
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            given = value if type(value) is tuple else (value,)
            if any(one is interrupted for one in given):
                return True
    return False


def _as_machinery(function):
    # Frames of the import machinery are left out of tracebacks and passed over by warnings; so are
    # these.
    if sys.version_info >= (3, 8):
        function.__code__ = function.__code__.replace(co_filename="<frozen importlib._bootstrap>")
    return function


class _Finder(object):
    """Watches for imports of frameworks. Stays until exec: a program may probe first and import
    later.

    `layerscope.profiler` finds it on sys.meta_path and steers it: one door, whoever opened it.
    """

    is_layerscope_door = True

    def __init__(self, hook_files, before=None):
        from os import environ

        self.settings = SETTINGS
        self.environment = dict(environ)  # before the program can change it
        self.hook_files = hook_files  # by name of a framework the file that records it
        self.before = before  # fills the settings in when a framework comes, where nobody has yet
        self.wanted = True  # False while the program has stopped the profiler
        self.hooks = {}  # by name of a framework what its file defines
        self.later = {}  # by name of a module the function that looks at it once it is imported
        self.pending = set()  # frameworks that do not record yet, because they are tried out
        self.busy = set()  # threads that are in here already

    def find_spec(self, name, path=None, target=None):
        is_watched = name in self.hook_files or (self.wanted and name in self.later)
        if not is_watched and not self.pending:
            return None
        from _thread import get_ident

        thread = get_ident()
        if thread in self.busy:
            return None
        self.busy.add(thread)
        try:
            if self.pending:
                self.try_start()
            return self.find(name, path, target) if is_watched else None
        finally:
            self.busy.discard(thread)

    def find(self, name, path, target):
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                self.watch(name, spec.loader)
                return spec
        return None

    def watch(self, name, loader):
        """Have one call of this loader's exec_module go through us. The program sees its own
        loader.
        """
        if isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return

        # Somebody else may have had the same idea.
        before = getattr(loader, "__dict__", {}).get("exec_module")

        def exec_module(module):
            try:
                del loader.exec_module
                if before is not None:
                    loader.exec_module = before
            except AttributeError:
                pass
            if name in self.hook_files:
                self.prepare(name, module)
            loader.exec_module(module)
            if name in self.hook_files:
                self.start(name)
            else:
                self.look_at(name)

        try:
            loader.exec_module = _as_machinery(exec_module)
        except Exception:
            pass

    def is_chosen(self):
        """Whether this process is of a rank that is recorded; one that is not known to be any rank
        is.
        """
        from os import environ

        chosen = SETTINGS.get("ranks")
        for variable, sizes in SETTINGS["rank_variables"] if chosen else ():
            rank = environ.get(variable, "")
            if rank.isdigit() and any(environ.get(size, "").isdigit() for size in sizes):
                return int(rank) in chosen
        return True

    def prepare(self, name, module):
        """The module of the framework `name` is about to be executed."""
        try:
            if not SETTINGS and self.before is not None:
                self.before()
            if not self.is_chosen():
                return
            if name not in self.hooks:
                path = self.hook_files[name]
                hook = {"__name__": "layerscope_inside_" + name, "settings": SETTINGS}
                hook["folder"] = path.rpartition("/")[0]
                hook["environment"] = self.environment
                hook["faults"] = FAULTS, is_of_handler
                with open(path) as source:
                    exec(compile(source.read(), path, "exec"), hook)
                self.hooks[name] = hook
                for later, function in hook.get("LATER", {}).items():
                    self.later[later] = hook[function]
            self.hooks[name]["prepare"](module)
        except Exception as error:
            self.hooks.pop(name, None)
            self.tell(error)
            if is_of_handler(error):
                raise

    def tell(self, error):
        # By a link: it takes no descriptor and no space.
        from os import getpid, symlink

        if "refusals" in SETTINGS:
            try:
                why = "files %d" % (getattr(error, "errno", None) or 0)
                symlink(why, "%s/refused-%d" % (SETTINGS["refusals"], getpid()))
            except OSError:
                pass

    def look_at(self, name):
        try:
            self.later[name]()
        except Exception as error:
            if is_of_handler(error):
                raise

    def try_start(self):
        """Start what waits for it; `pending` are those that must be asked again."""
        for name in list(self.pending):
            self.start(name)

    def start(self, name):
        try:
            is_pending = self.wanted and name in self.hooks and self.hooks[name]["start"]()
        except Exception as error:
            if is_of_handler(error):
                raise
            is_pending = False
        (self.pending.add if is_pending else self.pending.discard)(name)


class _Library(object):
    """Serves `layerscope` and `layerscope.profiler` to a program whose environment lacks them, and
    nothing else of ours: what reads recordings needs libraries that the program's environment need
    not have.
    """

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] != "layerscope" or parts[1:2] not in ([], ["profiler"]) or len(parts) > 3:
            return None
        from importlib.util import spec_from_file_location

        where = "/".join([SETTINGS["package"]] + parts[1:])
        if len(parts) == 3:
            return spec_from_file_location(name, where + ".py")
        return spec_from_file_location(name, where + "/__init__.py", submodule_search_locations=[])


def open_door(hook_files, before=None):
    """Watch for these frameworks from now on; returns the finder that does."""
    if sys.version_info >= (3, 7):
        _Finder.find_spec = _as_machinery(_Finder.find_spec)
        _Finder.find = _as_machinery(_Finder.find)
    finder = _Finder(hook_files, before)
    sys.meta_path.insert(0, finder)
    return finder


def _install():
    if sys.version_info >= (3, 7):
        open_door(SETTINGS["hooks"])
        _Library.find_spec = _as_machinery(_Library.find_spec)
        sys.meta_path.append(_Library())


def _start_sampling():
    # The agent says that it is no module, after it has done what LAYERSCOPE_AGENT says
    # (native/agent/autostart.c).
    if (
        "stacks" in SETTINGS
        and sys.implementation.name == "cpython"
        and sys.version_info >= (3, 11)
    ):
        from _imp import create_dynamic

        spec = type(sys.__spec__)("layerscope_agent", None, origin=SETTINGS["library"])
        try:
            create_dynamic(spec)
        except ImportError:
            pass


def _leave():
    # The folder of this file goes from sys.path: the program finds what it would find without us.
    here = __file__.replace("\\", "/").rsplit("/", 1)[0]
    while here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)


if __name__ == "sitecustomize":
    try:
        _leave()
        if SETTINGS:
            _install()
            _start_sampling()
    except Exception:
        pass

    # The program's own sitecustomize takes this one's place; where there is none, `site` is told
    # so.
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401
