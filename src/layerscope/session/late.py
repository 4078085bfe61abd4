"""After the program: what only its libraries' logs tell becomes records of its raw files.

oneDNN's verbose log (`verbose`) and MKL's (`mkl`) are read where the user asked for them. Each says
which calls belong to which thread; the spans are woven into the raw files, so that whoever reads
those finds them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layerscope.model.events import Problem
from layerscope.model.layers import PRIMITIVES
from layerscope.session.around import Owners, RecordedProcess, read_processes
from layerscope.session.weaving import LateSpans, weave
from layerscope.sources.imported import Imported

# Every span of the run is in memory while they are placed: 33 bytes each.
_MOST_SPANS = 20_000_000


def take(raw: Path, main_pid: int) -> list[Problem]:
    """Put what the logs below `raw` tell into the raw files; what has to be said about it.
    `main_pid`: the program.
    """
    from layerscope.session import mkl, verbose

    processes = read_processes(raw, _MOST_SPANS)
    if not processes:
        what = "the recording has no process, or is too long, to give the lines of logs to threads"
        remedy = "record a window of the run (--steps, --for)"
        return [
            Problem(
                PRIMITIVES, "logs_unread", what, remedy, "primitives in the logs of oneDNN and MKL"
            )
        ]
    pids = [process.decoder.about.get("pid") for process in processes]
    main = pids.index(main_pid) if main_pid in pids else 0
    problems: list[Problem] = []
    of_processes: dict[int, list[LateSpans]] = {}
    for read in (verbose.place, mkl.place):
        late, said = read(raw, processes, main)
        problems += said
        for number, spans in late.items():
            of_processes.setdefault(number, []).append(spans)
    for number, parts in of_processes.items():
        process = processes[number]
        try:
            weave(process.path, process.decoder, _joined(parts, process.new_track))
        except OSError as error:
            what = f"primitives of logs could not be written ({error.strerror})"
            problems.append(
                Problem(
                    PRIMITIVES, "logs_unread", what, "record again, with room on the disk", "them"
                )
            )
    return problems


def late_spans(
    imported: Imported, found: Owners, processes: list[RecordedProcess], main: int
) -> dict[int, LateSpans]:
    """The calls of a log by process. Those of nobody get tracks of their own in `main`, as the log
    has them.
    """
    is_known = found.process >= 0
    process = np.where(is_known, found.process, main)
    track = np.where(is_known, found.track, -1 - imported.track)
    depth = np.where(is_known, found.depth, 0) + imported.depth
    texts = [*imported.names, *imported.args_texts]
    late = {}
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        args = imported.args[rows]
        late[number] = LateSpans(
            track=track[rows],
            start_ns=found.start_ns[rows],
            end_ns=found.end_ns[rows],
            depth=depth[rows],
            kind=imported.kind[rows],
            name=imported.name[rows],
            args=np.where(args >= 0, args + len(imported.names), -1),
            texts=texts,
        )
    return late


def _joined(parts: list[LateSpans], new_track: int) -> LateSpans:
    """The spans of several logs; tracks that are none of the process, below 0, get numbers from
    `new_track` on.
    """
    texts: list[str] = []
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
    for part in parts:
        own = np.unique(part.track[part.track < 0])
        numbers = np.where(part.track < 0, new_track + np.searchsorted(own, part.track), part.track)
        new_track += len(own)
        args = np.where(part.args >= 0, part.args + len(texts), -1)
        known = {"track": numbers, "name": part.name + len(texts), "args": args}
        for name in _COLUMNS:
            columns[name].append(known.get(name, getattr(part, name)))
        texts += part.texts
    return LateSpans(
        **{name: np.concatenate(values) for name, values in columns.items()}, texts=texts
    )


_COLUMNS = ("track", "start_ns", "end_ns", "depth", "kind", "name", "args")
