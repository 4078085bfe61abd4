"""A program whose modules are called while it forks, ends, or takes itself apart.

usage: modules_end.py fork|exit|os._exit|shutdown|threads|replaced|interrupted
"""

import os
import signal
import sys
import threading

import quick_torch  # noqa: F401
import torch
from torch import nn

x = torch.ones(2)


class Ends(nn.Module):
    """Does what it is told in its forward pass."""

    def __init__(self, action):
        super().__init__()
        self.action = action
        self.after = nn.ReLU()

    def forward(self, x):
        """Operators before and after."""
        x = torch.hypot(x, x)
        self.action()
        return self.after(x)


class Last(nn.Module):
    """Is called by its own end."""

    def __init__(self):
        super().__init__()
        self.part = nn.Tanh()

    def forward(self, x):
        """New modules at every call."""
        return nn.Sigmoid()(self.part(x))

    def __del__(self):
        self(x)
        Last.count -= 1


def fork():
    """The child leaves the call too."""
    children = []
    model = Ends(lambda: children.append(os.fork()))
    model(x)
    if children == [0]:
        nn.Sequential(nn.Tanh(), nn.ReLU())(x)
        os._exit(0)
    print(os.waitpid(children[0], 0)[1])


def shutdown():
    """Modules that live to the end, in a cycle and in a module's dictionary."""
    Last.count = 3
    globals()["kept"] = Last()
    sys.kept = Last()
    cycle = Last()
    cycle.__dict__["itself"] = cycle
    print(kept(x), sys.kept(x), cycle(x))  # noqa: F821


def threads():
    """Eight at once, each with modules of its own and a shared one."""
    shared = nn.Sequential(nn.Tanh(), nn.ReLU())

    def work():
        own = nn.Sequential(nn.Tanh(), nn.Sequential(nn.ReLU()))
        for _ in range(50):
            own(shared(x))
            nn.Sigmoid()(x)

    all_of_them = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in all_of_them]
    [thread.join() for thread in all_of_them]


def replaced():
    """Somebody else replaces the function, and puts it back."""
    before = nn.Module.__call__
    count = []

    def counting(self, *arguments, **more):
        count.append(type(self).__name__)
        return before(self, *arguments, **more)

    nn.Module.__call__ = counting
    nn.Sequential(nn.Tanh(), nn.ReLU())(x)
    nn.Module.__call__ = before
    nn.Sequential(nn.Tanh(), nn.ReLU())(x)
    print(count)


def interrupted():
    """A signal handler raises while modules are called for the first time."""
    caught = 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for _ in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            while True:
                nn.Identity()(x)
        except KeyboardInterrupt:
            caught += 1
    print(caught)


if __name__ == "__main__":
    word = sys.argv[1]
    if word in ("exit", "os._exit"):
        Ends(lambda: sys.exit(7) if word == "exit" else os._exit(8))(x)
    {"fork": fork, "shutdown": shutdown, "threads": threads, "replaced": replaced, "interrupted": interrupted}[word]()
    torch.hypot(x, x)
