"""Convert the raw files of a recording into tables while they grow (internal).

Started beside the program. The session asks on standard input, one line of JSON for each request:
first to finish, when the recording is complete, then for the summary. Each answer is a line of
JSON. Where the session was killed, standard input closes when the drainer has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from layerscope.session.conversion_requests import SUMMARISE

if TYPE_CHECKING:
    from layerscope.host.cgroup import Cgroup
    from layerscope.ingest.conversion import RunConversion

# How often it looks whether there is enough to convert. Little is left for the end, and large
# batches cost less than small ones: two million spans take some 12 MB, and two seconds.
POLL_S = 1.0
ENOUGH_BYTES = 12 << 20
# Of a recording that must stay small it takes less at once.
ENOUGH_SHARE = 0.05
# The program and the drainer come first: while they leave no core free the conversion waits, and
# catches up when they do. What waits is converted in about two seconds at the end; more than
# that is not left to it.
LEAST_FREE_CPUS = 0.5
WAITING_BYTES = 16 << 20
# When so much of what the recording may take is still to be read, records
# are lost in any case: then it takes more.
NICE, NICE_BEHIND = 10, 5
BEHIND_SHARE = 0.4
# When it has found nothing to do so often, there is time to prepare for the end.
IDLE_POLLS = 3
# After so many records of each process it is asked again how much is left.
AT_ONCE_RECORDS = 1_000_000
# What a framework tells late may show that all has to be converted anew: after so many times that
# waits for the end.
MOST_BEGINNINGS = 3
# A pod of this size has no room for a conversion beside the program: it comes after the end.
SMALL_BYTES = 1 << 30
SMALL_CPUS = 1.0


def convert_beside(raw: Path, tables: Path, run_id: str) -> int:
    """Convert until the recording is complete, finish, and answer what the session asks."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    from layerscope.ingest.heap import collect_rarely

    collect_rarely()
    from layerscope.ingest.open import growing

    with growing(raw):
        conversion = convert_while_growing(raw, tables, run_id)
    _answer(_about(conversion))
    del conversion
    for request in iter(_read_request, None):
        if request["request"] == SUMMARISE:
            _answer(_summary(tables, request))
    return 0


def _about(conversion: RunConversion) -> dict[str, Any]:
    """What the session wants to know of the tables."""
    events = [process.events for process in conversion.processes]
    return {
        "cpu_ns": time.process_time_ns(),
        "rows": conversion.rows,
        "tables": str(conversion.tables),
        "records": sum(one.records for one in events),
        "dropped": sum(loss.lost or 0 for one in events for loss in one.losses),
        "agent_cpu_ns": sum(one.final.get("agent_cpu_ns", 0) for one in events),
        "backward": sum(process.backward for process in conversion.processes),
        "thinned": conversion.parts.most_weight,
        "sampled": conversion.stacks.counts(),
        "used": conversion.used,
    }


