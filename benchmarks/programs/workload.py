"""A program with a fixed number of steps that says what its steps cost. It knows nothing of
layerscope, except with --toggle: then it takes the recording's callbacks away and puts them back,
block by block, and compares itself.

usage: workload.py tiny|mlp|mlp_loader|cnn|transformer|modules [--steps N] [--threads N]
[--profiler] [--toggle SWITCH] SWITCH: recording, modules, memory, profiler, empty; profiler_shapes
and empty_inputs: those with the inputs of operators; profiler_memory: with memory. Prints one line
of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BATCH = 64
TINY_ROUNDS = 1000  # of three operators each: one step
WARM_UP = 5
STACK = 100  # blocks of three modules each
SETTLING = 200  # operators after each change of the callbacks, before anything is measured

Part = Callable[[], None]


def tiny() -> list[Part]:
    """One part: 3,000 operators on eight floats, hardly more than the framework's own overhead."""
    x, b = torch.rand(8), torch.full((8,), 1e-3)

    def loop() -> None:
        y = x
        for _ in range(TINY_ROUNDS):
            y = (y + b) * b - b

    return [loop]


def perceptron() -> list[Part]:
    """One part: learn from a batch of 256 that is in memory already, 784-512-256-10."""
    from torch import nn

    torch.manual_seed(1)
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    images, labels = torch.rand(256, 784), torch.randint(0, 10, (256,))

    def learn() -> None:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return [learn]


def small_modules() -> list[Part]:
    """One part: forward through a stack of blocks that do next to nothing."""
    sys.path.insert(0, str(EXAMPLES))
    from many_small_modules import BATCH, WIDTH, Stack

    torch.manual_seed(1)
    stack, x = Stack(STACK), torch.rand(BATCH, WIDTH)

    def forward() -> None:
        with torch.no_grad():
            stack(x)

    return [forward]


def network(name: str) -> list[Part]:
    """mlp_loader and cnn, in two parts: read a batch as the example does, and learn from it."""
    sys.path.insert(0, str(EXAMPLES))
    from mnist_data import Mnist, default_folder, prepare
    from torch import nn
    from torch.utils.data import DataLoader

    torch.manual_seed(1)
    loader = DataLoader(
        Mnist(prepare(default_folder()), "train"), BATCH, shuffle=True, drop_last=True
    )
    if name == "cnn":
        from mnist_cnn import Net

        model: Any = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    else:
        layers = [
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        ]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    batches = endless(loader)
    batch: list[Any] = [None]

    def load() -> None:
        batch[0] = next(batches)

    def learn() -> None:
        images, labels = batch[0]
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return [load, learn]


