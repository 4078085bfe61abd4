"""Allocates in ways whose bytes are known, beside torch.profiler, and is killed in the end.

argv[1]: where the events of torch.profiler go, as JSON: [name of the thread, bytes], of a release negative.
"""

import json
import os
import signal
import sys
import threading

import numpy
import torch
from torch.profiler import ProfilerActivity, profile, record_function

KIB = 1024


def train():
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.ReLU(), torch.nn.Linear(96, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 48)).square().sum().backward()
        optimizer.step()


def events_of(profiler):
    """Of this thread: torch.profiler knows no other."""
    profiler.export_chrome_trace(sys.argv[1])
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    found = [event for event in events if event["name"] == "[memory]"]
    found.sort(key=lambda event: event["args"]["Ev Idx"])
    return [event["args"]["Bytes"] for event in found]


torch.set_num_threads(1)
train()
profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
with profiler, record_function("profiled"):
    train()
with open(sys.argv[1] + ".bytes", "w") as file:
    json.dump(events_of(profiler), file)

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
