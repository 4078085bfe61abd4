"""Trains a small CNN with MXNet 2 for a few steps, each operator executed alone, and runs an operator written in
Python; the tests know what that is.
"""

import os

for name in ("TRAIN", "INFERENCE", "MAX_NODE_TRAIN"):
    os.environ[f"MXNET_EXEC_BULK_EXEC_{name}"] = "0"  # read when MXNet is loaded

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

STEPS, BATCH = 4, 8
nn = gluon.nn


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("AddOne")
class AddOneProperties(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return AddOne()


class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(4, 3, activation="relu")
        self.hidden = nn.Dense(16, activation="relu")
        self.out = nn.Dense(10)

    def forward(self, x):
        return self.out(self.hidden(self.conv(x)))


def main():
    net = Net()
    net.initialize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    images = np.random.rand(STEPS * BATCH, 1, 12, 12).astype("float32")
    labels = (np.arange(len(images)) % 10).astype("float32")
    for image, label in gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), BATCH):
        with autograd.record():
            loss = loss_of(net(image), label)
        loss.backward()
        trainer.step(BATCH)
    loss.mean().asnumpy()
    x = mx.nd.zeros((4, 4))
    for _ in range(STEPS):
        x = mx.nd.Custom(x, op_type="AddOne")
    x.asnumpy()


main()
