"""Batches become tensors number by number, from a list of arrays; the twin stacks the arrays."""

import os
import time
import warnings

import numpy
import torch

SICK = os.environ["SICK"] == "1"
STEPS, BATCH = 80, 512
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
warnings.simplefilter("ignore")  # that it is slow
generator = numpy.random.default_rng(0)
samples = list(generator.random((4 * BATCH, 128), numpy.float32))
net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
converted, begin = 0.0, time.process_time()
for step in range(STEPS):
    before = time.process_time()
    rows = samples[step % 4 :: 4]
    values = torch.tensor(rows) if SICK else torch.from_numpy(numpy.stack(rows))
    converted += time.process_time() - before
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"converted for {converted / STEPS * 1000:.2f} ms of a step of {took / STEPS * 1000:.2f} ms")
