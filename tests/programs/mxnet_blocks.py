"""Blocks of gluon that hold each other and call operators of their own, after operators outside of
any; and operators written in Python: one class under two names, and one that calls its base class.
Prints how often each block was called.
"""

import json

import mxnet as mx
from mxnet import gluon

CALLS = 10
IS_TWO = mx.__version__.startswith("2")
calls = {}


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)


class AddMore(AddOne):
    def forward(self, is_train, req, in_data, out_data, aux):
        super().forward(is_train, req, in_data, out_data, aux)


def register(name, kind):
    @mx.operator.register(name)
    class Properties(mx.operator.CustomOpProp):
        def list_arguments(self):
            return ["data"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return [in_shape[0]], [in_shape[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return kind()


for registered, kind in (("one", AddOne), ("another", AddOne), ("more", AddMore)):
    register(registered, kind)


def custom(x, name):
    y = mx.nd.Custom(x.as_nd_ndarray() if IS_TWO else x, op_type=name)
    return y.as_np_ndarray() if IS_TWO else y


def sine(x):
    return mx.np.sin(x) if IS_TWO else mx.nd.sin(x)


class Inner(gluon.Block):
    def forward(self, x):
        calls["Outer.inner"] = calls.get("Outer.inner", 0) + 1
        return custom(x, "one")


class Outer(gluon.Block):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        calls["Outer"] = calls.get("Outer", 0) + 1
        y = sine(x)
        y = self.inner(y)
        y = custom(y, "another")
        return sine(custom(y, "more"))


x = mx.np.ones((4, 4)) if IS_TWO else mx.nd.ones((4, 4))
x = sine(x)
x.wait_to_read()
net = Outer()
for _ in range(CALLS):
    net(x).wait_to_read()
mx.nd.waitall()
print(json.dumps(calls))
