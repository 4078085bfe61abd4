"""What the threads of processes do now, as JSON: a row for each thread, and the stacks beside."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

from layerscope.analyse.result import COUNT, NS, ResultColumn
from layerscope.model.running import FrameNow, Snapshot, ThreadNow
from layerscope.show import json_output

_COLUMNS = (
    ResultColumn("pid", "int64", "", "the process"),
    ResultColumn("rank", "int64", "", "its rank in a distributed job, null: none"),
    ResultColumn("tid", "int64", "", "the thread"),
    ResultColumn("name", "string", "", "how it is called"),
    ResultColumn("state", "string", "", "running, waiting, blocked, stopped or ended"),
    ResultColumn("holds_gil", "bool", "", "whether it holds the GIL"),
    ResultColumn("stack", "int64", "", "which of `stacks` it has"),
    ResultColumn("torn", "bool", "", "whether its stack changed while it was read"),
    ResultColumn("wait", "string", "", "the kind of what it waits for, null: it waits for nothing"),
    ResultColumn("waits_for", "string", "", "the same for people"),
    ResultColumn(
        "rests_ns", "int64", NS, "for how long at least it has not run, null: it runs, or not told"
    ),
    ResultColumn("on", "list", "", "threads and processes that it waits for"),
    ResultColumn("open", "list", "", "open spans of a process that is being recorded"),
    ResultColumn("equal", "int64", COUNT, "how many threads have this stack"),
)


def write(snapshot: Snapshot, stream: BinaryIO) -> None:
    """Write one object and a newline."""
    numbers: dict[tuple[FrameNow, ...], int] = {}
    counts: dict[tuple[FrameNow, ...], int] = {}
    ranks: dict[int, int | None] = {}
    threads: list[ThreadNow] = []
    for process in snapshot.processes:
        ranks[process.pid] = process.rank
        threads += process.threads
    for thread in threads:
        numbers.setdefault(thread.stack, len(numbers))
        counts[thread.stack] = counts.get(thread.stack, 0) + 1
    rows = []
    for thread in threads:
        row = _row(thread, ranks[thread.pid], numbers[thread.stack])
        rows.append([*row, counts[thread.stack]])
    more = {
        "stacks": [list(map(msgspec.to_builtins, stack)) for stack in numbers],
        "deadlocks": [circle.threads for circle in snapshot.deadlocks],
        "processes": [_process(one) for one in snapshot.processes],
    }
    json_output.write_rows(_COLUMNS, rows, stream, "dump", "threads", more)


def _row(thread: ThreadNow, rank: int | None, stack: int) -> list[Any]:
    wait = thread.wait
    return [
        thread.pid,
        rank,
        thread.tid,
        thread.name,
        thread.state,
        thread.has_gil,
        stack,
        thread.is_torn,
        wait.kind if wait else None,
        f"{wait.what} ({wait.note})" if wait and wait.note else wait.what if wait else None,
        thread.rests_ns,
        [msgspec.to_builtins(one) for one in wait.on] if wait else [],
        [msgspec.to_builtins(one) for one in thread.spans],
    ]


def _process(process: Any) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "rank": process.rank,
        "python": process.python,
        "command": process.command,
        "note": process.note,
    }
