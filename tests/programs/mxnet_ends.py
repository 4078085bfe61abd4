"""Trains a network of gluon whose first operator is written in Python, and whose batches other
threads make; two blocks share the object of another operator in Python. Prints how many batches
there were. `--killed`: is killed in the code of an operator of the second step.
"""

import itertools
import os
import signal
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

BATCHES, BATCH, WORKERS = 4, 8, 2
IS_TWO = mx.__version__.startswith("2")


calls, last = itertools.count(), 6 if "--killed" in sys.argv else -1


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        if next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


def register(name, make):
    @mx.operator.register(name)
    class Properties(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__(need_top_grad=True)

        def list_arguments(self):
            return ["data"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return [in_shape[0]], [in_shape[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return make()


shared, held = AddOne(), []


def again():
    # What MXNet calls for the operator before lies in this attribute, which it sets anew.
    held.append(getattr(shared, "_ref_holder", None))
    return shared


register("own", AddOne)
register("shared", again)


def custom(x, name):
    y = mx.nd.Custom(x.as_nd_ndarray() if IS_TWO else x, op_type=name)
    return y.as_np_ndarray() if IS_TWO else y


class Adding(gluon.Block):
    def __init__(self, name):
        super().__init__()
        self.operator = name

    def forward(self, x):
        return custom(x, self.operator)


def network():
    net = gluon.nn.Sequential()
    net.add(Adding("own"), Adding("shared"), gluon.nn.Dense(4), Adding("shared"), Adding("own"))
    net.initialize()
    return net


def main():
    net, loss_of = network(), gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    data = np.ones((BATCHES * BATCH, 4), "float32")
    loader = gluon.data.DataLoader(
        gluon.data.ArrayDataset(data, data), BATCH, num_workers=WORKERS, thread_pool=True
    )
    count = 0
    for x, y in loader:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)
        loss.mean().asnumpy()
        count += 1
    mx.nd.waitall()
    print(count)


main()
