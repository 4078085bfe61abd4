"""Sets variables before it imports torch, and has two optimizers."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OF_THE_PROGRAM"] = "secret"
os.environ["MKL_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"]
del os.environ["KMP_BLOCKTIME"]

import quick_torch  # noqa: F401
import torch

model = torch.nn.Linear(4, 4)
adam = torch.optim.Adam(model.parameters(), foreach=True)
sgd = torch.optim.SGD([model.bias], lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    adam.step()
    sgd.step()
