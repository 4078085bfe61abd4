"""The peak of a transformer by module, against what is counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import select
from layerscope.recording.reader import Reader
from tests.recorded import record

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

PROGRAM = """
import torch
from torch import nn

torch.set_num_threads(1)
BATCH, LENGTH, WIDTH, INNER, BLOCKS = 4, 32, 64, 256, 3

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
    def forward(self, x):
        weights = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1)
        return self.out(weights @ self.v(x))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
    def forward(self, x):
        return self.down(torch.relu(self.up(self.attention(x))))

net = nn.Sequential(*(Block() for _ in range(BLOCKS)))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
x = torch.randn(BATCH, LENGTH, WIDTH)
for _ in range(6):
    optimizer.zero_grad(set_to_none=True)
    net(x).sum().backward()
    optimizer.step()
"""
FLOAT = 4
BATCH, LENGTH, WIDTH, INNER = 4, 32, 64, 256
ROWS = BATCH * LENGTH
# Weights and biases.
PARAMETERS = {
    "attention.q": FLOAT * (WIDTH * WIDTH + WIDTH),
    "attention.k": FLOAT * (WIDTH * WIDTH + WIDTH),
    "attention.v": FLOAT * (WIDTH * WIDTH + WIDTH),
    "attention.out": FLOAT * (WIDTH * WIDTH + WIDTH),
    "up": FLOAT * (WIDTH * INNER + INNER),
    "down": FLOAT * (INNER * WIDTH + WIDTH),
}
# What backward needs again: outputs of layers that others take in, the softmax and what it is
# multiplied into, and the output of relu, which is all that relu and the layer behind it need.
ACTIVATIONS = {
    "attention.q": FLOAT * ROWS * WIDTH,
    "attention.k": FLOAT * ROWS * WIDTH,
    "attention.v": FLOAT * ROWS * WIDTH,
    "attention": FLOAT * (BATCH * LENGTH * LENGTH + ROWS * WIDTH),
    "attention.out": FLOAT * ROWS * WIDTH,
    "": FLOAT * ROWS * INNER,
    "down": FLOAT * ROWS * WIDTH,
}


def test_parameters_and_activations_are_those_that_are_counted_by_hand(
    program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, PROGRAM, tmp_path, options=["--layers=+memory,-stacks"])
    with Reader(recorded.run) as reader:
        result = select(tables.build(reader, "peak", None), top=0)
        assert result.data is not None
        rows = result.data.to_pylist()

    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["category"], row["module"]
        found[key] = found.get(key, 0) + row["bytes"]
    for block in ("Sequential.0", "Sequential.1"):  # backward has begun with the last one
        for category, counted in (("parameter", PARAMETERS), ("activation", ACTIVATIONS)):
            expected = {f"{block}.{name}".rstrip("."): size for name, size in counted.items()}
            assert {
                module: size
                for (of, module), size in found.items()
                if of == category and f"{module}.".startswith(f"{block}.")
            } == expected
