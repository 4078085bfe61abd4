"""Trains the classic MNIST convolutional network with PyTorch: two convolutions, two dense layers,
SGD.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from mnist_data import Mnist, default_folder, prepare
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    """Convolution 20 of 5x5, pool, convolution 50 of 5x5, pool, dense 512, dense 10."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(50 * 4 * 4, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def train(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, limit: int | None
) -> float:
    """Trains for one epoch, or for `limit` batches; returns the mean loss."""
    model.train()
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == limit:
            break
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """The share of the images that the model names correctly."""
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / len(loader.dataset)


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=default_folder(), metavar="DIR", help="folder of the IDX files"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.02)
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
    test_loader = DataLoader(Mnist(folder, "test"), batch_size=500)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        start_s = time.perf_counter()
        loss = train(model, train_loader, optimizer, options.limit)
        print(f"epoch {epoch}: loss {loss:.4f}, {time.perf_counter() - start_s:.1f} s", flush=True)
    print(f"test accuracy: {accuracy(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
