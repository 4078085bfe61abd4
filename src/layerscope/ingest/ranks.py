"""What is said of the recordings of several ranks read as one: who is missing, and what each said
at its end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict

from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.rawfile import raw_file
from layerscope.rawfile.json_files import read_session
from layerscope.recording import ranks
from layerscope.recording.complete import read_state
from layerscope.recording.run import RANKS, Run, RunInfo

_MOST_NAMED = 8
# What `small_tables` says of the processes of one.
_UNREAD = re.compile(r"(.+) of (?:process \d+|(\d+) processes) (could not be read: .+)", re.DOTALL)
# What is said of all ranks together.
_KILLED = "session_killed"
# Problems of a recording only if all of its ranks have them.
_OF_ALL = {"no_step_mark", "window_never_opened", "window_cut"}


def rank_of(raw: Path) -> str:
    """Of the raw folder of one of several ranks the name of its recording's folder, else empty."""
    folder = raw.absolute().parent
    return folder.name if folder.parent.name == RANKS and folder.name.isdecimal() else ""


def problems_of_recording(
    run: Run,
    everyone: Mapping[int, Run],
    whole: Mapping[int, Run],
    unread: Mapping[int, str],
    is_alive: Callable[[Run], bool],
) -> list[dict[str, str]]:
    """What no rank can say of itself: which ones are missing, were killed, or could not be read.

    `whole`: the ranks that have tables; `unread`: of others why they have none. `is_alive` says of
    a rank whether it goes on.
    """
    found = [*_missing(run, everyone, whole, unread), *_killed(everyone, is_alive)]
    whose: dict[str, list[int]] = {}
    for rank, why in unread.items():
        whose.setdefault(why, []).append(rank)
    found += [_unread(those, why) for why, those in whose.items()]
    found += ranks.read_problems(run.path)
    return [asdict(problem) for problem in found]


def _unread(those: list[int], why: str) -> Problem:
    return Problem(
        OPERATORS,
        "rank_unread",
        f"{_named(those)} could not be read: {why}",
        "the other ranks are here; open the recording again when that is mended",
        "everything of this rank" if len(those) == 1 else "everything of these ranks",
    )


def joined_info(run: Run, is_alive: Callable[[Run], bool]) -> RunInfo:
    """`run.json` of all ranks together; one that was left running counts as killed unless it
    `is_alive`.
    """
    infos = []
    for part in ranks.parts(run.path).values():
        info = part.info
        if info.state == "running" and not is_alive(part):
            info.state = "killed"
        infos.append(info)
    return ranks.merged(run.info, infos)


def _missing(
    run: Run, parts: Mapping[int, Run], whole: Mapping[int, Run], unread: Mapping[int, str]
) -> list[Problem]:
    launch = ranks.read_launch(run.path)
    expected = launch.expected() if launch else []
    found = []
    absent = [rank for rank in expected if rank not in parts and rank not in unread]
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
    away = [
        rank
        for rank, part in parts.items()
        if rank not in whole and part.raw.is_symlink() and not part.raw.exists()
    ]
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
        if rank not in away and rank not in unread and _is_empty(part, whole.get(rank))
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


def _is_empty(part: Run, whole: Run | None) -> bool:
    """Whether a rank recorded no process; `whole`: itself, if it has tables."""
    if whole is None:
        return not raw_file.has_raw_files(part.raw)
    state = read_state(whole.tables_path)
    if state is None:
        return False
    return not state.rows.get("processes", 1)


def _killed(parts: Mapping[int, Run], is_alive: Callable[[Run], bool]) -> list[Problem]:
    dead = [
        rank
        for rank, part in parts.items()
        if part.info.state != "finished" and not read_session(part.raw) and not is_alive(part)
    ]
    if not dead:
        return []
    return [
        Problem(
            OPERATORS,
            _KILLED,
            f"layerscope itself was killed on {_named(dead)} before the program ended",
            "what had been drained by then is here; give the job time to end by itself",
            "on these ranks everything after that moment, and how the program ended",
        )
    ]


def problems_of_tables(problems: Mapping[str, Sequence[dict[str, str]]]) -> list[dict[str, str]]:
    """The problems that stand in the tables of the ranks, as those of the recording."""
    codes = [{problem["code"] for problem in of_rank} for of_rank in problems.values()]
    everywhere = set.intersection(*codes) if codes else set()
    left_out = {_KILLED, *(_OF_ALL - everywhere)}
    kept = {
        rank: [
            problem
            for problem in of_rank
            if problem["code"] not in left_out and not _UNREAD.fullmatch(problem["what"])
        ]
        for rank, of_rank in problems.items()
    }
    everything = [problem for of_rank in problems.values() for problem in of_rank]
    return [*problems_of_ranks(kept), *_unread_together(everything)]


def _unread_together(problems: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Of what could not be read of processes one row each, with their number over all ranks."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], dict[str, str]] = {}
    for problem in problems:
        unread = _UNREAD.fullmatch(problem["what"])
        if unread is None:
            continue
        subject, number, verb = unread.groups()
        counts[subject, verb] += int(number or 1)
        first.setdefault((subject, verb), problem)
    found = []
    for (subject, verb), problem in first.items():
        count = counts[subject, verb]
        if count > 1:
            problem = {**problem, "what": f"{subject} of {count} processes {verb}"}
        found.append(problem)
    return found


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
