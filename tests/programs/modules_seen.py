"""All that a program can see of how its modules are called: the function, tracebacks, tracers, depth, odd classes."""

import copy
import cProfile
import hashlib
import inspect
import io
import pickle
import pstats
import sys
import threading
import traceback

import quick_torch  # noqa: F401
import torch
from torch import nn

x = torch.ones(2)


class Inner(nn.Module):
    """Raises what it is told to."""

    error = None

    def forward(self, x):
        """Or adds one."""
        if self.error is not None:
            raise self.error
        return x + 1


class Outer(nn.Module):
    """Holds two of them."""

    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.second = nn.Sequential(Inner(), nn.ReLU())

    def forward(self, x):
        """One inside the other."""
        return self.second(self.first(x))


def function():
    """The function that is called for every module."""
    call = nn.Module.__call__
    print(call is nn.Module.__dict__["__call__"], call is nn.Module._wrapped_call_impl, type(call), call.__name__)
    print(inspect.signature(call), hashlib.sha256(inspect.getsource(call).encode()).hexdigest())
    code = call.__code__
    print(hashlib.sha256(code.co_code).hexdigest(), code.co_names, code.co_filename, code.co_firstlineno)
    print(sorted(vars(call)), call.__defaults__, call.__closure__, call.__module__, call.__qualname__)
    print(type(nn.Module().__call__), Outer.__call__ is call, callable(Outer))


def errors():
    """Every kind of exception, and an operator outside after each."""
    model = Outer()

    def refuse(*_):
        raise LookupError("hook")

    for error in (ValueError("e"), KeyboardInterrupt("k"), GeneratorExit("g"), SystemExit(3), StopIteration("s")):
        model.second[0].error = error
        try:
            model(x)
        except BaseException:
            print(traceback.format_exc())
        torch.hypot(x, x)
    model.second[0].error = None
    for register in (model.first.register_forward_pre_hook, model.second.register_forward_hook):
        handle = register(refuse)
        try:
            model(x)
        except LookupError:
            print(traceback.format_exc())
        handle.remove()
        torch.hypot(x, x)
    Inner.error = SystemExit(4)
    there = threading.Thread(target=lambda: model(x))
    there.start()
    there.join()
    Inner.error = None
    torch.hypot(x, x)
    try:
        model(1, 2, 3)
    except TypeError:
        print(traceback.format_exc())
    try:
        nn.Module.__call__()
    except TypeError:
        print(traceback.format_exc())
    print(model(x), sys.exc_info())


def tracers():
    """What sys.setprofile, sys.settrace and cProfile see, for modules that are new and for known ones."""
    for watch in (sys.setprofile, sys.settrace):
        seen = []

        def note(frame, event, _, seen=seen):
            seen.append((event, frame.f_code.co_qualname, frame.f_lineno))
            return note

        model = Outer()
        watch(note)
        model(x)
        model(x)
        nn.Tanh()(x)
        del model
        watch(None)
        print(len(seen), hashlib.sha256(repr(seen).encode()).hexdigest())
        print([event for event in seen if "resolve" in repr(event)])
    profile = cProfile.Profile()
    model = Outer()
    profile.runcall(model, x)
    profile.runcall(model, x)
    stats = pstats.Stats(profile, stream=io.StringIO()).stats
    print(sorted((*key, value[0], value[1]) for key, value in stats.items()))


def depth():
    """How deep modules may call each other."""

    class Deep(nn.Module):
        def forward(self, n):
            reached.append(n)
            return self(n + 1)

    class Deeper(nn.Module):
        def forward(self, n):
            reached.append(n)
            return Deeper()(n + 1)

    for limit in (200, 1000, 3000):
        for kind in (Deep, Deeper):
            reached = []
            sys.setrecursionlimit(limit)
            try:
                kind()(0)
            except RecursionError as error:
                print(limit, kind.__name__, len(reached), error)
    sys.setrecursionlimit(1000)


class Meta(type):
    """A class of classes with a name of its own."""

    def __getattribute__(cls, name):
        if name == "__name__":
            raise AttributeError("no name")
        return super().__getattribute__(name)


class Named(Inner, metaclass=Meta):
    """Its name cannot be read."""


class Slotted(Inner):
    """With slots."""

    __slots__ = ("own",)


class Raising(Inner):
    """Has an attribute for everything, and raises for some."""

    def __getattr__(self, name):
        if name in ("_modules", "original_name", "__wrapped__"):
            raise RuntimeError(name)
        return super().__getattr__(name)


class Equal(Inner):
    """Compares by value and has no hash."""

    __hash__ = None

    def __eq__(self, other):
        raise TypeError("not comparable")

    def __bool__(self):
        raise TypeError("no truth")

    def __len__(self):
        return 0


class Calling(Inner):
    """Has a __call__ of its own."""

    def __call__(self, x):
        return super().__call__(x) + 1


class Liar(Inner):
    """Says that it is something else."""

    @property
    def __class__(self):
        return dict


def odd():
    """Classes that are hard to handle."""
    for kind in (Named, Slotted, Raising, Equal, Calling, Liar):
        model = kind()
        print(type(model).__qualname__, model(x), model(x))
    bare = Outer()
    bare.forward = lambda x: x * 2
    del bare._modules
    print(bare(x))
    odd_children = nn.Sequential(Inner())
    odd_children._modules["x\ny"] = None
    odd_children._modules["\ud800" + "ü" * 2000] = Inner()
    del odd_children._modules["x\ny"]
    print(odd_children(x))
    again = copy.deepcopy(Outer())
    print(again(x), copy.deepcopy(again)(x))
    data = pickle.dumps(again)
    print(hashlib.sha256(data).hexdigest(), pickle.loads(data)(x))
    file = io.BytesIO()
    torch.save(again.state_dict(), file)
    print(hashlib.sha256(file.getvalue()).hexdigest(), sorted(vars(again)), repr(again))


if __name__ == "__main__":
    {"function": function, "errors": errors, "tracers": tracers, "depth": depth, "odd": odd}[sys.argv[1]]()
    nn.Identity()(x)
    if sys.argv[1] == "function":
        Outer()(x)
        function()
