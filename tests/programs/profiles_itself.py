"""Uses torch's own profiler; prints its counts."""

import sys

import quick_torch  # noqa: F401
import torch
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for _ in range(5):
        with record_function("forward"):
            loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if sys.argv[1] == "kineto":
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        train()
    for row in sorted(found.key_averages(), key=lambda row: row.key):
        print(row.key, row.count)
elif sys.argv[1] == "legacy":
    with torch.autograd.profiler.profile() as found:
        train()
    for row in sorted(found.key_averages(), key=lambda row: row.key):
        print(row.key, row.count)
elif sys.argv[1] == "itt":
    with torch.autograd.profiler.emit_itt():
        train()
else:
    train()
print(float(model(torch.ones(4, 8)).sum()) != 0)