def transformer() -> list[Part]:
    """One part: learn from a batch of sentences that is in memory already, as the example does."""
    sys.path.insert(0, str(EXAMPLES))
    from torch import nn
    from transformer import LETTERS, Transformer, loss_of

    torch.manual_seed(1)
    model = Transformer(layers=2, width=128, heads=4, length=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    sentences = torch.randint(LETTERS, (32, 65))

    def learn() -> None:
        optimizer.zero_grad()
        loss = loss_of(model, sentences)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return [learn]


def endless(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def state_of_hook(what: str) -> Any:
    """The state of the recording that this program runs under, which has `what`."""
    doors = [one for one in sys.meta_path if getattr(one, "is_layerscope_door", False)]
    hooks = [one.hooks["torch"] for one in doors if "torch" in one.hooks]
    if not hooks or hooks[0]["state"][what] is None:
        raise SystemExit(f"not recorded: {what}")
    return hooks[0]["state"]


class Modules:
    """The hook of module calls, of the recording that this program runs under."""

    def __init__(self) -> None:
        self._agent, *self._watched = state_of_hook("modules")["modules"]

    def on(self) -> None:
        """Record. Off first: both changes then walk through the same code."""
        self._agent.ls_modules_stop()
        if self._agent.ls_modules_start(*self._watched) != 0:
            raise SystemExit("not recorded: the calls of modules are not watched")

    def off(self) -> None:
        """Do not record."""
        self._agent.ls_modules_start(*self._watched)
        self._agent.ls_modules_stop()


class Memory:
    """The redirected allocator, of the recording that this program runs under; all else of it goes
    on.
    """

    def __init__(self) -> None:
        state = state_of_hook("memory")
        self._agent, self._part = state["agent"], state["memory"]

    def on(self) -> None:
        """Record. Off first, as modules."""
        self._part["stop"](self._agent)
        self._part["watch"](self._agent, torch)

    def off(self) -> None:
        """Do not record."""
        self._part["watch"](self._agent, torch)
        self._part["stop"](self._agent)


class Recording:
    """The callbacks of the recording that this program runs under, and its hooks: all that costs
    CPU.
    """

    def __init__(self) -> None:
        with open("/proc/self/maps") as maps:
            lines = [
                line.split(None, 5)[-1].strip() for line in maps if "liblayerscope-agent.so" in line
            ]
        if not lines:
            raise SystemExit("not recorded: the agent is not loaded")
        self._agent = ctypes.CDLL(lines[0])
        self._hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
        self._kept = dict(self._hooks)
        self._modules = Modules()

    def on(self) -> None:
        """Record. Off first: both changes then walk through the same code and leave the caches
        alike.
        """
        self._agent.ls_operators_stop()
        if self._agent.ls_torch_start() != 0:
            raise SystemExit("not recorded: the agent does not start")
        self._modules.on()
        self._hooks.update(self._kept)

    def off(self) -> None:
        """Do not record."""
        self._agent.ls_torch_start()
        self._agent.ls_operators_stop()
        self._modules.off()
        self._hooks.clear()


class Profiler:
    """PyTorch's own profiler in the same place; what `stop` costs is outside the measured
    blocks.
    """

    def __init__(self, shapes: bool = False, memory: bool = False) -> None:
        self._profile: Any = None
        self._wanted = {"record_shapes": shapes, "profile_memory": memory}

    def on(self) -> None:
        """Profile."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        self._profile = torch.profiler.profile(activities=activities, **self._wanted)
        self._profile.start()

    def off(self) -> None:
        """Do not profile."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None


class _Callback(ctypes.Structure):
    """at::RecordFunctionCallback, as the agent has it."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("sampling_probability", ctypes.c_double),
        ("scopes", ctypes.c_bool * 10),
        ("needs", ctypes.c_bool * 3),
    )


class Empty:
    """A callback that does nothing: what PyTorch itself takes for calling any. Machine code,
    x86-64.
    """

    _START = b"\x48\xc7\x07\0\0\0\0\x48\x89\xf8\xc3"  # *rdi = 0; return rdi
    _END = b"\xc3"  # return

    def __init__(self, inputs: bool = False) -> None:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        self._add = library._ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE
        self._add.argtypes, self._add.restype = [_Callback], ctypes.c_uint64
        self._remove = library._ZN2at14removeCallbackEm
        self._remove.argtypes = [ctypes.c_uint64]
        self._code = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._code.write(self._START + self._END)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        scopes = (ctypes.c_bool * 10)(*[True] * 10)
        needs = (ctypes.c_bool * 3)(inputs)
        self._callback = _Callback(start, start + len(self._START), 1.0, scopes, needs)
        self._handle = 0

    def on(self) -> None:
        """Call it."""
        self.off()
        self._handle = self._add(self._callback)

    def off(self) -> None:
        """Do not."""
        if self._handle:
            self._remove(self._handle)
        self._handle = 0


def settle() -> None:
    """The framework's view of its callbacks is renewed at the next operators."""
    x = torch.ones(8)
    for _ in range(SETTLING):
        x = x + 0.0


SWITCHES: dict[str, Callable[[], Any]] = {
    "recording": Recording,
    "modules": Modules,
    "memory": Memory,
    "profiler": Profiler,
    "empty": Empty,
    "profiler_shapes": partial(Profiler, shapes=True),
    "profiler_memory": partial(Profiler, memory=True),
    "empty_inputs": partial(Empty, inputs=True),
}


def run(parts: list[Part], steps: int) -> None:
    """Run whole steps."""
    for _ in range(steps):
        for part in parts:
            part()


def measure_whole(parts: list[Part], options: argparse.Namespace) -> dict[str, Any]:
    """CPU and wall time of all steps, with or without PyTorch's profiler around them."""
    if options.profiler:
        Profiler(memory=options.memory).on()
    run(parts, WARM_UP)
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    run(parts, options.steps)
    cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
    return {"steps": options.steps, "cpu_ns": cpu_ns, "wall_ns": wall_ns}


def measure_toggled(parts: list[Part], options: argparse.Namespace) -> dict[str, Any]:
    """CPU time of each part in blocks with and without: pairs of blocks, in random order within the
    pair.

    `sample` is one more step with, when each part began and ended.
    """
    switch = SWITCHES[options.toggle]()
    switch.off()
    run(parts, WARM_UP)
    chance = random.Random(1)
    blocks: list[dict[str, Any]] = []
    began = time.monotonic()
    while len(blocks) < 4 or time.monotonic() - began < options.seconds:
        for on in chance.sample((True, False), 2):
            switch.on() if on else switch.off()
            settle()
            blocks.append({"on": on, **measure_block(parts, options.block)})
    switch.on()
    settle()
    sample = [measure_block([part], 1)["window_ns"] for part in parts]
    switch.off()
    return {"block": options.block, "blocks": blocks, "sample": sample, "calls": 3 * STACK + 1}


def measure_block(parts: list[Part], steps: int) -> dict[str, Any]:
    """CPU time of each part over `steps` steps, and when that was."""
    spent = [0] * len(parts)
    start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for _ in range(steps):
        for i, part in enumerate(parts):
            begin = time.process_time_ns()
            part()
            spent[i] += time.process_time_ns() - begin
    return {"cpu_ns": spent, "window_ns": [start_ns, time.clock_gettime_ns(time.CLOCK_MONOTONIC)]}


def main() -> None:
    """Run one workload and print what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "name", choices=["tiny", "mlp", "mlp_loader", "cnn", "transformer", "modules"]
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--memory", action="store_true", help="with --profiler: memory too")
    parser.add_argument("--toggle", choices=list(SWITCHES))
    parser.add_argument("--block", type=int, default=1, help="steps in a block")
    parser.add_argument("--seconds", type=float, default=5.0, help="for --toggle")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    simple = {"tiny": tiny, "mlp": perceptron, "transformer": transformer, "modules": small_modules}
    parts = simple.get(options.name, lambda: network(options.name))()
    found = measure_toggled(parts, options) if options.toggle else measure_whole(parts, options)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    if options.profiler:
        os._exit(0)  # what the profiler does at its end is not what is compared


if __name__ == "__main__":
    main()
