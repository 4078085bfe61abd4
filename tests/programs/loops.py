"""A loop of one kind, named by the first argument, of which a test knows the steps. The second: how many threads."""

from __future__ import annotations

import sys
import threading

import quick_torch  # noqa: F401
import torch
from torch import nn
from torch.profiler import record_function

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randn(64, 8))
loss = nn.MSELoss()


def loader(workers: int = 0) -> torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]:
    """Four batches an epoch."""
    return torch.utils.data.DataLoader(data, batch_size=16, num_workers=workers)


def train(workers: int = 0) -> None:
    """20 steps in 5 epochs, with evaluation behind each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for x, y in loader(workers):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _ in loader():
                model(x)


def workers() -> None:
    """The same with two processes that load, which run operators of their own."""
    train(2)


def gan() -> None:
    """12 steps of the first optimizer, and two of another one in each."""
    g, d = nn.Linear(4, 8), nn.Linear(8, 1)
    opt_d, opt_g = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
    score = nn.BCEWithLogitsLoss()
    for _ in range(12):
        real, noise = torch.randn(16, 8), torch.randn(16, 4)
        opt_d.zero_grad()
        (score(d(real), torch.ones(16, 1)) + score(d(g(noise).detach()), torch.zeros(16, 1))).backward()
        opt_d.step()
        for _ in range(2):
            opt_g.zero_grad()
            score(d(g(noise)), torch.ones(16, 1)).backward()
            opt_g.step()


def accumulation() -> None:
    """10 steps of four batches each."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        for number, (x, y) in enumerate(loader()):
            (loss(model(x), y) / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()


def closure() -> None:
    """8 steps, with some forward and backward passes inside each."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for _ in range(2):
        for x, y in loader():

            def evaluate(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                value: torch.Tensor = loss(model(x), y)
                value.backward()
                return value

            optimizer.step(evaluate)


def in_backward() -> None:
    """12 steps, with an optimizer for each parameter that runs inside the backward pass."""
    of = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}

    def update(parameter: nn.Parameter) -> None:
        of[parameter].step()
        of[parameter].zero_grad()

    for parameter in of:
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        for x, y in loader():
            loss(model(x), y).backward()


def sanity_first() -> None:
    """20 steps behind a validation of three batches, as some trainers do it."""
    with torch.no_grad():
        for _, (x, _) in zip(range(3), loader(), strict=False):
            model(x)
    train()


def inference() -> None:
    """20 steps of the loader, without an optimizer."""
    with torch.no_grad():
        for _ in range(5):
            for x, _ in loader():
                model(x).argmax()


def requests(mine: threading.Semaphore | None = None, others: threading.Semaphore | None = None) -> None:
    """30 requests of two modules each, by turns with those of another thread if there is one."""
    mine, others = mine or threading.Semaphore(30), others or threading.Semaphore()
    head = nn.Softmax(dim=-1)
    with torch.no_grad():
        for _ in range(30):
            mine.acquire()
            head(model(torch.randn(2, 32))).sum()
            others.release()


def generation() -> None:
    """12 requests of an encoder and a decoder, which is called several times before the encoder is called again."""
    decoder = nn.Linear(8, 8)
    with torch.no_grad():
        for number in range(12):
            memory = model(torch.randn(2, 32))
            for _ in range(4 + number % 3):
                memory = decoder(memory)


def threads() -> None:
    """30 requests on each of two threads, which take turns, so that it is the same ones in every run."""
    turns = threading.Semaphore(1), threading.Semaphore(0)
    running = [threading.Thread(target=requests, args=pair) for pair in (turns, turns[::-1])]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def marks() -> None:
    """20 steps that the program marks, of two calls of the optimizer each."""
    import layerscope

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        for number, (x, y) in enumerate(loader()):
            loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % 2:
                layerscope.step()


def ranges() -> None:
    """20 ranges called `iteration`, with work between them."""
    for _ in range(20):
        with record_function("iteration"):
            model(torch.randn(2, 32)).sum().backward()
            with record_function("iteration"):
                torch.ones(2) + 1
        torch.zeros(3) * 2


def by_hand() -> None:
    """20 steps of a loop that trains without an optimizer of PyTorch."""
    for _ in range(20):
        loss(model(data[:16][0]), data[:16][1]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


globals()[sys.argv[1]]()
print(sum(float(parameter.sum()) for parameter in model.parameters()))
