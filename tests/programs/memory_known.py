"""Allocates in ways whose bytes are known, beside torch.profiler, and is killed in the end.

argv[1]: where the events of torch.profiler go, as JSON: [name of the thread, bytes], of a release negative.
"""

import json
import os
import signal
import sys
import threading

import numpy
import quick_torch  # noqa: F401
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

KIB = 1024
BATCH, WIDTH = 512, 256


def train():
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.ReLU(), torch.nn.Linear(96, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 48)).square().sum().backward()
        optimizer.step()


class Blocks(torch.nn.Module):
    """Blocks that keep one activation each for their backward pass, or, in pairs, none until then."""

    def __init__(self, is_checkpointed):
        super().__init__()
        self.is_checkpointed = is_checkpointed
        pairs = []
        for _ in range(2):
            layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
            pairs.append(torch.nn.Sequential(*layers))
        self.pairs = torch.nn.ModuleList(pairs)

    def forward(self, x):
        for pair in self.pairs:
            x = checkpoint(pair, x, use_reentrant=False) if self.is_checkpointed else pair(x)
        return x


def step_of(model, optimizer, batches):
    optimizer.zero_grad()
    for _ in range(batches):
        model(torch.ones(BATCH, WIDTH)).sum().backward()
    optimizer.step()


def train_twins():
    """Twins that differ in what they keep: a step of each after one that is not looked at."""
    twins = {
        "plain": (False, torch.optim.SGD, 1),
        "checkpointed": (True, torch.optim.SGD, 1),
        "accumulated": (False, torch.optim.SGD, 3),
        "adam": (False, torch.optim.Adam, 1),
    }
    peaks = {}
    for name, (is_checkpointed, make, batches) in twins.items():
        model = Blocks(is_checkpointed)
        optimizer = make(model.parameters(), lr=0.01)
        step_of(model, optimizer, 1)
        profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        with profiler, record_function(name):
            step_of(model, optimizer, batches)
        live, peaks[name] = 0, 0
        for size in events_of(profiler):
            live += size
            peaks[name] = max(peaks[name], live)
    return peaks


def events_of(profiler):
    """Of this thread: torch.profiler knows no other."""
    profiler.export_chrome_trace(sys.argv[1])
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    found = [event for event in events if event["name"] == "[memory]"]
    found.sort(key=lambda event: event["args"]["Ev Idx"])
    # It says of some blocks that were there before that they are released, and of others not.
    live, sizes = set(), []
    for event in found:
        address, size = event["args"]["Addr"], event["args"]["Bytes"]
        if size > 0:
            live.add(address)
            sizes.append(size)
        elif address in live:
            live.remove(address)
            sizes.append(size)
    return sizes


torch.set_num_threads(1)
train()
profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
with profiler, record_function("profiled"):
    train()
with open(sys.argv[1] + ".bytes", "w") as file:
    json.dump({"events": events_of(profiler), "peaks": train_twins()}, file)

# One thread allocates, another releases.
handed = []
maker = threading.Thread(target=lambda: handed.append(torch.empty(11 * KIB)))
maker.start()
maker.join()
dropper = threading.Thread(target=handed.clear)
dropper.start()
dropper.join()

# A child releases what it has from its parent, and allocates itself.
shared = torch.empty(13 * KIB)
child = os.fork()
if not child:
    del shared
    own = torch.empty(17 * KIB)
    del own
    os._exit(0)
os.waitpid(child, 0)

arrays = [numpy.zeros(19 * KIB), numpy.arange(23 * KIB)]
arrays[1].resize(29 * KIB, refcheck=False)
del arrays[0]
live = [torch.empty(31 * KIB) for _ in range(3)]
print("ready", flush=True)
# What the drainer has not taken yet it takes from a process that is gone.
os.kill(os.getpid(), signal.SIGKILL)