def _summary(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The summary of the recording at `path`, and what this process has cost up to there."""
    import msgspec

    from layerscope.analyse.recording_cost import cost_of
    from layerscope.analyse.summary import summarise
    from layerscope.model.errors import LayerscopeError
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import Run, RunInfo
    from layerscope.show.summary import text

    info = msgspec.convert(request["info"], RunInfo)
    run = Run(path, info)
    run.tables_path = Path(request["tables"])
    try:
        with Reader(run, threads=1) as reader:
            summary = summarise(reader)
            info.cost.converter_cpu_ns = time.process_time_ns()
            cost = replace(cost_of(info), of_steps=summary.cost.of_steps)
            shown = text(replace(summary, cost=cost))
    except (LayerscopeError, OSError) as error:
        return {"unread": str(error), "cpu_ns": time.process_time_ns()}
    return {"text": shown, "cpu_ns": info.cost.converter_cpu_ns}


def _read_request() -> dict[str, Any] | None:
    """The next request of the session; None where there is none, and no other will come."""
    line = sys.stdin.buffer.readline()
    if not line:
        return None
    request: dict[str, Any] = json.loads(line)
    return request


def _answer(answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody reads it when the session was killed
        os.write(1, json.dumps(answer).encode() + b"\n")


def convert_while_growing(raw: Path, tables: Path, run_id: str) -> RunConversion:
    """The finished conversion of `raw`: in `tables`, or in the cache when the disk there is
    full.
    """
    # Imported here: the verb's file must load fast for `layerscope --help`.
    from layerscope.host import cgroup
    from layerscope.ingest.conversion import conversion_of_raw
    from layerscope.ingest.open import cached_tables, convert_into, mark_complete, remove_tables
    from layerscope.model import cache
    from layerscope.rawfile import raw_file
    from layerscope.rawfile.json_files import read_options

    limits = cgroup.facts()
    session = None
    memory = limits.memory_most_bytes
    is_beside = not is_small(limits) and not read_options(raw).get(raw_file.LATE)
    begin = partial(conversion_of_raw, raw, tables, memory)
    conversion: RunConversion = begin(follows=is_beside)
    try:
        for count in range(MOST_BEGINNINGS if is_beside else 0):
            if not _follow(conversion):
                break
            remove_tables(tables)
            follows = count < MOST_BEGINNINGS - 1
            conversion = begin(follows=follows, loop=conversion.source.loop)
        session = _end_of_session(raw)
        conversion.finish(session, keeps_within_size=True)
        if conversion.is_wrong:
            return convert_into(raw, tables, session)  # type: ignore[no-any-return]
        mark_complete(tables, raw, conversion.rows)
        return conversion
    except OSError:
        remove_tables(tables)
    session = _end_of_session(raw) if session is None else session
    folder = next(iter(cached_tables(run_id)))
    cache.make(folder)
    cache.remember(folder, tables)
    remade: RunConversion = convert_into(raw, folder, session)
    return remade


def _end_of_session(raw: Path) -> dict[str, Any]:
    """Wait for the end of the recording; what the session left, or that it was killed."""
    from layerscope.ingest.open import unfinished
    from layerscope.rawfile.json_files import read_session

    is_over = _read_request() is not None
    session = read_session(raw)
    return session if session or is_over else {"problems": [unfinished()]}


def is_small(limits: Cgroup) -> bool:
    """Whether what the program and we may use together is too little for a conversion beside it."""
    has_little_memory = (
        limits.memory_most_bytes is not None and limits.memory_most_bytes < SMALL_BYTES
    )
    return has_little_memory or (limits.cpus is not None and limits.cpus < SMALL_CPUS)


def _follow(conversion: RunConversion) -> bool:
    """Convert what comes until standard input speaks, as a guest while that is enough. True: it
    has to begin anew.
    """
    from layerscope.session.free_cpus import FreeCpus

    enough_share = min(ENOUGH_SHARE, ENOUGH_BYTES / conversion.most_bytes)
    waiting_share = min(ENOUGH_SHARE, WAITING_BYTES / conversion.most_bytes)
    free = FreeCpus()
    with (
        ThreadPoolExecutor(1, initializer=_step_back, initargs=(NICE,)) as guest,
        ThreadPoolExecutor(1, initializer=_step_back, initargs=(NICE_BEHIND,)) as less_so,
    ):
        # `has_read`: there is something of a framework's profiler, which must not pile up.
        has_more, has_read, idle = False, False, 0
        while not select.select([sys.stdin], [], [], 0 if has_more else POLL_S)[0]:
            backlog_share = conversion.backlog_share()
            is_free = free.of_late() >= LEAST_FREE_CPUS or backlog_share >= waiting_share
            if has_read or (is_free and (has_more or backlog_share >= enough_share)):
                has_read = False
                worker = less_so if backlog_share > BEHIND_SHARE else guest
                has_more = worker.submit(_go_on, conversion).result()
            else:
                idle += is_free
                if is_free and idle == IDLE_POLLS:
                    guest.submit(_prepare_summary).result()
                has_more = has_read = guest.submit(conversion.source.read_ahead).result()
            if conversion.is_wrong:
                return True
    return False


def _prepare_summary() -> None:
    """Load what the summary needs, for which the prompt would wait."""
    from layerscope.analyse import findings, summary  # noqa: F401
    from layerscope.recording.database import connected
    from layerscope.show.summary import text  # noqa: F401

    findings.thresholds()
    connected().close()


def _go_on(conversion: RunConversion) -> bool:
    """Convert some of what is there; whether there was more."""
    read = conversion.advance(AT_ONCE_RECORDS)
    conversion.keep_within_size()
    has_more = conversion.source.read_ahead()
    return has_more or read >= AT_ONCE_RECORDS


def _step_back(nice: int) -> None:
    """Of all threads of this process only the calling one gets less, and interrupts nobody who
    wakes up (on Linux).
    """
    with contextlib.suppress(OSError):
        os.nice(nice)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
