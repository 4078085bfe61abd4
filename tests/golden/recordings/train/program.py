"""Trains a small network for eight steps: loader, modules, primitives of oneDNN, backward functions, a range."""

import torch
from torch import nn


class Net(nn.Module):
    """A convolution and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.hidden = nn.Linear(4 * 26 * 26, 16)
        self.out = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).flatten(1)
        return self.out(torch.tanh(self.hidden(x)))


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(32, 1, 28, 28), torch.randint(10, (32,)))
for images, labels in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    with torch.profiler.record_function("loss"):
        loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
