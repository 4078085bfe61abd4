"""Takes the steps of the tutorial on MXNet's profiler with `layerscope.profiler`, while MXNet's own
counts beside it, and prints what both say: a line of JSON for each part.

Its word says when the operator in Python is registered and bound: `before` the profiler runs, or
`after`.
"""

import gc
import json
import os
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from layerscope import profiler

WHEN = sys.argv[1] if len(sys.argv) > 1 else "before"
IS_TWO = mx.__version__.startswith("2")
ARRAYS = mx.np if IS_TWO else mx.nd
BATCH = 16


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


def register():
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


def bound(x):
    added = mx.sym.Custom(data=mx.sym.Variable("data"), op_type="MyAddOne")
    bind = getattr(added, "bind", None) or added._bind
    executor = bind(mx.cpu(), {"data": x})
    if WHEN == "before":
        executor.forward()[0].asnumpy()
    return executor


def network():
    net = nn.HybridSequential()
    layers = (nn.Conv2D(4, 5), nn.Activation("relu"), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(10))
    for layer in layers:
        net.add(layer)
    net.initialize()
    return net


NET = network()
TRAINER = gluon.Trainer(NET.collect_params(), "sgd", {"learning_rate": 0.1})
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def iteration():
    """One that is over when it returns."""
    with autograd.record():
        loss = LOSS(NET(ARRAYS.ones((BATCH, 1, 28, 28))), ARRAYS.ones((BATCH,)))
    loss.backward()
    TRAINER.step(BATCH)
    quiet()


def quiet():
    """Nothing is under way, and nothing is left to be freed. An operator is over for whoever waits for
    it a little before its thread says so.
    """
    gc.collect()
    mx.nd.waitall()
    time.sleep(0.1)


def counts(text):
    sums = json.loads(text)
    kinds = [*sums["Time"].items(), *sums["Memory"].items()]
    return {kind: {name: one["Count"] for name, one in of.items()} for kind, of in kinds}


def tell(**values):
    print(json.dumps({**values, "ours": counts(profiler.dumps(format="json"))}))


def both(state):
    quiet()
    mx.profiler.set_state(state)
    profiler.set_state(state)


def main():
    x = mx.nd.zeros((50, 50))
    x.attach_grad()
    if WHEN == "before":
        register()
        executor = bound(x)
    iteration()
    profiler.set_config(profile_all=True, aggregate_stats=True, filename="profile_output.json")
    mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename="mxnet.json")
    both("run")
    iteration()
    both("stop")
    tell(theirs=counts(mx.profiler.dumps(reset=True, format="json")))
    profiler.dump()

    profiler.dumps(reset=True)
    profiler.set_state("run")
    iteration()
    profiler.pause()
    iteration()
    profiler.resume()
    iteration()
    profiler.set_state("stop")
    tell()
    table = profiler.dumps(reset=True)
    print(json.dumps(table))

    profiler.set_config(profile_all=True, aggregate_stats=True, filename="my_add_one.json")
    if WHEN == "after":
        profiler.set_state("run")
        profiler.set_state("stop")
        register()
        executor = bound(x)
    both("run")
    with autograd.record():
        doubled = mx.nd.Custom(x, op_type="MyAddOne") * 2
    doubled.backward()
    both("stop")
    tell(theirs=counts(mx.profiler.dumps(reset=True, format="json")))
    profiler.dumps(reset=True)
    profiler.set_state("run")
    executor.forward()[0].asnumpy()
    quiet()
    profiler.set_state("stop")
    tell()
    profiler.dump(finished=False)
    os.rename("my_add_one.json", "first_dump.json")
    profiler.set_state("run")
    domain = profiler.Domain("tutorial")
    counter = domain.new_counter("images", 0)
    with domain.new_task("task"), domain.new_frame("frame"), profiler.Event("an event"):
        counter += BATCH
        domain.new_marker("marker").mark("process")
    profiler.set_state("stop")
    profiler.dump()
    profiler.dump()


main()
