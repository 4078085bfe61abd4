"""A distributed store of MXNet on this machine: starts the scheduler, a server and two workers, and
prints {rank: {operator: executions}} as MXNet's own profiler counted them in the workers. `--bare`:
each worker prints what it pulled, and nobody counts. `--library`: our profiler counts as well.
"""

import json
import os
import socket
import subprocess
import sys

WORKERS, STEPS, TIMEOUT_S = 2, 3, 100
ROLES = ["scheduler", "server"] + ["worker"] * WORKERS


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def launch():
    """Start all, and print what the workers print as one object."""
    shared = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_INTERFACE": "lo",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(WORKERS),
    }
    started = []
    try:
        for role in ROLES:
            environment = {**os.environ, **shared, "DMLC_ROLE": role}
            command = [sys.executable, *sys.argv]
            started.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            )
        printed = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.wait() for process in started] == [0] * len(ROLES)
    lines = "".join(printed[-WORKERS:]).splitlines()
    print(json.dumps({rank: found for line in lines for rank, found in json.loads(line).items()}))


def train(mx, store):
    """The server updates a weight by the sums of what both workers push; what comes of it."""
    store.init("weight", mx.nd.ones((40, 40)))
    store.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5))
    mx.nd.waitall()
    store._barrier()  # one worker alone sends the optimizer
    weight = mx.nd.zeros((40, 40))
    for _ in range(STEPS):
        store.push("weight", mx.nd.ones((40, 40)))
        store.pull("weight", out=weight)
    mx.nd.waitall()
    store._barrier()
    store.pull("weight", out=weight)
    return float(weight.asnumpy()[0, 0])


def count(mx, store, by_both):
    """What MXNet's own profiler counts of `train`, or both profilers."""
    from mxnet_counted import counted, counted_by_both

    def work():
        pulled = train(mx, store)
        assert pulled == 1 - WORKERS * STEPS * 0.5, pulled
        mx.nd.waitall()

    if by_both:
        return counted_by_both(work, f"-{store.rank}")
    return counted(work, f"mxnet-{store.rank}.json")["operator"]


def main():
    if "DMLC_ROLE" not in os.environ:
        return launch()
    import mxnet as mx  # a server and the scheduler stay in here

    store = mx.kv.create("dist_sync")
    is_bare, by_both = "--bare" in sys.argv, "--library" in sys.argv
    found = train(mx, store) if is_bare else count(mx, store, by_both)
    print(json.dumps({store.rank: found}), flush=True)


main()
