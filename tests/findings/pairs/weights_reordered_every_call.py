"""Large weights and small images: every call brings the weights into the library's layout; the twin did it once."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
REQUESTS, LAYERS, SHAPE = 80 * LENGTH, 3, (2, 384, 4, 4)
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)


class Layer(torch.nn.Conv2d):
    def forward(self, images):
        if SICK:
            return super().forward(images)
        return torch.ops.mkldnn_prepacked.conv2d_run(images, self.packed)

    def pack(self):
        self.packed = torch.ops.mkldnn_prepacked.conv2d_prepack(
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            SHAPE,
            "none",
        )


net = torch.nn.Sequential(*[Layer(384, 384, 3, padding=1) for _ in range(LAYERS)]).eval()
images = torch.randn(SHAPE)
with torch.inference_mode():
    for layer in net:
        layer.pack()
    begin = time.process_time()
    for _ in range(REQUESTS):
        answer = net(images)
took = time.process_time() - begin
print(f"{took / REQUESTS * 1000:.2f} ms a request")
