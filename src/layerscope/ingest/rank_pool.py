"""Makes the tables of several ranks, each in a process of its own, some of them at once; small
traces share one.

So what one rank takes is given back when it is done, and one that fails, or is killed because
memory is short, leaves the others alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from layerscope.host import cgroup, memory
from layerscope.ingest.limits import CONVERTER_VARIABLES

# What a conversion takes: an epoch of spans, and the libraries. With less there are fewer at once.
CONVERTER_BYTES = 400_000_000
# As many may run at once as there are CPUs, so each looks at half of what a single conversion does
# in one go: that of a process with so much memory (`limits.limits_of`).
_MOST_BYTES = 1_200_000_000
_SMALL_BYTES = 256_000_000
_SOURCE = str(Path(__file__).resolve().parents[2])
# Whatever the user's PYTHONPATH and working directory hold.
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from layerscope.ingest.rank_converter import main; sys.exit(main(sys.argv[1:]))"
)


def converted(paths: Mapping[int, Path]) -> dict[int, Path | str]:
    """By rank where the tables of the recordings or files in `paths` are, or in words why there are
    none.
    """
    if not paths:
        return {}
    at_once, memory_bytes = _share(len(paths))
    batches = _batches(paths, at_once)
    started: list[subprocess.Popen[bytes]] = []
    pool = ThreadPoolExecutor(at_once)

    try:
        answers = [pool.submit(_convert, batch, paths, memory_bytes, started) for batch in batches]
        found = {rank: answer for batch in answers for rank, answer in batch.result().items()}
    finally:
        # Reached early only if the user ends us: then nobody waits for what is left.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in started:
            if process.poll() is None:
                process.kill()
    return {rank: found[rank] for rank in paths}


def _batches(paths: Mapping[int, Path], at_once: int) -> list[list[int]]:
    """Which of them one process converts. Starting one costs as much as a small trace does."""
    alone: list[list[int]] = []
    small: dict[int, int] = {}
    for rank, path in paths.items():
        size_bytes = path.stat().st_size
        if path.is_file() and size_bytes <= _SMALL_BYTES:
            small[rank] = size_bytes
        else:
            alone.append([rank])
    by_size = sorted(small, key=lambda rank: -small[rank])
    together: list[list[int]] = [[] for _ in range(min(at_once, len(small)))]
    for place, rank in enumerate(by_size):
        batch = together[place % len(together)]
        batch.append(rank)
    return [*alone, *together]


def _share(count: int) -> tuple[int, int]:
    """How many conversions there are at once, and the memory that each may take."""
    group = cgroup.facts()
    cpus = min(float(len(os.sched_getaffinity(0))), group.cpus or float("inf"))
    room = memory.available_bytes() // CONVERTER_BYTES
    at_once = max(1, min(count, int(cpus), room))
    return at_once, min(_MOST_BYTES, (group.memory_most_bytes or at_once * _MOST_BYTES) // at_once)


def _convert(
    batch: Sequence[int],
    paths: Mapping[int, Path],
    memory_bytes: int,
    started: list[subprocess.Popen[bytes]],
) -> dict[int, Path | str]:
    """An answer for each rank of `batch`. One that ends its converter leaves the others to a new
    one.
    """
    answers: dict[int, Path | str] = {}
    while len(answers) < len(batch):
        left = batch[len(answers) :]
        found = _answers([paths[rank] for rank in left], memory_bytes, started)
        answers |= dict(zip(left, found, strict=False))
    return answers


def _answers(
    paths: Sequence[Path], memory_bytes: int, started: list[subprocess.Popen[bytes]]
) -> list[Path | str]:
    """What one process says of the first of `paths`, of all unless it ends early."""
    flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
    command = [sys.executable, *flags, "-c", _START, _SOURCE, str(memory_bytes)]
    try:
        process = subprocess.Popen(
            [*command, *(str(path.absolute()) for path in paths)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | CONVERTER_VARIABLES,
        )
    except OSError as error:
        return [f"its converter could not be started ({error.strerror})"] * len(paths)
    started.append(process)
    out, errors = process.communicate()
    found: list[Path | str] = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            found.append(Path(answer["tables"]) if "tables" in answer else str(answer["problem"]))
    if len(found) < len(paths):
        found.append(_ended(process.returncode, errors))
    return found


def _ended(status: int, errors: bytes) -> str:
    """Why a converter left no answer."""
    if status == -signal.SIGKILL:
        return "its converter was killed (signal 9), as happens where memory is short"
    if status < 0:
        return f"its converter was ended by signal {-status}"
    text = errors.decode("utf-8", "replace")
    last = text.strip().rpartition("\n")[2]
    return f"its converter ended with status {status}" + (f": {last}" if last else "")
