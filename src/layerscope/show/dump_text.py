"""What the threads of processes do now, as text: one block for all threads with equal stacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TextIO

from layerscope.model.running import (
    CUT,
    PYTHON,
    Deadlock,
    Frame,
    ProcessNow,
    Snapshot,
    ThreadNow,
    Wait,
)
from layerscope.show.screen import printable, styled
from layerscope.show.terminal import display_width

_STATES = {
    "running": "runs",
    "stopped": "is stopped",
    "blocked": "is blocked in the kernel",
    "waiting": "waits",
    "ended": "has ended",
}
_LIBRARIES = ("/site-packages/", "/dist-packages/")
_FEW = 6
_ALERT, _HEAD, _NOTE, _PLAIN = "bold red", "bold", "dim", ""
Line = tuple[str, str]


def write(snapshot: Snapshot, stream: TextIO, is_tree: bool = False) -> None:
    """Print all of it: with styles and no wider than the window in a terminal, whole elsewhere."""
    if not stream.isatty():
        for _, line in lines(snapshot, is_tree):
            stream.write(f"{line}\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=styled(stream), highlight=False)
    for style, line in lines(snapshot, is_tree, console.width):
        console.print(Text(line, style=style), soft_wrap=True)


def lines(snapshot: Snapshot, is_tree: bool = False, width: int | None = None) -> Iterator[Line]:
    """Each line with its style."""
    names = {(one.pid, one.tid): one for process in snapshot.processes for one in process.threads}
    for circle in snapshot.deadlocks:
        yield _ALERT, printable(_deadlock(circle, names))
    for process in snapshot.processes:
        yield _HEAD, _fit(printable(_title(process)), width)
    for problem in snapshot.problems:
        yield _NOTE, printable(problem)
    for group in groups(snapshot, is_tree):
        yield "", ""
        yield from _block(group, snapshot, is_tree, width)


def groups(snapshot: Snapshot, is_tree: bool) -> list[list[ThreadNow]]:
    """Threads whose stacks and waits are equal, the odd ones out first; the threads of a process
    are together unless `is_tree`.
    """
    found: dict[object, list[ThreadNow]] = {}
    for process in snapshot.processes:
        for thread in process.threads:
            kind = thread.wait.kind if thread.wait else ""
            key = (0 if is_tree else thread.pid, thread.stack, thread.state, kind)
            found.setdefault(key, []).append(thread)
    order = {process.pid: place for place, process in enumerate(snapshot.processes)}
    return sorted(
        found.values(),
        key=lambda group: (0 if is_tree else order[group[0].pid], len(group)),
    )


def _title(process: ProcessNow) -> str:
    rank = f" (rank {process.rank})" if process.rank is not None else ""
    count = len(process.threads)
    threads = f"{count} thread{'s' if count > 1 else ''}"
    python = f"Python {process.python}, " if process.python else ""
    return f"Process {process.pid}{rank}, {python}{threads}: {shlex.join(process.command)}"


def _deadlock(circle: Deadlock, names: dict[tuple[int, int], ThreadNow]) -> str:
    threads = [names[one] for one in circle.threads if one in names]
    if len(threads) == 1:
        return f"Deadlock: {_name(threads[0])} waits for itself."
    parts = []
    for one, following in zip(threads, [*threads[1:], threads[0]], strict=True):
        what = one.wait.what if one.wait else "it"
        parts.append(f"{_name(one)} waits for {what} of {_name(following)}")
    return f"Deadlock: {', and '.join(parts)}."


def _name(thread: ThreadNow) -> str:
    return f'thread {thread.tid} "{thread.name}"' if thread.name else f"thread {thread.tid}"


def _block(
    group: list[ThreadNow], snapshot: Snapshot, is_tree: bool, width: int | None
) -> Iterator[Line]:
    first = group[0]
    yield _HEAD, printable(f"{_who(group, snapshot, is_tree)} {_does(group)}")
    for frame in first.stack:
        yield (_PLAIN if frame.layer == PYTHON else _NOTE), _frame(frame, width)
    if not first.stack:
        yield _NOTE, "    (no frame could be read)"


def _who(group: list[ThreadNow], snapshot: Snapshot, is_tree: bool) -> str:
    if len(group) == 1 and not is_tree:
        text = _name(group[0])
        return text[0].upper() + text[1:]
    ranks = {process.pid: process.rank for process in snapshot.processes}
    where = []
    for thread in group[:_FEW]:
        rank = ranks.get(thread.pid)
        of = f" of rank {rank}" if rank is not None else f" of process {thread.pid}"
        where.append(_name(thread).removeprefix("thread ") + (of if is_tree else ""))
    more = f" and {len(group) - _FEW} more" if len(group) > _FEW else ""
    title = f"{len(group)} threads" if len(group) > 1 else "Thread"
    joint = ":" if len(group) > 1 else ""
    return f"{title}{joint} {', '.join(where)}{more}" + (";" if len(group) > 1 else "")


def _does(group: list[ThreadNow]) -> str:
    first = group[0]
    state = _STATES[first.state]
    torn = " (its stack changed while it was read)" if first.is_torn else ""
    if first.wait is None:
        return state + torn
    wait = _wait(first.wait)
    verb = "each waits for" if len(group) > 1 else "waits for"
    stopped = f"{state}; it " if first.state == "stopped" else ""
    return f"{stopped}{verb} {wait}{torn}"


def _wait(wait: Wait) -> str:
    others = []
    for one in wait.on[:_FEW]:
        if one.tid:
            who = f'thread {one.tid} "{one.name}"'
        else:
            who = f"process {one.pid} ({one.name})"
        if one.name.startswith("rank "):
            who = one.name
        others.append(f"{who} {one.how}".rstrip())
    if len(wait.on) > _FEW:
        others.append(f"{len(wait.on) - _FEW} more")
    on = f": {', '.join(others)}" if others else ""
    note = f" ({wait.note})" if wait.note else ""
    return f"{wait.what}{on}{note}"


def _frame(frame: Frame, width: int | None) -> str:
    if frame.layer == CUT:
        return f"    {frame.name}"
    line = f":{frame.line}" if frame.line else ""
    path = _short(frame.file or frame.object)
    room = None if width is None else width - display_width(printable(frame.name)) - 8 - len(line)
    place = _tail(printable(path), room) + line
    name = printable(frame.name)
    text = f"    {name} ({place})" if place else f"    {name}"
    return _fit(text, width)


def _short(path: str) -> str:
    """Files of libraries from their package on."""
    for folder in _LIBRARIES:
        if folder in path:
            return path.rpartition(folder)[2]
    return path


def _tail(path: str, room: int | None) -> str:
    if room is None or display_width(path) <= room:
        return path
    name = path.rpartition("/")[2]
    shorter = f"…{path[len(path) - max(room - 1, 1) :]}"
    return shorter if room > len(name) + 1 else name


def _fit(text: str, width: int | None) -> str:
    if width is None or display_width(text) <= width:
        return text
    return text[: max(width - 1, 1)] + "…"
