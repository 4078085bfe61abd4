"""Answers of a network that nobody differentiates, with gradients on; the twin turns them off."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
REQUESTS, LAYERS = 100 * LENGTH, 40
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(LAYERS)]).eval()
values = torch.randn(1, 32)
begin = time.process_time()
with torch.inference_mode(not SICK):
    for _ in range(REQUESTS):
        answer = net(values)
took = time.process_time() - begin
print(
    f"{took / REQUESTS * 1000:.2f} ms a request, an answer that requires gradients: {answer.requires_grad}"
)
