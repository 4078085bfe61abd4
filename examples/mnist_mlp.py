"""Trains a small dense network (784-128-64-10) on MNIST with PyTorch."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from mnist_data import Mnist, default_folder, prepare
from torch import nn
from torch.utils.data import DataLoader


def train(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, limit: int | None
) -> float:
    """Trains for one epoch, or for `limit` batches; returns the mean loss."""
    criterion = nn.CrossEntropyLoss()
    losses = []
    for batch, (images, labels) in enumerate(loader, 1):
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch == limit:
            break
    return sum(losses) / len(losses)


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=default_folder(), metavar="DIR", help="folder of the IDX files"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--limit", type=int, metavar="BATCHES", help="batches per epoch, at most")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--threads", type=int, help="threads that compute")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Trains and tests."""
    options = parse_arguments()
    torch.manual_seed(options.seed)
    if options.threads:
        torch.set_num_threads(options.threads)
    folder = prepare(options.data)
    train_loader = DataLoader(
        Mnist(folder, "train"),
        options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
    )
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)

    for epoch in range(1, options.epochs + 1):
        start_s = time.perf_counter()
        loss = train(model, train_loader, optimizer, options.limit)
        print(f"epoch {epoch}: loss {loss:.4f}, {time.perf_counter() - start_s:.1f} s", flush=True)

    right = seen = 0
    with torch.no_grad():
        for images, labels in DataLoader(Mnist(folder, "test"), batch_size=500):
            right += int((model(images).argmax(1) == labels).sum())
            seen += len(labels)
    print(f"test accuracy: {right / seen:.4f}")


if __name__ == "__main__":
    main()
