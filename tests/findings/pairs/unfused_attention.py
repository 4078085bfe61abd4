"""Attention as products and a softmax of their own; the twin calls the fused operator."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 40
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(64, 192)

    def forward(self, values):
        query, key, value = (
            part.unflatten(2, (4, 16)).transpose(1, 2) for part in self.project(values).chunk(3, 2)
        )
        if not SICK:
            return torch.nn.functional.scaled_dot_product_attention(query, key, value)
        weights = (query @ key.transpose(2, 3)) * 0.25
        return weights.softmax(-1) @ value


net = Attention()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(1, 384, 64)
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"{took / STEPS * 1000:.2f} ms a step")
