"""Asks the tables across ranks of made jobs on DuckDB and on Spark, in one session, and prints as
JSON what both said.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from layerscope.analyse import tables
from layerscope.analyse.across import engines
from layerscope.analyse.gpu import collective_questions, stragglers
from layerscope.analyse.gpu.collectives import read_job
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import GpuRecording
from tests.analyse.test_ranks import Job as Ddp


def uneven_job() -> GpuRecording:
    """Six ranks in two groups whose calls take whatever time, some late by as much as others, some
    with other sizes, types or none told, and not all of them as many.
    """
    chance = random.Random(3)
    gpu = GpuRecording(rank=0)
    for rank in range(6):
        if rank:
            gpu.next_rank(rank)
        at_us = 5_000.0 * rank
        for number in range(40 + rank // 5):
            at_us += chance.choice((300, 300, 310.5, 400, chance.uniform(300, 900)))
            gpu.work(at_us, chance.randrange(50, 200))
            told: dict[str, Any] = {"Process Group Name": str(number % 2)}
            told |= {"dtype": chance.choice(("Float", "Float", "Half", "odd"))}
            if chance.random() < 0.9:
                told["In msg nelems"] = chance.choice((10**6, 10**6, 3))
            name = chance.choice(("AllReduce", "AllGather", "Broadcast", "SendRecv"))
            if chance.random() < 0.8:
                name = "AllReduce"
            gpu.work(at_us + 210, 80, f"ncclDevKernel_{name}_Sum", stream=9, arguments=told)
    return gpu


def of_gpus(reader: Reader, engine: str) -> dict[str, Any]:
    """What the tables of collectives and stragglers ask."""
    with read_job(reader, engine) as job:
        assert job is not None
        asked = {
            "kinds": collective_questions.by_kind(job.calls),
            "calls": collective_questions.each(job.calls),
            "stragglers": stragglers.question(job.calls),
        }
        found: dict[str, Any] = {name: job.answer(one).to_pylist() for name, one in asked.items()}
        found["notes"] = list(job.notes)
    return found


def main() -> None:
    """Both jobs, on both engines."""
    folder = Path(sys.argv[1])
    gpu, ddp = uneven_job().reader(folder), Ddp([20, 50, 30, 20]).reader(folder)
    said = {}
    with engines.opened("spark"), gpu, ddp:  # each question finds this session
        for engine in engines.ENGINES:
            ranks = tables.build(ddp, "ranks", options={"engine": engine})
            said[engine] = {**of_gpus(gpu, engine), "ranks": ranks.data.to_pylist()}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
