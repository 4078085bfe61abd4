"""Convolutions in a row on tensors of the library, which become ordinary ones in between; the twin leaves them as they
are.
"""

import os
import time

import torch
import torch.utils.mkldnn

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
REQUESTS, LAYERS = 100 * LENGTH, 6
ALSO = ("weights_reordered_every_call",)

torch.manual_seed(0)
torch.set_num_threads(1)


class Between(torch.nn.Module):
    def forward(self, images):
        if SICK:
            return images.to_dense().relu().to_mkldnn()
        return images.relu()


layers = [torch.nn.Conv2d(32, 32, 1) for _ in range(LAYERS)]
layers = [torch.utils.mkldnn.to_mkldnn(layer.eval()) for layer in layers]
net = torch.nn.Sequential(*[torch.nn.Sequential(layer, Between()) for layer in layers]).eval()
images = torch.randn(4, 32, 24, 24).to_mkldnn()
with torch.no_grad():
    begin = time.process_time()
    for _ in range(REQUESTS):
        answer = net(images)
took = time.process_time() - begin
print(f"{took / REQUESTS * 1000:.2f} ms a request")
