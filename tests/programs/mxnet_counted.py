"""What programs of MXNet share that are held against its own profiler: it counts while they work."""

import json

import mxnet as mx

from layerscope import profiler


def counted(work):
    """Run `work` while MXNet's profiler counts, and mark where it stops: {category: {name:
    executions}}.
    """
    marks = profiler.Domain("counted")
    mx.profiler.set_config(
        profile_symbolic=True,
        profile_imperative=True,
        profile_memory=False,
        profile_api=False,
        aggregate_stats=True,
        filename="mxnet.json",
    )
    mx.profiler.set_state("run")
    work()
    mx.profiler.set_state("stop")
    marks.new_marker("counted").mark()
    found = json.loads(mx.profiler.dumps(format="json"))["Time"]
    return {kind: {k: v["Count"] for k, v in of.items()} for kind, of in found.items()}
