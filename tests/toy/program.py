"""Learns y = 3 x + 1 by toynet: 6 steps of 4 pairs."""

import time

import toynet

weight, bias = toynet.Parameter(0.0), toynet.Parameter(0.0)
optimizer = toynet.Descent([weight, bias], 0.01)
loader = toynet.Loader([(x / 4, 3 * x / 4 + 1) for x in range(12)], 4)
for _ in range(2):
    for batch in loader:
        x, wanted = [pair[0] for pair in batch], [pair[1] for pair in batch]
        found = toynet.affine(weight, bias, x)
        time.sleep(0.001)
        found.backward([2 * (y - w) for y, w in zip(found.numbers, wanted, strict=True)])
        optimizer.step()
print(f"{weight.number:.3f} {bias.number:.3f}")
