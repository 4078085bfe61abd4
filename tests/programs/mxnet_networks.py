"""Trains small networks of gluon while MXNet's own profiler counts, and prints what it counted:
{network: {operator: executions}}. Arguments: cnn, mlp, hybrid, static.
"""

import json
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet_counted import counted

STEPS, BATCH = 3, 16
trainers = []  # kept, so that no two have the same address
nn = gluon.nn


def network(kind):
    net = nn.HybridSequential()
    if kind != "mlp":
        net.add(nn.Conv2D(4, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Flatten())
    net.add(nn.Dense(16, activation="relu"), nn.Dense(10))
    net.initialize()
    if kind == "hybrid":
        net.hybridize()
    elif kind == "static":
        net.hybridize(static_alloc=True, static_shape=True)
    return net


def train(kind):
    net = network(kind)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    trainers.append(trainer)
    images = np.random.rand(STEPS * BATCH, 1, 28, 28).astype("float32")
    labels = (np.arange(len(images)) % 10).astype("float32")
    for image, label in gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), BATCH):
        with autograd.record():
            loss = loss_of(net(image), label)
        loss.backward()
        trainer.step(BATCH)
    loss.mean().asnumpy()
    mx.nd.waitall()


def main():
    for kind in sys.argv[1:]:
        train(kind)


print(json.dumps(counted(main)["operator"]))
