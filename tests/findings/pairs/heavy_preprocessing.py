"""Each sample is normalised number by number in Python; the twin normalises it as a whole."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS, BATCH = 60, 8
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, place):
        values = VALUES[place]
        if SICK:
            return torch.tensor([normalised(value) for value in values.tolist()]), place % 10
        return (values - 0.5) / 0.25, place % 10


def normalised(value):
    scaled = 0.0
    for _ in range(40):
        scaled = (value - 0.5) / 0.25
    return scaled


VALUES = torch.rand(STEPS * BATCH, 256)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loaded = 0.0
begin = time.perf_counter()
before = time.perf_counter()
for values, labels in torch.utils.data.DataLoader(Samples(), batch_size=BATCH):
    loaded += time.perf_counter() - before
    for _ in range(4):  # enough to do that loading alone is no fault
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(values.repeat(16, 1)), labels.repeat(16)).backward()
    optimizer.step()
    before = time.perf_counter()
print(f"loaded for {loaded / (time.perf_counter() - begin):.0%} of the time")
