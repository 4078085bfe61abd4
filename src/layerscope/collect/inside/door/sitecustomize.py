# The door of layerscope into a Python program: found on PYTHONPATH, run by `site` before the program.
# Parses under Python 2.7 and 3.x. It prints nothing, raises nothing of its own, leaves sys.path as it
# was without it, and runs the program's own sitecustomize if there is one.
import sys

SETTINGS = {}


def _install(settings):
    class Loader(object):
        """Stands in for the real loader of `torch` until it has run once."""

        def __init__(self, real, finder):
            self._real = real
            self._finder = finder

        def __getattr__(self, name):
            return getattr(self._real, name)

        def create_module(self, spec):
            return self._real.create_module(spec)

        def exec_module(self, module):
            # What the program sees on the module is the real loader, as without us.
            try:
                module.__spec__.loader = self._real
                module.__loader__ = self._real
            except Exception:
                pass
            self._finder.prepare(module)
            self._real.exec_module(module)
            self._finder.try_start()

    class Finder(object):
        """Watches for `import torch`. Stays until exec: a program may probe first and import later."""

        def __init__(self):
            self.hook = None
            self.pending = False
            self.busy = False

        def find_spec(self, name, path=None, target=None):
            if self.pending and not self.busy:
                self.try_start()
            if name != "torch" or self.busy:
                return None
            self.busy = True
            try:
                for finder in sys.meta_path:
                    find = getattr(finder, "find_spec", None)
                    if finder is self or find is None:
                        continue
                    spec = find(name, path, target)
                    if spec is not None:
                        if hasattr(spec.loader, "exec_module"):
                            spec.loader = Loader(spec.loader, self)
                        return spec
                return None
            finally:
                self.busy = False

        def prepare(self, module):
            try:
                if self.hook is None:
                    hook = {"__name__": "layerscope_inside_pytorch", "settings": settings}
                    path = settings["inside"] + "/pytorch.py"
                    with open(path) as source:
                        exec(compile(source.read(), path, "exec"), hook)
                    self.hook = hook
                self.hook["prepare"](module)
            except Exception:
                self.hook = None

        def try_start(self):
            self.busy = True
            try:
                self.pending = self.hook is not None and bool(self.hook["start"]())
            except Exception:
                self.pending = False
            finally:
                self.busy = False

    if sys.version_info >= (3, 7):
        sys.meta_path.insert(0, Finder())


def _leave():
    # The folder of this file goes from sys.path: the program finds what it would find without us.
    here = __file__.replace("\\", "/").rsplit("/", 1)[0]
    while here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)


try:
    _leave()
    if SETTINGS:
        _install(SETTINGS)
except Exception:
    pass

# The program's own sitecustomize takes this one's place; where there is none, `site` is told so.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
