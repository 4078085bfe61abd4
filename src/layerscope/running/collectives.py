"""The ranks of a distributed job: which of them are in a collective, and which one is missing."""

from __future__ import annotations

from layerscope.model.frameworks import collective_functions
from layerscope.model.running import PYTHON, Frame, Wait, Waited
from layerscope.running import processes
from layerscope.running.looked import Look
from layerscope.running.raw_threads import RawThread

# As launchers tell each process its rank.
_RANK = "RANK"
_WORLD = "WORLD_SIZE"
Thread = tuple[int, int]


def rank_of(pid: int) -> int | None:
    """Its rank in a distributed job of more than one process; None: it is in none."""
    told = processes.environment(pid, (_RANK, _WORLD))
    rank, world = told.get(_RANK, ""), told.get(_WORLD, "")
    is_one = rank.isdecimal() and world.isdecimal() and int(rank) < int(world)
    return int(rank) if is_one else None


def add(seen: Look, waits: dict[Thread, Wait]) -> None:
    """Say of each thread in a collective which ranks are not in it, in place of what its system call
    waits for.
    """
    ranks = _ranks(seen)
    inside = {one.thread: name for one in seen.raw.threads if (name := _collective(one, seen))}
    if not inside or len(ranks) < 2:  # noqa: PLR2004
        return
    for thread in seen.raw.threads:
        name = inside.get(thread.thread)
        if name is None:
            continue
        missing = []
        for rank, pid in ranks.items():
            of_rank = [one for one in seen.raw.threads if one.pid == pid]
            if pid != thread.pid and name not in [inside.get(one.thread) for one in of_rank]:
                missing.append(_missing(rank, of_rank, inside, seen))
        note = "" if missing else "all ranks that are here are in it"
        what = f"the other ranks of the collective {name}"
        waits[thread.pid, thread.thread] = Wait("collective", what, tuple(missing), note)


def _ranks(seen: Look) -> dict[int, int]:
    """The process of each rank: of several with the same, such as workers that it has started, the
    outermost one.
    """
    found: dict[int, int] = {}
    for process in seen.raw.processes:
        rank = rank_of(process.process)
        if rank is not None:
            found.setdefault(rank, process.process)
    return dict(sorted(found.items()))


def _collective(thread: RawThread, seen: Look) -> str:
    """The function of the framework that the program has called for it; "": it is in none."""
    found = ""
    for frame in thread.frames:
        for one in seen.names.named(thread.pid, frame):
            found = found or _name(one)
    return found


def _name(frame: Frame) -> str:
    for layer, function, file, name in collective_functions():
        is_file = not file or frame.file.endswith(file)
        if frame.layer == layer and is_file and function.search(frame.name):
            return name or frame.name
    return ""


def _missing(rank: int, threads: list[RawThread], inside: dict[int, str], seen: Look) -> Waited:
    main = threads[0] if threads else None
    if main is None:
        return Waited(0, 0, f"rank {rank}", "could not be looked at")
    where = _own_line(seen.python_stack(main))
    elsewhere = [inside[one.thread] for one in threads if one.thread in inside]
    how = f"is in {elsewhere[0]}" if elsewhere else "is not in it"
    return Waited(main.pid, main.thread, f"rank {rank}", f"{how}, but {where}" if where else how)


def _own_line(stack: list[Frame]) -> str:
    for frame in stack:
        if frame.layer == PYTHON and "/site-packages/" not in frame.file and frame.line:
            return f"at {frame.file.rpartition('/')[2]}:{frame.line} ({frame.name})"
    return ""
