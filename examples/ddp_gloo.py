"""Trains a small network on several processes with DistributedDataParallel over gloo, on one
machine or many.

One process a rank, as torchrun starts them:

    torchrun --nproc-per-node 2 ddp_gloo.py --steps 200

Every rank draws its own data; the gradients are averaged, so the weights stay the same everywhere.
With --slow-rank one of them runs its forward pass four times, and all others wait for it in every
step.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES = 256, 10


def network() -> nn.Module:
    """256-512-256-10."""
    return nn.Sequential(
        nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )


def train(options: argparse.Namespace, rank: int) -> float:
    """Runs the steps; returns the sum of the absolute weights, which is the same on every rank."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    draw = torch.Generator().manual_seed(options.seed + rank)
    rounds = 4 if rank == options.slow_rank else 1
    for _ in range(options.steps):
        images = torch.randn(options.batch_size, FEATURES, generator=draw)
        labels = torch.randint(0, CLASSES, (options.batch_size,), generator=draw)
        optimizer.zero_grad()
        for _ in range(rounds):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    return sum(parameter.detach().abs().sum().item() for parameter in model.parameters())


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument(
        "--threads", type=int, default=1, help="threads that compute, in each process"
    )
    parser.add_argument(
        "--slow-rank",
        type=int,
        default=-1,
        metavar="RANK",
        help="this rank computes four times as much",
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Joins the others, trains, and says what it took."""
    options = parse_arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    weights = train(options, rank)
    wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    where = f"rank {rank} of {dist.get_world_size()}"
    print(f"{where}: {wall_s:.1f} s, CPU {cpu_s:.2f} s, weights {weights:.4f}", flush=True)
    dist.barrier()  # ranks that leave one by one make gloo abort now and then
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
