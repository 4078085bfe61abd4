"""Makes the tables of several ranks, each in a process of its own, some of them at once.

So what one rank takes is given back when it is done, and one that fails, or is killed because
memory is short, leaves the others alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from layerscope.host import cgroup, memory
from layerscope.ingest.limits import CONVERTER_VARIABLES

# What a conversion takes: an epoch of spans, and the libraries. With less there are fewer at once.
CONVERTER_BYTES = 400_000_000
# As many may run at once as there are CPUs, so each looks at half of what a single conversion does
# in one go: that of a process with so much memory (`limits.limits_of`).
_MOST_BYTES = 1_200_000_000
_SOURCE = str(Path(__file__).resolve().parents[2])
# Whatever the user's PYTHONPATH and working directory hold.
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from layerscope.ingest.rank_converter import main; sys.exit(main(sys.argv[1:]))"
)


def converted(folders: Mapping[int, Path]) -> dict[int, Path | str]:
    """By rank where the tables of the recordings in `folders` are, or in words why there are
    none.
    """
    if not folders:
        return {}
    at_once, memory_bytes = _share(len(folders))
    started: list[subprocess.Popen[bytes]] = []
    pool = ThreadPoolExecutor(at_once)
    try:
        answers = pool.map(lambda folder: _convert(folder, memory_bytes, started), folders.values())
        return dict(zip(folders, answers, strict=True))
    finally:
        # Reached early only if the user ends us: then nobody waits for what is left.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in started:
            if process.poll() is None:
                process.kill()


def _share(count: int) -> tuple[int, int]:
    """How many conversions there are at once, and the memory that each may take."""
    group = cgroup.facts()
    cpus = min(float(len(os.sched_getaffinity(0))), group.cpus or float("inf"))
    room = memory.available_bytes() // CONVERTER_BYTES
    at_once = max(1, min(count, int(cpus), room))
    return at_once, min(_MOST_BYTES, (group.memory_most_bytes or at_once * _MOST_BYTES) // at_once)


def _convert(folder: Path, memory_bytes: int, started: list[subprocess.Popen[bytes]]) -> Path | str:
    flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
    command = [sys.executable, *flags, "-c", _START, _SOURCE, str(folder.absolute())]
    try:
        process = subprocess.Popen(
            [*command, str(memory_bytes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | CONVERTER_VARIABLES,
        )
    except OSError as error:
        return f"its converter could not be started ({error.strerror})"
    started.append(process)
    out, errors = process.communicate()
    try:
        answer = json.loads(out)
        return Path(answer["tables"]) if "tables" in answer else str(answer["problem"])
    except ValueError:
        return _ended(process.returncode, errors)


def _ended(status: int, errors: bytes) -> str:
    """Why a converter left no answer."""
    if status == -signal.SIGKILL:
        return "its converter was killed (signal 9), as happens where memory is short"
    if status < 0:
        return f"its converter was ended by signal {-status}"
    text = errors.decode("utf-8", "replace")
    last = text.strip().rpartition("\n")[2]
    return f"its converter ended with status {status}" + (f": {last}" if last else "")
