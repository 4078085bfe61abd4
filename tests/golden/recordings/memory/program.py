"""Ten steps of a small network, of whose memory every byte is known.

parameters   4 * (64 * 128 + 128 + 128 * 10 + 10) = 38,440 bytes, in 4 blocks
buffer       4 * 1024 bytes, in the module
Adam         2 * 38,440 bytes of averages from the first step on, and a number of steps for each parameter
leak         1 MiB in each step, which a closure keeps
cache        2 MiB from the first step on, which is filled once
input        4 * 32 * 64 bytes in each step
"""

import torch

MIB = 1 << 20


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 128)
        self.second = torch.nn.Linear(128, 10)
        self.register_buffer("table", torch.zeros(1024))

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def make_remember():
    kept = []

    def remember():
        kept.append(torch.empty(MIB // 4))

    return remember, kept


cache = {}


def look_up():
    if "table" not in cache:
        cache["table"] = torch.empty(2 * MIB // 4)
    return cache["table"]


torch.set_num_threads(1)
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
remember, kept = make_remember()
for _ in range(10):
    x = torch.randn(32, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    look_up()
    remember()
print("kept", len(kept))
