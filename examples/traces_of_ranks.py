"""Writes traces of an imaginary training job on several GPUs, as torch.profiler writes them: a file
for each rank. Which rank is late, and why, is known; so are the errors of the clocks.

    python examples/traces_of_ranks.py job --ranks 8 --steps 30 --late 2:loader:3000

In each step a rank loads a batch, launches kernels, and takes part in an all_reduce of its
gradients, which ends for all ranks at the same moment. `--late RANK:WHY:MICROSECONDS`, which may be
given more than once, makes a rank take longer in each step: WHY is loader, compute, copy or host.
The clock of each rank has an offset of up to 5 ms and a drift of up to 20 ppm, unless
--exact-clocks is given.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEP_US = 20_000.0
LOAD_US = 500.0
LAUNCH_US = 5.0
KERNEL_US = 80.0
REDUCE_US = 400.0
ELEMENTS = 25_000_000
BASE_NS = 1_750_000_000_000_000_000
WAYS = ("loader", "compute", "copy", "host")
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MAIN, COMPUTE_STREAM, NCCL_STREAM = 1, 7, 20


@dataclass(frozen=True)
class Late:
    """A rank that takes longer in each step, and for which reason."""

    rank: int
    why: str
    more_us: float


@dataclass(frozen=True)
class Clock:
    """What a rank's clock shows at a true time: so much more, and so much more each second."""

    offset_us: float
    drift: float

    def shown(self, true_us: float) -> float:
        """The time that the clock shows."""
        return true_us + self.offset_us + self.drift * true_us


class RankTrace:
    """The events of one rank in the order in which they are written."""

    def __init__(self, rank: int, kernels: int, clock: Clock, late: Late | None) -> None:
        self.rank = rank
        self.kernels = kernels
        self.clock = clock
        self.late = late
        self.events: list[dict[str, Any]] = []
        self.launches = 0

    def more_us(self, why: str) -> float:
        """How much longer it takes for this reason."""
        if self.late is None or self.late.why != why:
            return 0.0
        return self.late.more_us

    def add(
        self, cat: str, name: str, tid: int, begin_us: float, dur_us: float, **args: Any
    ) -> None:
        """An event, with the time that the clock of this rank shows."""
        pid = self.rank if cat in ("kernel", "gpu_memcpy") else 1000 + self.rank
        begin = round(self.clock.shown(begin_us), 3)
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin}
        self.events.append({**event, "dur": round(dur_us, 3), "args": args})

    def launch(
        self, name: str, cat: str, at_us: float, begin_us: float, dur_us: float, **args: Any
    ) -> None:
        """A call of the runtime within an operator, and what it launches."""
        self.launches += 1
        ids = {"External id": self.launches, "correlation": self.launches}
        stream = NCCL_STREAM if "nccl" in name else COMPUTE_STREAM
        place = {"device": self.rank, "stream": stream}
        operator = "c10d::allreduce_" if "nccl" in name else "aten::mm"
        self.add("cpu_op", operator, MAIN, at_us, LAUNCH_US, **{"External id": self.launches})
        call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
        self.add("cuda_runtime", call, MAIN, at_us + 1, LAUNCH_US - 2, **ids)
        self.add(cat, name, stream, begin_us, dur_us, **ids, **place, **args)

    def ready_us(self, begin_us: float) -> float:
        """When the rank has computed its gradients in the step that begins then; adds what it does
        until then.
        """
        loaded_us = begin_us + LOAD_US + self.more_us("loader")
        self.add("cpu_op", LOADER, MAIN, begin_us, loaded_us - begin_us)
        at_us = loaded_us + 10 + self.more_us("host")
        free_us = at_us + LAUNCH_US
        size = 4 * ELEMENTS
        copied_us = 100 + self.more_us("copy")
        copy = {"bytes": size, "memory bandwidth (GB/s)": round(size / copied_us / 1e3, 3)}
        self.launch(
            "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", at_us, free_us, copied_us, **copy
        )
        free_us += copied_us
        longer_us = self.more_us("compute") / self.kernels
        for _ in range(self.kernels):
            at_us += LAUNCH_US + 1
            free_us = max(free_us + 1, at_us + LAUNCH_US)
            self.launch("sm90_xmma_gemm_f32f32", "kernel", at_us, free_us, KERNEL_US + longer_us)
            free_us += KERNEL_US + longer_us
        self.reduce_at_us = at_us + LAUNCH_US + 1
        return max(free_us, self.reduce_at_us + LAUNCH_US)

    def reduce(self, ready_us: float, end_us: float) -> None:
        """The all_reduce of the step, from when this rank is ready until it ends for all."""
        args = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": ELEMENTS,
            "Out msg nelems": ELEMENTS,
            "Group size": 0,
            "Process Group Name": "0",
        }
        self.launch(REDUCE, "kernel", self.reduce_at_us, ready_us, end_us - ready_us, **args)

    def document(self, world: int) -> dict[str, Any]:
        """The file of this rank."""
        about = {"backend": "nccl", "rank": self.rank, "world_size": world}
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": self.rank, "name": "imaginary", "numSms": 132}],
            "distributedInfo": about,
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": self.events,
        }


def job(
    ranks: int, steps: int, kernels: int, late: list[Late], seed: int | None
) -> Iterator[RankTrace]:
    """The traces of all ranks; without a seed their clocks are exact."""
    chance = random.Random(seed)
    by_rank = {one.rank: one for one in late}
    traces = []
    for rank in range(ranks):
        offset_us = chance.uniform(-5_000, 5_000) if seed is not None else 0.0
        drift = chance.uniform(-20e-6, 20e-6) if seed is not None else 0.0
        traces.append(RankTrace(rank, kernels, Clock(offset_us, drift), by_rank.get(rank)))
    begin_us = 10_000.0
    for step in range(steps):
        ready_us = [trace.ready_us(begin_us) for trace in traces]
        end_us = max(ready_us) + REDUCE_US
        for trace, ready in zip(traces, ready_us, strict=True):
            trace.reduce(ready, end_us)
            name = f"ProfilerStep#{step}"
            trace.add("user_annotation", name, MAIN, begin_us - 1, end_us - begin_us + 2)
        begin_us = end_us + 50
    yield from traces


def late_rank(text: str) -> Late:
    """What RANK:WHY:MICROSECONDS says."""
    rank, why, more_us = text.split(":")
    if why not in WAYS:
        raise ValueError(why)
    return Late(int(rank), why, float(more_us))


def main() -> None:
    """Write the traces that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--kernels", type=int, default=20, help="of each step")
    parser.add_argument("--late", type=late_rank, action="append", default=[])
    parser.add_argument("--exact-clocks", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    seed = None if arguments.exact_clocks else 1
    made = job(arguments.ranks, arguments.steps, arguments.kernels, arguments.late, seed)
    for trace in made:
        text = json.dumps(trace.document(arguments.ranks))
        path = arguments.folder / f"rank-{trace.rank}.json.gz"
        path.write_bytes(gzip.compress(text.encode(), 1, mtime=0))


if __name__ == "__main__":
    main()
