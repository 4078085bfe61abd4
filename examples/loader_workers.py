"""Trains a small network on images that DataLoader workers prepare: turned, blurred and normalised
in their processes.

    python loader_workers.py --workers 2 --start fork

The work of a worker is the same on every image, so with too few workers the training waits for
them.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 32
CLASSES = 10


class Noise(Dataset):
    """Images of noise, each drawn from its own number, so that they are the same in whichever
    process.
    """

    def __init__(self, count: int, blurs: int) -> None:
        self.count = count
        self.blurs = blurs

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(index))
        if index % 2:
            image = torch.flip(image, [2])
        for _ in range(self.blurs):
            image = F.avg_pool2d(image, 3, stride=1, padding=1)
        return (image - image.mean()) / image.std(), index % CLASSES


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Trains for one epoch; returns the mean loss."""
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--blurs", type=int, default=8, help="how often an image is blurred")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare images")
    parser.add_argument(
        "--start", choices=("fork", "spawn", "forkserver"), default="fork", help="how they start"
    )
    parser.add_argument(
        "--persistent", action="store_true", help="keep them from one epoch to the next"
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Trains."""
    options = parse_arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    layers = [
        nn.Conv2d(3, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * 7 * 7, CLASSES),
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        Noise(options.images, options.blurs),
        options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        multiprocessing_context=options.start if options.workers else None,
        persistent_workers=options.persistent,
    )
    for epoch in range(1, options.epochs + 1):
        start_s = time.perf_counter()
        loss = train(model, loader, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, {time.perf_counter() - start_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
