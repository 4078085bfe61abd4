"""The logs of oneDNN and MKL, and the profiles of frameworks, that lie beside the raw files of a
recording: their calls become spans of the processes.

Each log says how long its calls took; `onednn_log`, `mkl_log` and `profiles` find the threads that
they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from layerscope.model.events import Problem
from layerscope.model.layers import PRIMITIVES
from layerscope.rawfile.log_files import has_library_logs, profiled_pids
from layerscope.sources.raw import mkl_log, onednn_log, profiles
from layerscope.sources.raw.followed_segments import FollowedSegments
from layerscope.sources.raw.late_spans import LateChunks, LateSpans, joined_spans
from layerscope.sources.raw.open_operators import read_processes
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.unrecorded import unrecorded

# Every span of the run is in memory while they are placed: 37 bytes each.
_MOST_SPANS = 20_000_000


def finish_segments(raw: Path, followed: Iterable[FollowedSegments]) -> list[Problem]:
    """Have processes whose segments were `followed` read the last ones; what has to be said about
    them.
    """
    problems: list[Problem] = []
    for one in followed:
        one.finish()
        losses, said = unrecorded(raw, one.recorded)
        one.process.decoder.losses += losses
        problems += [*one.problems, *said]
    return problems


def merge_logs(raw: Path, processes: Sequence[RawProcess], main_pid: int | None) -> list[Problem]:
    """Have `processes` read the logs below `raw` too; what has to be said about them.

    `main_pid`: the program's.
    """
    profiled = profiled_pids(raw).intersection(process.pid for process in processes)
    if not (processes and (profiled or has_library_logs(raw))):
        return []
    recorded = read_processes(processes, _MOST_SPANS)
    if not recorded:
        what = "the recording has no process, or is too long, to give the lines of logs to threads"
        remedy = "record a window of the run (--steps, --for)"
        lost = "primitives in the logs of oneDNN and MKL"
        return [Problem(PRIMITIVES, "logs_unread", what, remedy, lost)]
    pids = [process.decoder.about.get("pid") for process in recorded]
    main = pids.index(main_pid) if main_pid in pids else 0
    problems: list[Problem] = []
    of_processes: dict[int, list[LateSpans]] = {}
    placed = (
        onednn_log.place(raw, recorded, main),
        mkl_log.place(raw, recorded, main),
        profiles.place(raw, recorded),
    )
    for late, said in placed:
        problems += said
        for number, spans in late.items():
            of_processes.setdefault(number, []).append(spans)
    for process, before in zip(processes, recorded, strict=True):
        losses, said = unrecorded(raw, before.decoder)
        process.decoder.losses += losses
        problems += said
    for number, parts in of_processes.items():
        before = recorded[number]
        spans = joined_spans(parts, before.new_track)
        processes[number].step_mark = spans.step_mark
        is_read = bool(processes[number].decoder.about)
        processes[number].late = LateChunks(before.decoder, spans, is_read)
    return problems
