"""Writes the traces in this folder with MXNet's own profiler: `first.json`, which has no end, and
`second.json`, which has no header, because the filename is set anew while the profiler runs.

    /path/to/python-with-mxnet record.py FOLDER && gzip -9n FOLDER/*.json

2.0.0b1 and 1.9.1 are the versions of MXNet; `naive` is 2.0.0b1 with MXNET_ENGINE_TYPE=NaiveEngine.
"""

import sys
from pathlib import Path

import mxnet as mx
from mxnet import profiler

FOLDER = Path(sys.argv[1])
SETTINGS = {"profile_all": True, "continuous_dump": True, "dump_period": 100}


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("AddOne")
class AddOneProp(mx.operator.CustomOpProp):
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


def network():
    """Two layers, executed as segments that are planned before."""
    made = mx.gluon.nn.HybridSequential()
    made.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(2))
    made.initialize()
    made.hybridize(static_alloc=True, static_shape=True)
    return made


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    ones = mx.nd.ones if mx.__version__.startswith("1.") else mx.np.ones
    net, data = network(), ones((4, 8))
    net(data).asnumpy()
    profiler.set_config(filename=str(FOLDER / "first.json"), **SETTINGS)
    profiler.set_state("run")
    domain = profiler.Domain("Own, domain")
    task, frame, event = (
        domain.new_task("a task"),
        domain.new_frame("a frame"),
        profiler.Event("an event"),
    )
    crossing, counter = domain.new_task("crossing"), domain.new_counter("items", 4)
    task.start()
    frame.start()
    event.start()
    net(data).asnumpy()
    crossing.start()
    task.stop()
    counter += 3
    counter -= 1
    domain.new_marker("half way").mark("thread")
    mx.nd.Custom(mx.nd.ones((2, 2)), op_type="AddOne").asnumpy()
    crossing.stop()
    frame.stop()
    event.stop()
    for name in ("n" * 300, 'quote " back\\slash\ttab\nline é', "é" * 64):
        odd = domain.new_task(name)
        odd.start()
        odd.stop()
    counter.set_value(0)
    counter -= 1
    mx.nd.waitall()
    profiler.dump(finished=False)
    profiler.set_config(filename=str(FOLDER / "second.json"), **SETTINGS)
    square = mx.nd.ones((2, 2))
    mx.nd.dot(square, square).asnumpy()
    mx.nd.waitall()
    profiler.set_state("stop")
    profiler.dump()


main()
