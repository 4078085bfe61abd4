"""Runs an operator of MXNet that is written in Python, imperatively and in a symbol, while MXNet's
own profiler counts, and prints what it counted: {category: {name: executions}}.
"""

import json

import mxnet as mx
from mxnet import autograd, gluon
from mxnet_counted import counted

STEPS = 3
IS_TWO = mx.__version__.startswith("2")


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("MyAddOne")
class AddOneProperties(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=True)

    def list_arguments(self):
        return ["data"]

    def list_outputs(self):
        return ["output"]

    def infer_shape(self, in_shape):
        return [in_shape[0]], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return AddOne()


class Adding(gluon.Block):
    def forward(self, x):
        doubled = mx.nd.Custom(x, op_type="MyAddOne") * 2
        return doubled.as_np_ndarray() if IS_TWO else doubled


def imperative(x):
    add = Adding()
    for _ in range(STEPS):
        with autograd.record():
            doubled = add(x)
        doubled.backward()
    mx.nd.waitall()
    return x.grad.asnumpy()


def symbolic(x):
    added = mx.sym.Custom(data=mx.sym.Variable("data"), op_type="MyAddOne")
    bind = getattr(added, "bind", None) or added._bind
    return bind(mx.cpu(), {"data": x}).forward()[0].asnumpy()


def main():
    x = mx.nd.zeros((50, 50))
    x.attach_grad()
    assert (imperative(x) == 2).all()
    assert (symbolic(x) == 1).all()
    mx.nd.waitall()


print(json.dumps(counted(main)))
