"""Adds small arrays of MXNet, and prints the CPU time of the process in that loop. With a file as
argument MXNet's own profiler records all of it into that file.
"""

from __future__ import annotations

import json
import sys
import time

import mxnet as mx

ADDITIONS, WARM_UP = 30_000, 2_000


def add(count: int) -> None:
    """So many operators, each waiting for the one before."""
    x = mx.nd.ones((8, 8))
    for _ in range(count):
        x = x + 1
    x.wait_to_read()


def main() -> None:
    """Warm up, then the loop that is measured."""
    file = sys.argv[1] if len(sys.argv) > 1 else ""
    if file:
        mx.profiler.set_config(filename=file, profile_all=True, aggregate_stats=False)
        mx.profiler.set_state("run")
    add(WARM_UP)
    begin = time.process_time_ns()
    add(ADDITIONS)
    cpu_ns = time.process_time_ns() - begin
    if file:
        mx.profiler.set_state("stop")
        mx.profiler.dump()
    print(json.dumps({"cpu_ns": cpu_ns, "additions": ADDITIONS}))


main()
