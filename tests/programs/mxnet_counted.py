"""What programs of MXNet share that are held against its own profiler: it counts while they work."""

import gc
import json
import time

import mxnet as mx

from layerscope import profiler

OPERATORS = {
    "profile_symbolic": True,
    "profile_imperative": True,
    "profile_memory": False,
    "profile_api": False,
    "aggregate_stats": True,
}


def executions(text):
    """{category: {name: executions}} of what `dumps(format="json")` gives."""
    found = json.loads(text)["Time"]
    return {kind: {k: v["Count"] for k, v in of.items()} for kind, of in found.items()}


def counted(work, filename="mxnet.json"):
    """Run `work` while MXNet's profiler counts, and mark where it stops: {category: {name:
    executions}}.
    """
    marks = profiler.Domain("counted")
    mx.profiler.set_config(**OPERATORS, filename=filename)
    mx.profiler.set_state("run")
    work()
    mx.profiler.set_state("stop")
    marks.new_marker("counted").mark()
    return executions(mx.profiler.dumps(format="json"))


def counted_by_both(work, name=""):
    """Run `work` while both profilers count: {"ours", "theirs": {operator: executions}}."""
    mx.profiler.set_config(**OPERATORS, filename=f"mxnet{name}.json")
    profiler.set_config(profile_all=True, aggregate_stats=True, filename=f"ours{name}.json")
    for one in (mx.profiler, profiler):
        one.set_state("run")
    work()
    gc.collect()
    mx.nd.waitall()
    time.sleep(0.1)  # an operator is over for who waits for it a little before its thread says so
    for one in (mx.profiler, profiler):
        one.set_state("stop")
    return {
        "ours": executions(profiler.dumps(format="json"))["operator"],
        "theirs": executions(mx.profiler.dumps(format="json"))["operator"],
    }
