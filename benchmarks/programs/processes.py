"""Programs of several processes that say what their loops cost, the CPU time of all processes added
up.

usage: processes.py loader|ddp [--steps N] Prints one line of JSON: cpu_ns and wall_ns of the loop.
The processes are forked after `import torch`, so that imports are in neither.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
WORKERS = RANKS = 2
WARM_UP = 5
BATCH = 64


def children_cpu_ns() -> int:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def loader(steps: int) -> dict[str, Any]:
    """Training with two workers that prepare images: the training process and both workers."""
    from loader_workers import Noise, train
    from torch import nn
    from torch.utils.data import DataLoader

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(392, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = DataLoader(
        Noise(steps * BATCH, 8), BATCH, num_workers=WORKERS, multiprocessing_context="fork"
    )
    begin_ns, begin_cpu_ns = time.monotonic_ns(), time.process_time_ns() + children_cpu_ns()
    train(model, batches, optimizer)
    cpu_ns = time.process_time_ns() + children_cpu_ns() - begin_cpu_ns
    return {"cpu_ns": cpu_ns, "wall_ns": time.monotonic_ns() - begin_ns}


def ddp(steps: int) -> dict[str, Any]:
    """Two ranks that average gradients over gloo: both of them."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        pipes = [os.pipe() for _ in range(RANKS)]
        begin_ns = time.monotonic_ns()
        for rank, (_, write) in enumerate(pipes):
            if os.fork() == 0:
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
                os.write(write, json.dumps(ddp_rank(rank, steps, meeting)).encode())
                os._exit(0)
            os.close(write)
        said = [json.loads(os.read(read, 4096)) for read, _ in pipes]
        for _ in pipes:
            os.wait()
        return {"cpu_ns": sum(said), "wall_ns": time.monotonic_ns() - begin_ns}


def ddp_rank(rank: int, steps: int, meeting: str) -> int:
    """CPU time of one rank over the steps."""
    import torch.distributed as dist
    from ddp_gloo import CLASSES, FEATURES, network
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    images, labels = torch.randn(2 * BATCH, FEATURES), torch.randint(0, CLASSES, (2 * BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    begin_ns = time.process_time_ns()
    for _ in range(steps):
        step()
    cpu_ns = time.process_time_ns() - begin_ns
    dist.barrier()
    dist.destroy_process_group()
    return cpu_ns


PROGRAMS: dict[str, Callable[[int], dict[str, Any]]] = {"loader": loader, "ddp": ddp}


def main() -> None:
    """Run one and print what it cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print(json.dumps(PROGRAMS[options.program](options.steps)), flush=True)


if __name__ == "__main__":
    main()
