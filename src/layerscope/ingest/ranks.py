"""The recordings of several ranks read as one: whose clock, who is missing, and what each said at
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.rawfile import host_clocks, raw_file
from layerscope.rawfile.json_files import read_session
from layerscope.recording import ranks
from layerscope.recording.run import Run, RunInfo

_MOST_NAMED = 8


def joined_session(run: Run, is_alive: Callable[[Run], bool]) -> dict[str, Any]:
    """What the sessions of all ranks left for the converter; `is_alive` says of a rank whether it
    goes on.

    Beside the `problems`: by folder of the rank, its own session in `ranks`, and in `shifts_ns`
    what puts its times on the clock of the first one's host.
    """
    parts = ranks.parts(run.path)
    shifts_ns, problems = host_clocks.shifts({rank: part.raw for rank, part in parts.items()})
    sessions = {rank: read_session(part.raw) for rank, part in parts.items()}
    for rank, session in sessions.items():
        if session.get("end_ns"):
            session["end_ns"] += shifts_ns.get(rank, 0)
    named = {str(rank): session for rank, session in sessions.items()}
    return {
        "ranks": named,
        "shifts_ns": {str(rank): shift_ns for rank, shift_ns in shifts_ns.items()},
        "problems": [
            *(
                asdict(problem)
                for problem in [
                    *_missing(run, parts),
                    *_killed(parts, sessions, is_alive),
                    *problems,
                ]
            ),
            *problems_of_ranks({rank: said.get("problems", []) for rank, said in named.items()}),
        ],
    }


def joined_info(run: Run, is_alive: Callable[[Run], bool]) -> RunInfo:
    """`run.json` of all ranks together; one that was left running counts as killed unless it
    `is_alive`.
    """
    infos = []
    for part in ranks.parts(run.path).values():
        if part.info.state == "running" and not is_alive(part):
            part.info.state = "killed"
        infos.append(part.info)
    return ranks.merged(run.info, infos)


def _missing(run: Run, parts: dict[int, Run]) -> list[Problem]:
    launch = ranks.read_launch(run.path)
    expected = launch.expected() if launch else []
    found = []
    absent = [rank for rank in expected if rank not in parts]
    if launch and absent:
        found.append(
            Problem(
                OPERATORS,
                "rank_missing",
                f"{_named(absent)} of {launch.world_size} never began to record",
                "look at what the launcher printed about them; wait, if they are still to start",
                "everything of these ranks",
            )
        )
    away = [rank for rank, part in parts.items() if part.raw.is_symlink() and not part.raw.exists()]
    for rank in away:
        host, place = parts[rank].info.host.get("name"), parts[rank].raw.readlink()
        found.append(
            Problem(
                OPERATORS,
                "rank_elsewhere",
                f"the raw files of rank {rank} are still on its host",
                f"copy {place} from {host} to {parts[rank].raw} (it was killed before it could do "
                "that itself)",
                "everything of this rank",
            )
        )
    empty = [
        rank
        for rank, part in parts.items()
        if rank not in away and not raw_file.has_raw_files(part.raw)
    ]
    if empty:
        found.append(
            Problem(
                OPERATORS,
                "rank_empty",
                f"{_named(empty)} recorded nothing",
                "look at the problems in the recording of such a rank",
                "everything of these ranks",
            )
        )
    return found


def _killed(
    parts: dict[int, Run], sessions: dict[int, dict[str, Any]], is_alive: Callable[[Run], bool]
) -> list[Problem]:
    dead = [
        rank
        for rank, part in parts.items()
        if part.info.state != "finished" and not sessions[rank] and not is_alive(part)
    ]
    if not dead:
        return []
    return [
        Problem(
            OPERATORS,
            "session_killed",
            f"layerscope itself was killed on {_named(dead)} before the program ended",
            "what had been drained by then is here; give the job time to end by itself",
            "on these ranks everything after that moment, and how the program ended",
        )
    ]


def problems_of_ranks(problems: Mapping[str, Sequence[dict[str, str]]]) -> list[dict[str, str]]:
    """The problems of the ranks, each once, with the ranks that have it unless all have. Those of
    rank "" are of the whole recording.
    """
    everyone = [rank for rank in problems if rank]
    who: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for rank, of_rank in problems.items():
        for problem in of_rank:
            who.setdefault(tuple(problem.items()), []).append(rank)
    found = []
    for items, those in who.items():
        problem = dict(items)
        ranks = [rank for rank in those if rank]
        if 0 < len(ranks) < len(everyone):
            problem["what"] += f" ({_named(ranks)})"
        found.append(problem)
    return found


def _named(those: Sequence[int | str]) -> str:
    listed = ", ".join(map(str, those[:_MOST_NAMED])) + (
        ", ..." if len(those) > _MOST_NAMED else ""
    )
    return f"rank {listed}" if len(those) == 1 else f"{len(those)} ranks ({listed})"
