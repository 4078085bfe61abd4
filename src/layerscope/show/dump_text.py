"""What the threads of processes do now, as text: one block for all threads with equal stacks."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from typing import TextIO

from layerscope.model.running import (
    COLLECTIVE,
    CUT,
    PYTHON,
    Deadlock,
    FrameNow,
    ProcessNow,
    Snapshot,
    ThreadNow,
    Wait,
    Waited,
)
from layerscope.model.units import elapsed
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
_WORTH_A_WORD_NS = 1_000_000_000
_SHOWN_EQUAL = 2  # frames of a recursion
_ALERT, _HEAD, _NOTE, _PLAIN = "bold red", "bold", "dim", ""
_INDENT = "    "
_OWNED = ("lock", "mutex", "join", "gil")
Line = tuple[str, str]


def write(snapshot: Snapshot, stream: TextIO, is_tree: bool = False) -> None:
    """Print all of it: with styles and frames no wider than the window in a terminal, whole
    elsewhere.
    """
    if not stream.isatty():
        for _, line in lines(snapshot, is_tree):
            stream.write(f"{line}\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=styled(stream), highlight=False)
    for style, line in lines(snapshot, is_tree, console.width):
        console.print(Text(line, style=style), soft_wrap=style != _HEAD)


def lines(snapshot: Snapshot, is_tree: bool = False, width: int | None = None) -> Iterator[Line]:
    """Each line with its style."""
    writer = _Writer(snapshot, is_tree, width)
    found = writer.lines()
    yield from found


def groups(snapshot: Snapshot, is_tree: bool) -> list[list[ThreadNow]]:
    """Threads whose stacks and waits are equal, the odd ones out first; the threads of a process
    are together unless `is_tree`.
    """
    found: dict[object, list[ThreadNow]] = {}
    order: dict[int, int] = {}
    for place, process in enumerate(snapshot.processes):
        order[process.pid] = 0 if is_tree else place
        for thread in process.threads if process.is_read else ():
            key = (order[thread.pid], thread.stack, thread.spans, thread.state, _kind(thread))
            found.setdefault(key, []).append(thread)
    return sorted(found.values(), key=lambda group: (order[group[0].pid], len(group)))


def _kind(thread: ThreadNow) -> tuple[object, ...]:
    """What must be equal of the waits of threads in one block: owners too."""
    wait = thread.wait
    if wait is None:
        return ()
    if wait.kind in _OWNED:
        return wait.kind, wait.on
    return (wait.kind,)


class _Writer:
    def __init__(self, snapshot: Snapshot, is_tree: bool, width: int | None) -> None:
        self._snapshot = snapshot
        self._is_tree = is_tree
        self._width = width
        self._ranks: dict[int, int | None] = {}
        self._threads: dict[tuple[int, int], ThreadNow] = {}
        for process in snapshot.processes:
            self._ranks[process.pid] = process.rank
            for thread in process.threads:
                self._threads[thread.pid, thread.tid] = thread

    def lines(self) -> Iterator[Line]:
        for circle in self._snapshot.deadlocks:
            yield _ALERT, printable(self._deadlock(circle))
        for sentence in self._missing():
            yield _ALERT, printable(sentence)
        for process in self._snapshot.processes:
            if process.threads:
                yield _PLAIN, _fitted(printable(_title(process)), self._width)
            if process.note:
                yield _NOTE, printable(f"Process {process.pid}: {process.note}.")
        for group in groups(self._snapshot, self._is_tree):
            yield _PLAIN, ""
            yield from self._block(group)

    def _deadlock(self, circle: Deadlock) -> str:
        """Each thread of the circle with what it waits for, and
        whose turn it is.
        """
        threads = [self._threads[one] for one in circle.threads]
        waits = [one.wait for one in threads if one.wait is not None]
        is_sure = all(wait.is_sure for wait in waits)
        begin = "Deadlock" if is_sure else "Deadlock, unless a `with` block has released its Lock"
        if len(threads) == 1:
            return f"{begin}: {_name(threads[0])} waits for itself."
        parts = []
        for one, following in zip(threads, [*threads[1:], threads[0]], strict=True):
            on = _led(one.wait, _name(following)) if one.wait else ""
            parts.append(f"{_name(one)} waits for {on}")
        return f"{begin}: {'; '.join(parts)}."

    def _missing(self) -> Iterator[str]:
        """Of each collective the ranks that are not in it."""
        ranks: dict[str, set[int]] = {}
        missing: dict[str, dict[str, str]] = {}
        for thread in self._threads.values():
            rank, wait = self._ranks[thread.pid], thread.wait
            if wait is None or wait.kind != COLLECTIVE or rank is None:
                continue
            ranks.setdefault(wait.what, set()).add(rank)
            for one in wait.on:
                missing.setdefault(wait.what, {})[one.name] = one.how
        for what, others in missing.items():
            name = what.rpartition(" ")[2]
            inside = ", ".join(map(str, sorted(ranks[what])))
            for other, how in others.items():
                word = "rank" if len(ranks[what]) == 1 else "ranks"
                yield f"Missing: {other} {how}; {word} {inside} wait in {name}."

    def _block(self, group: list[ThreadNow]) -> Iterator[Line]:
        """The threads with equal stacks, what is open on them, and the
        stack.
        """
        first = group[0]
        yield _HEAD, printable(f"{self._who(group)} {_does(group)}")
        if first.spans:
            names = [f"{one.name} ({one.kind})" for one in first.spans]
            yield _NOTE, _fitted(printable(f"  in {' > '.join(names)}"), self._width)
        for frame, equal in itertools.groupby(first.stack):
            style = _PLAIN if frame.layer == PYTHON else _NOTE
            count = sum(1 for _ in equal)
            for _ in range(min(count, _SHOWN_EQUAL)):
                yield style, _frame(frame, self._width)
            if count > _SHOWN_EQUAL:
                yield _NOTE, f"{_INDENT}... {count - _SHOWN_EQUAL:,} more times"
        if not first.stack:
            yield _NOTE, f"{_INDENT}(no function could be read)"

    def _who(self, group: list[ThreadNow]) -> str:
        """The threads of a block, by name."""
        if len(group) == 1:
            text = _name(group[0]) + self._of(group[0])
            return text[0].upper() + text[1:]
        count = len(group)
        names = [_short_name(one) + self._of(one) for one in group[:_FEW]]
        if count > _FEW:
            names.append(f"{count - _FEW} more")
        listed = ", ".join(names)
        return f"{count} threads ({listed})"

    def _of(self, thread: ThreadNow) -> str:
        """Whose thread it is, where there are several processes."""
        if not self._is_tree:
            return ""
        rank = self._ranks[thread.pid]
        return f" of process {thread.pid}" if rank is None else f" of rank {rank}"


def _title(process: ProcessNow) -> str:
    """A line about a process: how many threads it has, and
    its command.
    """
    rank = f" (rank {process.rank})" if process.rank is not None else ""
    count = len(process.threads)
    threads = "1 thread" if count == 1 else f"{count} threads"
    python = f"Python {process.python}, " if process.python else ""
    command = shlex.join(process.command)
    return f"Process {process.pid}{rank}, {python}{threads}: {command}"


def _led(wait: Wait, other: str) -> str:
    """What one thread waits for, and what the other one has to do with it."""
    if not all(one.tid for one in wait.on):
        return _wait(wait)
    if not wait.is_sure:
        return f"{wait.what}, in whose `with` block {other} is"
    verb = "which is" if wait.what.endswith("to end") else "which is held by"
    return f"{wait.what}, {verb} {other}"


def _name(thread: ThreadNow) -> str:
    return f"thread {_short_name(thread)}"


def _short_name(thread: ThreadNow) -> str:
    """Its number and its name, where it has
    one.
    """
    number = str(thread.tid)
    return f'{number} "{thread.name}"' if thread.name else number


def _does(group: list[ThreadNow]) -> str:
    """What the threads of a block do: they have the same stack, and
    wait for the same kind of thing.
    """
    first = group[0]
    state = _STATES[first.state] if len(group) == 1 else _PLURALS[first.state]
    if first.has_gil:
        state += " and holds the GIL" if len(group) == 1 else ""
    torn = " (its stack changed while it was read)" if first.is_torn else ""
    lasting = _lasting(group)
    if first.wait is None:
        return state + lasting + torn
    waits = "waits" if len(group) == 1 else "wait"
    has_one = all(one.wait == first.wait for one in group)
    text = f"{waits} for {_wait(first.wait) if has_one else first.wait.what}{lasting}{torn}"
    return text if first.state in ("waiting", "running") else f"{state}; {text}"


def _lasting(group: list[ThreadNow]) -> str:
    """For how long at least none of these threads has run, if that is worth a word."""
    known = [one.rests_ns for one in group if one.rests_ns is not None]
    shortest_ns = min(known) if len(known) == len(group) else 0
    return f", for at least {elapsed(shortest_ns)}" if shortest_ns >= _WORTH_A_WORD_NS else ""


_PLURALS = {
    "running": "run",
    "stopped": "are stopped",
    "blocked": "are blocked in the kernel",
    "waiting": "wait",
    "ended": "have ended",
}


def _wait(wait: Wait) -> str:
    """What is waited for, on whom, and what is not known of
    that.
    """
    others = [_waited(one) for one in wait.on[:_FEW]]
    if len(wait.on) > _FEW:
        others.append(f"{len(wait.on) - _FEW} more")
    on = f": {', '.join(others)}" if others else ""
    note = f" ({wait.note})" if wait.note else ""
    return f"{wait.what}{on}{note}"


def _waited(one: Waited) -> str:
    """Who is waited for and why, as part of a sentence: a rank
    by its number alone.
    """
    if one.name.startswith("rank "):
        who = one.name
    elif one.tid:
        who = f'thread {one.tid} "{one.name}"'
    else:
        who = f"process {one.pid} ({one.name})"
    return f"{who} {one.how}".rstrip()


def _frame(frame: FrameNow, width: int | None) -> str:
    """A line of a stack: the function, its file and line; of a
    native one without source its library.
    """
    name = printable(frame.name)
    if frame.layer == CUT:
        return f"{_INDENT}{name}"
    line = f":{frame.line}" if frame.line else ""
    path = printable(_from_package(frame.file or frame.object))
    if width is not None:
        room = width - len(_INDENT) - display_width(name) - len(" ()") - len(line)
        path = _end_of(path, room)
    text = f"{_INDENT}{name} ({path}{line})" if path else f"{_INDENT}{name}"
    return _fitted(text, width)


def _from_package(path: str) -> str:
    """Files of libraries from their package on."""
    for folder in _LIBRARIES:
        if folder in path:
            return path.rpartition(folder)[2]
    return path


def _end_of(path: str, room: int) -> str:
    """The end of the path that has room, at least its file: its folders say less, the outermost
    ones least of all.
    """
    if display_width(path) <= room:
        return path
    name = path.rpartition("/")[2]
    if room <= len(name) + 1:
        return name
    shown = max(room - 1, 1)
    end = path[-shown:]
    return f"…{end}"


def _fitted(text: str, width: int | None) -> str:
    """No wider than the window; None: it may be as wide as it
    is.
    """
    if width is None or display_width(text) <= width:
        return text
    last = max(width - 1, 1)
    return f"{text[:last]}…"
