"""Each sample comes from a source that answers late: the step waits for it. The twin has the samples at hand."""

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
        if SICK:
            time.sleep(0.002)
        return VALUES[place], place % 10


VALUES = torch.randn(STEPS * BATCH, 256)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
waited = 0.0
begin = time.perf_counter()
before = time.perf_counter()
for values, labels in torch.utils.data.DataLoader(Samples(), batch_size=BATCH):
    waited += time.perf_counter() - before
    for _ in range(4):  # enough to do that loading alone is no fault
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(values.repeat(16, 1)), labels.repeat(16)).backward()
    optimizer.step()
    before = time.perf_counter()
print(f"waited for {waited / (time.perf_counter() - begin):.0%} of the time")
