"""A recording of several ranks: one folder, and in it the whole recording of every rank.

    train-4711.layerscope/run.json, launch.json, ranks/0/run.json, ranks/0/raw/, ranks/1/run.json,
    ...

Every rank writes into its own folder only. Whoever comes first makes the outer one, under another
name and then by rename, so that nobody sees half of it; its `run.json` is written again by the
first of the recorded ranks.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from layerscope.model.errors import ReadError, RunError
from layerscope.model.events import Problem
from layerscope.model.stored_json import Int32, decoded
from layerscope.recording.run import (
    RANKS,
    ExitState,
    LayerState,
    ProgramState,
    RecordingCost,
    Run,
    RunInfo,
)

LAUNCH = "launch.json"
# What is wrong with a folder of traces that was made into a recording.
PROBLEMS = "problems.json"
# Below a million, as the size of a world is.
_RANK = re.compile(r"0|[1-9][0-9]{0,5}")


class LaunchInfo(msgspec.Struct):
    """`launch.json`: to which launch the ranks belong, and which of them are recorded (None:
    all).
    """

    key: str
    launcher: str
    job: str
    world_size: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    recorded: list[Int32] | None = None

    def expected(self) -> list[int]:
        """The ranks that should have a recording."""
        everybody = range(self.world_size)
        recorded = self.recorded
        if recorded is None:
            return list(everybody)
        return [rank for rank in everybody if rank in recorded]


def join(path: Path, launch: LaunchInfo, rank: int, info: RunInfo) -> Run | None:
    """A new recording of `rank` in the one at `path`, which is made if there is none.

    None when what is at `path` belongs to another launch or has this rank already.
    """
    if not path.exists():
        _make(path, launch, info)
    found = read_launch(path)
    if found is None or found.key != launch.key or (not launch.job and _is_finished(path)):
        return None
    try:
        return Run.create(path / RANKS / str(rank), info)
    except RunError as error:
        if isinstance(error.__cause__, FileExistsError):
            return None
        raise


def _make(path: Path, launch: LaunchInfo, info: RunInfo) -> None:
    """The outer folder, whole from the first moment; another rank may be faster."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        run_id = secrets.token_hex(8)
        own_info = msgspec.structs.replace(info, run_id=run_id)
        outer = Run.create(draft, own_info)
        (outer.path / "raw").rmdir()
        (draft / RANKS).mkdir()
        (draft / LAUNCH).write_bytes(msgspec.json.encode(launch))
        os.rename(draft, path)
    except (RunError, OSError) as error:
        if path.exists():  # another rank was faster
            return
        why: Exception = error
        if isinstance(error.__cause__, OSError):
            why = error.__cause__
        reason = why.strerror if isinstance(why, OSError) else why
        raise RunError(
            f"cannot make the recording {path}: {reason}. Choose another place with -o"
        ) from why
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_launch(path: Path) -> LaunchInfo | None:
    """The launch that the recording at `path` belongs to; None when it is no recording of several
    ranks.
    """
    try:
        return decoded((path / LAUNCH).read_bytes(), LaunchInfo)
    except (OSError, ValueError):
        return None


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Note what is wrong with the recording at `path` as a whole."""
    (path / PROBLEMS).write_bytes(msgspec.json.encode(problems))


def read_problems(path: Path) -> list[Problem]:
    """What `write_problems` noted; none where there is nothing to read."""
    try:
        return decoded((path / PROBLEMS).read_bytes(), list[Problem])
    except (OSError, ValueError):
        return []


def _is_finished(path: Path) -> bool:
    with contextlib.suppress(ReadError):
        return Run.open(path).info.state == "finished"
    return False


def parts(path: Path) -> dict[int, Run]:
    """The recordings of the ranks in the one at `path`, by rank. One without a readable `run.json`
    is left out.
    """
    found = {}
    for rank, folder in folders(path).items():
        with contextlib.suppress(ReadError):
            found[rank] = Run.open(folder)
    return found


def folders(path: Path) -> dict[int, Path]:
    """The folders of the ranks in the recording at `path`, by rank."""
    by_rank = {}
    found = (path / RANKS).iterdir()
    for folder in found:
        if _RANK.fullmatch(folder.name):
            by_rank[int(folder.name)] = folder
    ordered = sorted(by_rank.items())
    return dict(ordered)


def merged(outer: RunInfo, infos: Sequence[RunInfo]) -> RunInfo:
    """What `run.json` would say about all ranks together: sums, the longest time, the first bad
    end.

    The run's clock is that of the first rank's host.
    """
    if not infos:
        return outer
    first = infos[0]
    states = [info.state for info in infos]
    return msgspec.structs.replace(
        outer,
        state=next((state for state in ("running", "killed") if state in states), "finished"),
        host=_host(infos),
        start_ns=first.start_ns,
        started_utc=min(info.started_utc for info in infos),
        finished_utc=max(info.finished_utc for info in infos),
        exit=next(
            (info.exit for info in infos if info.exit.code or info.exit.signal),
            first.exit or ExitState(),
        ),
        program=ProgramState(
            max(info.program.wall_ns for info in infos),
            *(
                _known_sum(getattr(info.program, name) for info in infos)
                for name in ProgramState.__struct_fields__[1:]
            ),
        ),
        cost=RecordingCost(
            *(
                sum(getattr(info.cost, name) for info in infos)
                for name in RecordingCost.__struct_fields__
            )
        ),
        layers=_layers(infos),
        versions=first.versions,
    )


def _host(infos: Sequence[RunInfo]) -> dict[str, Any]:
    """That of the first rank, with the CPUs of all hosts together; ranks on one host share them."""
    of_host = {info.host.get("name"): info.granted_cpus or 0 for info in infos}
    cpu = infos[0].host_fact("cpu")
    return {
        **infos[0].host,
        "cpu": {**(cpu if isinstance(cpu, dict) else {}), "granted": sum(of_host.values()) or None},
    }


def _layers(infos: Sequence[RunInfo]) -> list[LayerState]:
    found: dict[str, LayerState] = {}
    for info in infos:
        for layer in info.layers:
            total = found.get(layer.name)
            if total is None:
                total = LayerState(layer.name, layer.state, layer.problem)
                found[layer.name] = total
            _add_to(total, layer)
    return list(found.values())


def _add_to(total: LayerState, layer: LayerState) -> None:
    """Add what one rank says of a layer to what all of them say."""
    if layer.state == "recorded":
        total.state = layer.state
    total.records += layer.records
    total.dropped += layer.dropped
    total.cpu_ns += layer.cpu_ns
    total.bytes += layer.bytes


def _known_sum(values: Iterable[int | None]) -> Any:
    """The sum over the ranks that know theirs; None when none does."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known)
