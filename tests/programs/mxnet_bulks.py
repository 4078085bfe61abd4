"""Trains a small convolutional network of MXNet, first as it is, then hybridized, then with static
memory. Nobody else records it: MXNet's own profiler makes MXNet execute each operator alone.
"""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

STEPS, BATCH = 3, 16
nn = gluon.nn


def train(**how):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(10))
    net.initialize()
    if how:
        net.hybridize(**how)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    images = np.random.rand(STEPS * BATCH, 1, 28, 28).astype("float32")
    labels = (np.arange(len(images)) % 10).astype("float32")
    for image, label in gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), BATCH):
        with autograd.record():
            loss = loss_of(net(image), label)
        loss.backward()
        trainer.step(BATCH)
        net(image).asnumpy()
    mx.nd.waitall()


train()
train(active=True)
train(static_alloc=True, static_shape=True)
