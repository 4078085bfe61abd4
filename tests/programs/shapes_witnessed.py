"""Many kinds of inputs, seen by torch.profiler at the same time. usage: shapes_witnessed.py TRACE"""

import sys
import warnings

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)


def cnn():
    """Training steps of a small convolutional network."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(676, 5)
    )
    train(
        model,
        torch.optim.Adam(model.parameters(), foreach=True),
        torch.rand(6, 1, 28, 28),
        lambda y: y.logsumexp(1).mean(),
    )


def lstm():
    """Training steps of an LSTM, once with lists of tensors of another length."""
    model = nn.LSTM(5, 7, num_layers=2, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for length in (4, 9):
        train(model, optimizer, torch.rand(3, length, 5), lambda y: y[0].sum())


def transformer():
    """Training steps of an encoder layer, and inference on its fast path."""
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    x = torch.rand(2, 6, 16)
    train(model, torch.optim.AdamW(model.parameters()), x, torch.Tensor.sum)
    model.eval()
    with torch.no_grad():
        model(x, src_key_padding_mask=torch.tensor([[False] * 6, [False] * 4 + [True] * 2]))


def train(model, optimizer, x, loss):
    """Two steps."""
    for _ in range(2):
        optimizer.zero_grad()
        loss(model(x)).backward()
        optimizer.step()


def odd():
    """Lists, scalars, none, empty ones, dtypes, layouts."""
    x = torch.rand(2, 3)
    torch.cat([x, x, torch.ones(1, 3)])
    torch.stack([x] * 5)
    torch._foreach_add([torch.ones(i, 2) for i in range(1, 90)], 1.0)
    x[torch.tensor([0, 1])]
    x[:, torch.tensor([True, False, True])]
    torch.clamp(x, None, 0.5)
    torch.where(x > 0.5, x, 0.0)
    torch.nn.functional.linear(x, torch.ones(4, 3))
    torch.cat([torch.ones(0), torch.ones(0, 3)], -1) if False else torch.ones(0, 3).sum()
    torch.ones(()).add(2)
    for dtype in (
        torch.bool,
        torch.bfloat16,
        torch.float16,
        torch.complex64,
        torch.complex128,
        torch.uint8,
        torch.int16,
    ):
        torch.ones(2, 2, dtype=dtype).clone().to(torch.float64)
    torch.rand(3, 4, 1).expand(3, 4, 5).permute(2, 0, 1).contiguous()
    torch.eye(3).to_sparse().matmul(torch.ones(3, 2))
    torch.eye(3).to_sparse_csr().to_dense()
    torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]).mul(2)
    torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()
    torch.zeros(2, 2, device="meta").add(1)
    torch.vmap(torch.Tensor.sum)(x)
    torch.func.grad(lambda v: v.square().sum())(x)


with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as witness, record_function("witnessed"):
    for part in (cnn, lstm, transformer, odd):
        part()
witness.export_chrome_trace(sys.argv[1])
