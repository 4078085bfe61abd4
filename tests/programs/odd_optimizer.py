"""An optimizer that compares by value, and so cannot be hashed; and one compiled whole."""

import torch


class Equal(torch.optim.SGD):
    def __eq__(self, other):
        print("somebody compares optimizers")
        return False


weight = torch.nn.Parameter(torch.ones(3))
optimizer = Equal([weight], lr=0.5)
for _ in range(3):
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(weight.tolist())


@torch.compile(backend="eager", fullgraph=True)
def compiled(x):
    return torch.hypot(x, x) * 2


print(compiled(torch.ones(2)).tolist())
plain = torch.optim.SGD([weight], lr=0.5)
step = torch.compile(plain.step, backend="eager")
weight.sum().backward()
step()
print(weight.tolist())
