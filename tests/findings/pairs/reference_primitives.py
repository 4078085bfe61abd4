"""Images of three channels in the library's type, for which it has no fast pooling; the twin has a fourth channel, which
is empty.
"""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
REQUESTS = 120 * LENGTH
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3 if SICK else 4, 32, 5)

    def forward(self, images):
        pooled = torch.nn.functional.max_pool2d(images, 3, 2)
        return self.convolution(pooled.to_dense())


net = Net().eval()
images = torch.randn(8, 3, 64, 64)
if not SICK:
    images = torch.nn.functional.pad(images, (0, 0, 0, 0, 0, 1))
images = images.to_mkldnn()
with torch.no_grad():
    begin = time.process_time()
    for _ in range(REQUESTS):
        answer = net(images)
took = time.process_time() - begin
print(f"{took / REQUESTS * 1000:.2f} ms a request")
