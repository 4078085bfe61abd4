"""Trains a network by the Module interface, which MXNet 2 has no more, while MXNet's own profiler
counts, and prints what it counted: {operator: executions}. `--library`: ours counts as well.
"""

import json
import sys

import mxnet as mx
import numpy as np
from mxnet_counted import counted, counted_by_both

BATCHES, BATCH = 4, 16


def network():
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=32, name="hidden")
    hidden = mx.sym.Activation(hidden, act_type="relu", name="relu")
    output = mx.sym.FullyConnected(hidden, num_hidden=10, name="output")
    return mx.sym.SoftmaxOutput(output, name="softmax")


def train():
    images = np.random.rand(BATCHES * BATCH, 784).astype("float32")
    labels = (np.arange(len(images)) % 10).astype("float32")
    batches = mx.io.NDArrayIter(images, labels, BATCH, label_name="softmax_label")
    module = mx.mod.Module(network())
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params()
    module.init_optimizer(optimizer="sgd")
    for batch in batches:
        module.forward(batch, is_train=True)
        module.backward()
        module.update()
    mx.nd.waitall()


print(json.dumps(counted_by_both(train) if sys.argv[1:] else counted(train)["operator"]))
