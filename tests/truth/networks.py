"""A program that runs one small network of many kinds for a few steps: the same operators in every
run.

usage: networks.py NAME
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "programs"))
import quick_torch  # noqa: F401
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

STEPS = 3


def learn(model: nn.Module, batch: torch.Tensor, **more: Any) -> None:
    """A few steps of training; loss and optimizer are outside any module."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        target = torch.ones(2)  # before the first operator that makes a node, and with its number
        answer = model(batch, **more)
        loss = functional.mse_loss(answer.flatten()[:2], target)
        loss.backward()
        optimizer.step()


class Cnn(nn.Module):
    """Modules, and functions between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Functions belong to the network itself."""
        x = functional.relu(self.norm(self.conv1(x)))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return functional.log_softmax(self.fc(x.flatten(1)), 1)


def cnn() -> None:
    """A convolutional network."""
    learn(Cnn(), torch.ones(2, 1, 12, 12))


def transformer() -> None:
    """An encoder: in training, and in evaluation without and with its fast path."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    batch = torch.ones(2, 3, 8)
    learn(encoder, batch)
    encoder.eval()
    encoder(batch)
    with torch.inference_mode():
        encoder(batch)


class Recurrent(nn.Module):
    """An LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 6, 2, batch_first=True)
        self.head = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last state decides."""
        return self.head(self.cells(x)[0][:, -1])


def lstm() -> None:
    """A recurrent network."""
    learn(Recurrent(), torch.ones(2, 5, 4))


class Nested(nn.Module):
    """Containers in containers, a module that is held twice and called twice, and one that nobody
    holds.
    """

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.first = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), shared))
        self.several = nn.ModuleList(
            [nn.ModuleDict({"a": nn.Linear(4, 4), "b": shared}), nn.Identity()]
        )
        self.alias = shared[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Containers of modules are not called themselves."""
        x = self.first(x)
        for _ in range(2):
            x = self.several[0]["b"](self.several[0]["a"](x))
        x = self.alias(self.several[1](x))
        return nn.Softplus()(nn.Sequential(nn.Sigmoid())(x))


def nested() -> None:
    """Every way to hold a module."""
    learn(Nested(), torch.ones(2, 4))


class Checkpointed(nn.Module):
    """A part whose forward pass runs again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.before = nn.Linear(4, 4)
        self.part = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.after = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Operators around the modules too."""
        x = self.before(x).exp()
        x = checkpoint(lambda y: self.part(y).sin(), x, use_reentrant=self.reentrant)
        return self.after(x)


def checkpoint_reentrant() -> None:
    """The backward pass starts another one."""
    learn(Checkpointed(True), torch.full((2, 4), 0.1))


def checkpoint_plain() -> None:
    """The forward pass runs again where its first result is needed."""
    learn(Checkpointed(False), torch.full((2, 4), 0.1))


def backward_elsewhere() -> None:
    """The backward pass runs on another thread than the forward pass."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    for _ in range(STEPS):
        loss = model(torch.ones(2, 4)).sum()
        there = threading.Thread(target=loss.backward)
        there.start()
        there.join()


def two_threads() -> None:
    """Two threads at the same time, each with a network of its own."""
    both = threading.Barrier(2)

    def work(model: nn.Module, batch: torch.Tensor) -> None:
        for _ in range(STEPS):
            both.wait(60)
            model(batch).sum().backward()

    networks = [(Recurrent(), torch.ones(2, 5, 4)), (Nested(), torch.ones(2, 4))]
    threads = [threading.Thread(target=work, args=one) for one in networks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Penalty(nn.Module):
    """A gradient inside the forward pass, which is differentiated again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The squared norm of the gradient."""
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.inner(x).sum(), x, create_graph=True)
        return gradient.pow(2).sum(1)


def double_backward() -> None:
    """The backward pass of a backward pass."""
    learn(Penalty(), torch.full((2, 3), 0.5))


def hooked() -> None:
    """Hooks of the program's own: forward, backward and on a tensor, each with an operator of its
    own.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_forward_hook(lambda module, arguments, output: output.mul(2.0))
    model[0].register_forward_pre_hook(lambda module, arguments: (arguments[0].add(1.0),))
    model[2].register_full_backward_hook(lambda module, given, taken: (given[0].neg(),))
    learn(model, torch.ones(2, 4))


NETWORKS = (
    cnn, transformer, lstm, nested, checkpoint_reentrant, checkpoint_plain, backward_elsewhere, two_threads,
    double_backward, hooked,
)  # fmt: skip


def main(name: str) -> None:
    """Run the network called `name`."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    {network.__name__: network for network in NETWORKS}[name]()


if __name__ == "__main__":
    main(sys.argv[1])
