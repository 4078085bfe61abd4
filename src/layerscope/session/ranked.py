"""`layerscope run` as one rank of several: all of them record into one folder, and the first one
speaks for all.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from layerscope.capture.launchers import Launch
from layerscope.ingest.open import left_bytes, open_run
from layerscope.ingest.ranks import joined_info
from layerscope.model.errors import UsageError
from layerscope.rawfile.raw_file import raw_bytes
from layerscope.recording import ranks
from layerscope.recording.run import SUFFIX, Run, RunInfo

# How long the first rank waits at its end for those that still run or write.
PATIENCE_S = 5.0
_POLL_S = 0.1
# Of ranks that have no tables yet, raw files up to this size are converted at the end: about 10 M
# spans, some seconds. Larger ones are read when somebody opens the recording.
_CONVERT_AT_ONCE_BYTES = 50_000_000
# All of them are summed up then, up to this size of all ranks together: two seconds for 100 MB.
_SUM_AT_ONCE_BYTES = 200_000_000


def launch_info(launch: Launch, chosen: Sequence[int]) -> ranks.LaunchInfo:
    """What the outer folder says about the launch."""
    some = list(chosen) or None
    return ranks.LaunchInfo(launch.key, launch.launcher, launch.job, launch.world_size, some)


def is_first(launch: Launch, chosen: Sequence[int]) -> bool:
    """Whether this rank speaks for all: it is the first of those that are recorded."""
    expected = launch_info(launch, chosen).expected()
    first = min(expected, default=launch.rank)
    return launch.rank == first


def create_named(path: Path, launch: Launch, chosen: Sequence[int], info: RunInfo) -> Run:
    """The recording of this rank in the one that is called `path`. UsageError when that is another
    launch's.
    """
    recording = ranks.join(path, launch_info(launch, chosen), launch.rank, info)
    if recording is None:
        raise UsageError(
            f"{path.name} exists already and rank {launch.rank} cannot join it. Remove it, or "
            "choose another with -o"
        )
    return recording


def create_here(
    folder: Path, stem: str, launch: Launch, chosen: Sequence[int], info: RunInfo
) -> Run:
    """The recording of this rank in the first of `stem-JOB`, `stem-JOB-2`, ... in `folder` that it
    can join.
    """
    name = f"{stem}-{launch.job}" if launch.job else stem
    for number in itertools.count(1):
        numbered = name if number == 1 else f"{name}-{number}"
        path = folder / f"{numbered}{SUFFIX}"
        recording = ranks.join(path, launch_info(launch, chosen), launch.rank, info)
        if recording is not None:
            return recording
    raise AssertionError("unreachable")


def read_together(recording: Run) -> Run | None:
    """All ranks that are there, when the first one has ended. None: too much to read before the
    prompt comes back.

    Waits a little for the others; those that go on are in whatever is opened later.
    """
    outer = Run.open(recording.path.parent.parent)
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up and _somebody_works(outer, recording):
        time.sleep(_POLL_S)
    info = joined_info(outer, lambda part: part.info.state == "running")
    Run(outer.path, msgspec.structs.replace(info, state="finished")).save()
    if left_bytes(outer.path) > _CONVERT_AT_ONCE_BYTES or raw_bytes(outer.raw) > _SUM_AT_ONCE_BYTES:
        return None
    return open_run(outer.path)


def _somebody_works(outer: Run, mine: Run) -> bool:
    return any(
        run.info.state == "running"
        for run in ranks.parts(outer.path).values()
        if run.path != mine.path
    )
